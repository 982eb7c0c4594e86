# cython: boundscheck=False, wraparound=False, cdivision=True
"""Mixture of experts: a step's rows are grouped by expert, so each expert's weights are read once.

A use is one row going to one expert. Uses lie ordered by expert, then row; expert e has those in
[first[e], first[e + 1]), and `rows` says which row each is. `place` [row, top_k] finds a row's uses by
ascending expert, the order in which their outputs are summed.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from ._blocks cimport PLAIN, ROWS, Quantise, add_linear, add_norm, finish, quantise_args, row_chunks
from ._kernels cimport Matrix, ck_acts, ck_kernels, ck_matrix
from ._program cimport Acts, Batch, Program


cdef struct Moe:
    const ck_kernels *k
    ck_acts inner
    Quantise product
    const ck_matrix **gate
    const ck_matrix **up
    const ck_matrix **down
    float *scores
    float *weights
    float *both
    float *out
    float *x
    int32_t *chosen
    int32_t *place
    int32_t *rows
    int32_t *first
    int32_t *active
    int64_t actives
    int64_t experts
    int64_t top_k
    int64_t width
    int64_t hidden
    int64_t per_up
    int64_t per_down
    int renormalise


cdef void choose(Moe *to, float *scores, int32_t *chosen, float *weights) noexcept nogil:
    """The experts with the highest scores, ties to the lower one, ascending, and their softmax weights."""
    cdef int64_t e, i, found = 0, lowest
    cdef float total, top
    for e in range(to.experts):
        if found < to.top_k:
            chosen[found] = e
            found += 1
            continue
        lowest = 0
        for i in range(1, to.top_k):
            if scores[chosen[i]] <= scores[chosen[lowest]]:
                lowest = i
        if scores[e] > scores[chosen[lowest]]:
            for i in range(lowest, to.top_k - 1):
                chosen[i] = chosen[i + 1]
            chosen[to.top_k - 1] = e
    total = to.k.softmax(scores, to.experts, &top)
    if to.renormalise:
        total = 0
        for i in range(to.top_k):
            total += scores[chosen[i]]
    for i in range(to.top_k):
        weights[i] = scores[chosen[i]] / total


cdef int64_t one_chunk(void *args, void *batch) noexcept nogil:
    return 1


cdef void run_route(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    """Choose every row's experts and order the uses."""
    cdef Moe *to = <Moe *>args
    cdef int64_t rows = (<Batch *>batch).rows, row, i, e
    cdef int32_t *next = to.first + to.experts + 1
    memset(to.first, 0, (to.experts + 1) * sizeof(int32_t))
    for row in range(rows):
        choose(to, to.scores + row * to.experts, to.chosen + row * to.top_k, to.weights + row * to.top_k)
        for i in range(to.top_k):
            to.first[to.chosen[row * to.top_k + i] + 1] += 1
    to.actives = 0
    for e in range(to.experts):
        if to.first[e + 1]:
            to.active[to.actives] = e
            to.actives += 1
        to.first[e + 1] += to.first[e]
        next[e] = to.first[e]
    for row in range(rows):
        for i in range(to.top_k):
            e = to.chosen[row * to.top_k + i]
            to.rows[next[e]] = row
            to.place[row * to.top_k + i] = next[e]
            next[e] += 1


