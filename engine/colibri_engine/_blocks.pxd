from libc.stdint cimport int32_t, int64_t

from ._kernels cimport Matrix, ck_acts, ck_kernels, ck_matrix
from ._program cimport Acts, Program

cdef enum:
    ROWS = 4  # rows of one chunk in operations that work row by row
    TILE = 64  # rows whose activations a matrix product keeps in cache
    PARTS = 4


# How an operation differs from the plain one.
cdef enum:
    PLAIN = 0
    ADD = 1  # add to what the output holds
    WANTED = 2  # only the rows whose logits are asked for
    POLL = 4  # a place to stop a cancelled step


cdef struct Part:
    const ck_matrix *w
    float *out
    int64_t ldo


cdef struct Quantise:
    const ck_kernels *k
    ck_acts acts
    int quantised


cdef int64_t row_chunks(void *args, void *batch) noexcept nogil
cdef void finish(const Quantise *to, int64_t row) noexcept nogil
cdef Quantise quantise_args(Program program, Acts acts)

cdef int add_embedding(Program program, str name, float *x) except -1
cdef int add_norm(Program program, norm, float *x, Acts acts, int flags) except -1
cdef int add_linear(
    Program program, Acts acts, list matrices, list outs, int64_t ldo, int flags
) except -1
cdef int add_glu(Program program, spec, norm, float *x) except -1
