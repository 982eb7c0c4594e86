# cython: boundscheck=False, wraparound=False, cdivision=True
"""Token mixers: grouped-query attention over a KV cache in f32.

A slot's state holds, for each layer, the keys of every KV head [context, head_dim], then the values.
"""

from libc.math cimport cos, sin
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from ._blocks cimport ADD, PLAIN, POLL, ROWS, Quantise, add_linear, add_norm, finish, quantise_args, row_chunks
from ._kernels cimport CK_LANES, CK_SPAN, Matrix, ck_kernels
from ._program cimport Acts, Batch, Program


cdef struct Angles:
    float *out
    const float *frequency
    int64_t pairs


cdef void run_angles(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    """cos and sin of f32(position) * f32(frequency), as transformers rounds them."""
    cdef Angles *to = <Angles *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t row, i
    cdef float angle
    cdef float *out
    for row in range(chunk * ROWS, min((chunk + 1) * ROWS, rows.rows)):
        out = to.out + row * 2 * to.pairs
        for i in range(to.pairs):
            angle = <float>rows.positions[row] * to.frequency[i]
            out[2 * i], out[2 * i + 1] = <float>cos(angle), <float>sin(angle)


cdef float *angles(Program program, rope) except NULL:
    """The table [rows, pairs, 2] of the step's rotations, made once a step for all layers that share it."""
    cdef int64_t pairs = rope.dims // 2
    cdef str name = f"angles {rope.theta}"
    cdef bint known = (name, rope.dims) in program.buffers
    cdef Angles *to = <Angles *>program.args(sizeof(Angles))
    cdef float *frequency
    to.out, to.pairs = program.buffer(name, rope.dims), pairs
    if not known:
        to.frequency = frequency = <float *>program.args(pairs * sizeof(float))
        for i in range(pairs):
            frequency[i] = rope.theta ** (-2.0 * i / rope.dims)
        program.add(row_chunks, run_angles, to, PLAIN)
    return to.out


cdef struct Gqa:
    const ck_kernels *k
    Quantise out
    float *qkv
    float *parts
    const float *angles
    const float *q_norm
    const float *k_norm
    float q_eps
    float k_eps
    float clip
    float scale
    int interleaved
    int64_t heads
    int64_t kv_heads
    int64_t dim
    int64_t dims
    int64_t width
    int64_t room
    int64_t keys
    int64_t values
    int64_t spans
    int64_t most


cdef void clamp(float *x, int64_t n, float limit) noexcept nogil:
    cdef int64_t i
    for i in range(n):
        x[i] = min(max(x[i], -limit), limit)


cdef void run_place(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    """Norm, clip and turn queries and keys; store keys and values in the slot's state."""
    cdef Gqa *to = <Gqa *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t queries = to.heads * to.dim, keys = to.kv_heads * to.dim, row, h, at
    cdef float *q
    cdef float *k
    for row in range(chunk * ROWS, min((chunk + 1) * ROWS, rows.rows)):
        q = to.qkv + row * to.width
        k = q + queries
        if to.q_norm is not NULL:
            to.k.rmsnorm(q, to.q_norm, queries, to.q_eps, q)
            to.k.rmsnorm(k, to.k_norm, keys, to.k_eps, k)
        if to.clip > 0:
            clamp(q, to.width, to.clip)
        to.k.rope(
            q, to.heads + to.kv_heads, to.dim, to.dims, to.interleaved, to.angles + row * to.dims
        )
        for h in range(to.kv_heads):
            at = (h * to.room + rows.positions[row]) * to.dim
            memcpy(<float *>(rows.states[row] + to.keys) + at, k + h * to.dim, to.dim * sizeof(float))
            memcpy(<float *>(rows.states[row] + to.values) + at, k + keys + h * to.dim, to.dim * sizeof(float))


cdef float *parts_of(const Gqa *to, int64_t row, int64_t head) noexcept nogil:
    return to.parts + (row * to.heads + head) * to.most * (to.dim + CK_LANES)


cdef int64_t attend_chunks(void *args, void *batch) noexcept nogil:
    """A few rows, one span of positions, and the query heads that share a KV head."""
    cdef Gqa *to = <Gqa *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t row
    to.spans = 0
    for row in range(rows.rows):
        to.spans = max(to.spans, rows.positions[row] // CK_SPAN + 1)
    return to.kv_heads * to.spans * row_chunks(args, batch)


cdef void run_attend(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    """Neighbouring chunks share keys and values, which stay in cache."""
    cdef Gqa *to = <Gqa *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t chunks = row_chunks(args, batch), group = to.heads // to.kv_heads
    cdef int64_t kv = chunk // (chunks * to.spans), span = chunk // chunks % to.spans
    cdef int64_t start = span * CK_SPAN, at = (kv * to.room + start) * to.dim, row, head
    chunk %= chunks
    for row in range(chunk * ROWS, min((chunk + 1) * ROWS, rows.rows)):
        for head in range(kv * group, (kv + 1) * group if rows.positions[row] >= start else 0):
            to.k.attend(
                to.qkv + row * to.width + head * to.dim,
                <float *>(rows.states[row] + to.keys) + at,
                <float *>(rows.states[row] + to.values) + at,
                to.dim, min(rows.positions[row] + 1 - start, CK_SPAN), to.scale,
                parts_of(to, row, head) + span * (to.dim + CK_LANES),
            )


cdef void run_combine(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Gqa *to = <Gqa *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t row, head
    for row in range(chunk * ROWS, min((chunk + 1) * ROWS, rows.rows)):
        for head in range(to.heads):
            to.k.combine(
                parts_of(to, row, head), rows.positions[row] // CK_SPAN + 1, to.dim,
                to.out.acts.f + (row * to.heads + head) * to.dim,
            )
        finish(&to.out, row)


cdef int add_gqa(Program program, spec, norm, float *x) except -1:
    """x += o(attention(norm(x)))."""
    cdef Matrix q = program.matrix(spec.q), k = program.matrix(spec.k), v = program.matrix(spec.v)
    cdef Matrix o = program.matrix(spec.o)
    cdef Acts inner = program.acts("normed", q.c.cols, q.quantised or k.quantised or v.quantised)
    cdef Acts mixed = program.acts("mixed", o.c.cols, o.quantised)
    cdef Gqa *to = <Gqa *>program.args(sizeof(Gqa))
    to.k, to.heads, to.kv_heads, to.dim = program.k, spec.heads, spec.kv_heads, spec.head_dim
    to.dims, to.interleaved = spec.rope.dims, spec.rope.style == "interleaved"
    to.scale, to.clip = spec.head_dim**-0.5, spec.clip or 0.0
    to.width = (to.heads + 2 * to.kv_heads) * to.dim
    to.room = (program.context + 7) // 8 * 8
    to.qkv = program.buffer("qkv", to.width)
    to.most = (program.context + CK_SPAN - 1) // CK_SPAN
    to.parts = program.buffer("attention", to.heads * to.most * (to.dim + CK_LANES))
    to.keys = program.plane(to.kv_heads, to.dim * sizeof(float))
    to.values = program.plane(to.kv_heads, to.dim * sizeof(float))
    to.out = quantise_args(program, mixed)
    if spec.qk_norm is not None:
        to.q_norm, to.q_eps = program.vector(spec.qk_norm.q.weight), spec.qk_norm.q.eps
        to.k_norm, to.k_eps = program.vector(spec.qk_norm.k.weight), spec.qk_norm.k.eps
    to.angles = angles(program, spec.rope)
    add_norm(program, norm, x, inner, POLL)
    queries, keys = <size_t>to.qkv + 4 * q.c.rows, <size_t>to.qkv + 4 * (q.c.rows + k.c.rows)
    add_linear(program, inner, [q, k, v], [<size_t>to.qkv, queries, keys], to.width, PLAIN)
    program.add(row_chunks, run_place, to, PLAIN)
    program.add(attend_chunks, run_attend, to, PLAIN)
    program.add(row_chunks, run_combine, to, PLAIN)
    return add_linear(program, mixed, [o], [<size_t>x], o.c.rows, ADD)