cdef int64_t parts(int64_t rows, int64_t per) noexcept nogil:
    return ((rows + 7) // 8 + per - 1) // per


cdef int64_t up_chunks(void *args, void *batch) noexcept nogil:
    cdef Moe *to = <Moe *>args
    return to.actives * 2 * parts(to.width, to.per_up)


cdef void run_up(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Moe *to = <Moe *>args
    cdef int64_t each = parts(to.width, to.per_up), e = to.active[chunk // (2 * each)]
    cdef int64_t part = chunk % each, use = to.first[e]
    cdef int second = chunk % (2 * each) >= each
    cdef const ck_matrix *w = to.up[e] if second else to.gate[e]
    to.k.matmul(
        w, part * to.per_up, min((part + 1) * to.per_up, w.groups), &to.inner, to.rows + use,
        to.first[e + 1] - use, to.both + use * 2 * to.width + second * to.width, 2 * to.width, 0,
    )


cdef int64_t use_chunks(void *args, void *batch) noexcept nogil:
    return ((<Batch *>batch).rows * (<Moe *>args).top_k + ROWS - 1) // ROWS


cdef void run_product(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Moe *to = <Moe *>args
    cdef int64_t use
    cdef float *both
    for use in range(chunk * ROWS, min((chunk + 1) * ROWS, (<Batch *>batch).rows * to.top_k)):
        both = to.both + use * 2 * to.width
        to.k.swiglu(both, both + to.width, to.width, to.product.acts.f + use * to.width)
        finish(&to.product, use)


cdef int64_t down_chunks(void *args, void *batch) noexcept nogil:
    cdef Moe *to = <Moe *>args
    return to.actives * parts(to.hidden, to.per_down)


cdef void run_down(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Moe *to = <Moe *>args
    cdef int64_t each = parts(to.hidden, to.per_down), e = to.active[chunk // each]
    cdef int64_t part = chunk % each, use = to.first[e], cols = to.width
    cdef const ck_matrix *w = to.down[e]
    cdef ck_acts product = ck_acts(
        to.product.acts.f + use * cols, to.product.acts.q + use * cols,
        to.product.acts.s + use * (cols // 32) * 2, cols,
    )
    to.k.matmul(
        w, part * to.per_down, min((part + 1) * to.per_down, w.groups), &product, NULL,
        to.first[e + 1] - use, to.out + use * to.hidden, to.hidden, 0,
    )


cdef void run_sum(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    cdef Moe *to = <Moe *>args
    cdef int64_t row, i, c
    cdef float weight
    cdef float *x
    cdef float *out
    for row in range(chunk * ROWS, min((chunk + 1) * ROWS, (<Batch *>batch).rows)):
        x = to.x + row * to.hidden
        for i in range(to.top_k):
            weight = to.weights[row * to.top_k + i]
            out = to.out + to.place[row * to.top_k + i] * to.hidden
            for c in range(to.hidden):
                x[c] += out[c] * weight


cdef const ck_matrix **pointers(Program program, list matrices) except NULL:
    cdef const ck_matrix **out = <const ck_matrix **>program.args(len(matrices) * sizeof(ck_matrix *))
    cdef Matrix matrix
    for i in range(len(matrices)):
        matrix = matrices[i]
        out[i] = &matrix.c
    return out


cdef int add_moe(Program program, spec, norm, float *x) except -1:
    """x += the sum of the chosen experts' outputs for norm(x), each times its weight."""
    cdef Matrix router = program.matrix(spec.router.weight)
    cdef list experts = [spec.experts.expert(e) for e in range(spec.count)]
    cdef list gates = [program.matrix(expert.gate) for expert in experts]
    cdef list ups = [program.matrix(expert.up) for expert in experts]
    cdef list downs = [program.matrix(expert.down) for expert in experts]
    cdef Acts inner = program.acts("normed", router.c.cols, any_quantised([router, *gates, *ups]))
    cdef Moe *to = <Moe *>program.args(sizeof(Moe))
    cdef int64_t width = spec.experts.width
    to.k, to.inner, to.x = program.k, inner.c, x
    to.experts, to.top_k, to.renormalise = spec.count, spec.router.top_k, spec.router.renormalise
    to.width, to.hidden = width, router.c.cols
    to.gate, to.up, to.down = pointers(program, gates), pointers(program, ups), pointers(program, downs)
    to.product = quantise_args(
        program, program.acts(f"uses {to.top_k}", to.top_k * width, any_quantised(downs))
    )
    to.product.acts.cols = width
    to.scores = program.buffer("router", to.experts)
    to.weights = program.buffer("expert weights", to.top_k)
    to.both = program.buffer("expert gate up", to.top_k * 2 * width)
    to.out = program.buffer("expert out", to.top_k * to.hidden)
    to.chosen = <int32_t *>program.buffer("chosen", to.top_k)
    to.place = <int32_t *>program.buffer("place", to.top_k)
    to.rows = <int32_t *>program.buffer("uses", to.top_k)
    to.first = <int32_t *>program.args((2 * to.experts + 1) * sizeof(int32_t))
    to.active = <int32_t *>program.args(to.experts * sizeof(int32_t))
    to.per_up = max(1, width // (8 * 2 * program.threads))
    to.per_down = max(1, to.hidden // (8 * 2 * program.threads))
    add_norm(program, norm, x, inner, PLAIN)
    add_linear(program, inner, [router], [<size_t>to.scores], to.experts, PLAIN)
    program.add(one_chunk, run_route, to, PLAIN)
    program.add(up_chunks, run_up, to, PLAIN)
    program.add(use_chunks, run_product, to, PLAIN)
    program.add(down_chunks, run_down, to, PLAIN)
    return program.add(row_chunks, run_sum, to, PLAIN)


cdef bint any_quantised(list matrices):
    """Whether a product with one of the matrices needs quantised activations."""
    cdef Matrix matrix
    for matrix in matrices:
        if matrix.quantised:
            return True
    return False
