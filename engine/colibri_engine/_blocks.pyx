# cython: boundscheck=False, wraparound=False, cdivision=True
"""Operations that every network has: embedding, norm, linear, gated feed-forward."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ._kernels cimport Matrix, ck_acts, ck_kernels, ck_matrix, unpack_row
from ._program cimport Acts, Batch, Program


cdef int64_t row_chunks(void *args, void *batch) noexcept nogil:
    return ((<Batch *>batch).rows + ROWS - 1) // ROWS


cdef int64_t last(int64_t chunk, int64_t rows) noexcept nogil:
    return min((chunk + 1) * ROWS, rows)


cdef Quantise quantise_args(Program program, Acts acts):
    return Quantise(program.k, acts.c, acts.quantised)


cdef void finish(const Quantise *to, int64_t row) noexcept nogil:
    """Quantise a row of activations if a matrix wants it so."""
    cdef int64_t cols = to.acts.cols
    if to.quantised:
        to.k.quantize(
            to.acts.f + row * cols, cols, to.acts.q + row * cols, to.acts.s + row * (cols // 32) * 2
        )


cdef struct Embedding:
    const ck_matrix *matrix
    float *x
    uint8_t *scratch
    size_t row_bytes


cdef void run_embedding(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Embedding *to = <Embedding *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t row
    for row in range(chunk * ROWS, last(chunk, rows.rows)):
        unpack_row(
            to.matrix, rows.tokens[row], to.scratch + thread * to.row_bytes, to.x + row * to.matrix.cols
        )


cdef int add_embedding(Program program, str name, float *x) except -1:
    """x[row] = the embedding of the row's token."""
    cdef Matrix matrix = program.matrix(name)
    cdef Embedding *to = <Embedding *>program.args(sizeof(Embedding))
    to.matrix, to.x, to.row_bytes = &matrix.c, x, matrix.row_bytes()
    to.scratch = <uint8_t *>program.scratch(to.row_bytes)
    return program.add(row_chunks, run_embedding, to, PLAIN)


cdef struct Norm:
    Quantise out
    const float *x
    const float *weight
    float eps
    int wanted


cdef int64_t norm_chunks(void *args, void *batch) noexcept nogil:
    cdef Batch *rows = <Batch *>batch
    return ((rows.wanted if (<Norm *>args).wanted else rows.rows) + ROWS - 1) // ROWS


cdef void run_norm(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Norm *to = <Norm *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t cols = to.out.acts.cols, row, of
    for row in range(chunk * ROWS, last(chunk, rows.wanted if to.wanted else rows.rows)):
        of = rows.want[row] if to.wanted else row
        to.out.k.rmsnorm(to.x + of * cols, to.weight, cols, to.eps, to.out.acts.f + row * cols)
        finish(&to.out, row)


cdef int add_norm(Program program, norm, float *x, Acts acts, int flags) except -1:
    """acts = norm(x). flags: WANTED, POLL."""
    cdef Norm *to = <Norm *>program.args(sizeof(Norm))
    to.out = quantise_args(program, acts)
    to.x, to.weight, to.eps, to.wanted = x, program.vector(norm.weight), norm.eps, flags & WANTED
    return program.add(norm_chunks, run_norm, to, flags & POLL)


cdef struct Linear:
    const ck_kernels *k
    ck_acts acts
    int parts
    Part part[PARTS]
    int64_t per
    int add
    int wanted


cdef int64_t linear_chunks(void *args, void *batch) noexcept nogil:
    cdef Linear *to = <Linear *>args
    cdef Batch *rows = <Batch *>batch
    cdef int64_t chunks = 0
    cdef int i
    if to.wanted and not rows.wanted:
        return 0
    for i in range(to.parts):
        chunks += (to.part[i].w.groups + to.per - 1) // to.per
    return chunks


cdef void run_linear(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Linear *to = <Linear *>args
    cdef Batch *rows = <Batch *>batch
    cdef Part *part = &to.part[0]
    cdef int64_t total = rows.wanted if to.wanted else rows.rows, cols = to.acts.cols, row = 0, chunks
    cdef ck_acts acts
    while True:
        chunks = (part.w.groups + to.per - 1) // to.per
        if chunk < chunks:
            break
        chunk -= chunks
        part += 1
    while row < total:
        acts = ck_acts(
            to.acts.f + row * cols, to.acts.q + row * cols, to.acts.s + row * (cols // 32) * 2, cols
        )
        to.k.matmul(
            part.w, chunk * to.per, min((chunk + 1) * to.per, part.w.groups), &acts, NULL,
            min(total - row, TILE), part.out + row * part.ldo, part.ldo, to.add,
        )
        row += TILE


cdef int add_linear(
    Program program, Acts acts, list matrices, list outs, int64_t ldo, int flags
) except -1:
    """Products of the same activations with up to PARTS matrices.

    outs: for each matrix, the address of its first output as an integer; ldo: floats between rows.
    flags: ADD, WANTED.
    """
    cdef Linear *to = <Linear *>program.args(sizeof(Linear))
    cdef Matrix matrix
    cdef int64_t groups = 0
    to.k, to.acts, to.parts, to.add, to.wanted = program.k, acts.c, len(matrices), flags & ADD, flags & WANTED
    for i in range(to.parts):
        matrix = matrices[i]
        to.part[i] = Part(&matrix.c, <float *><size_t>outs[i], ldo)
        groups += matrix.c.groups
    to.per = max(1, groups // (program.threads * 6))
    return program.add(linear_chunks, run_linear, to, PLAIN)


cdef struct Swiglu:
    Quantise out
    const float *gate
    const float *up
    int64_t ld


cdef void run_swiglu(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Swiglu *to = <Swiglu *>args
    cdef int64_t cols = to.out.acts.cols, row
    for row in range(chunk * ROWS, last(chunk, (<Batch *>batch).rows)):
        to.out.k.swiglu(to.gate + row * to.ld, to.up + row * to.ld, cols, to.out.acts.f + row * cols)
        finish(&to.out, row)


cdef int add_glu(Program program, spec, norm, float *x) except -1:
    """x += down(silu(gate(norm(x))) * up(norm(x)))."""
    cdef Matrix gate = program.matrix(spec.gate), up = program.matrix(spec.up), down = program.matrix(spec.down)
    cdef Acts inner = program.acts("normed", gate.c.cols, gate.quantised or up.quantised)
    cdef int64_t width = spec.width, ld
    cdef Acts product = program.acts("glu", width, down.quantised)
    ld = 2 * width
    cdef float *both = program.buffer("gate up", ld)
    cdef Swiglu *to = <Swiglu *>program.args(sizeof(Swiglu))
    to.out, to.gate, to.up, to.ld = quantise_args(program, product), both, both + width, ld
    add_norm(program, norm, x, inner, PLAIN)
    add_linear(program, inner, [gate, up], [<size_t>to.gate, <size_t>to.up], ld, PLAIN)
    program.add(row_chunks, run_swiglu, to, PLAIN)
    return add_linear(program, product, [down], [<size_t>x], gate.c.cols, ADD)
