from libc.stdint cimport int32_t, int64_t

from ._kernels cimport Matrix, ck_acts, ck_kernels
from ._memory cimport Arena, Memory
from ._pool cimport ck_op


# The rows of one step. states[i]: the memory of row i's slot. want: the rows whose logits are asked for.
cdef struct Batch:
    int64_t rows
    int64_t wanted
    int32_t *tokens
    int32_t *want
    int64_t *positions
    char **states


ctypedef int64_t (*chunks_fn)(void *args, void *batch) noexcept nogil
ctypedef void (*run_fn)(void *args, void *batch, int64_t chunk, int thread) noexcept nogil


# Activations that a matrix product reads; `quantised` if any of its matrices is.
cdef class Acts:
    cdef ck_acts c
    cdef bint quantised
    cdef int64_t blocks
    cdef list memory


cdef class Program:
    cdef const ck_kernels *k
    cdef readonly int threads
    cdef readonly int64_t max_rows
    cdef readonly int64_t context
    cdef readonly size_t state_bytes
    cdef readonly list planes
    cdef ck_op *ops
    cdef int64_t count
    cdef object source
    cdef Arena arena
    cdef dict matrices
    cdef dict buffers
    cdef list kept

    cdef Matrix matrix(self, str name)
    cdef float *vector(self, str name) except NULL
    cdef float *buffer(self, str name, int64_t cols) except NULL
    cdef char *scratch(self, size_t size) except NULL
    cdef Acts acts(self, str name, int64_t cols, bint quantised)
    cdef int64_t plane(self, int64_t count, int64_t token_bytes) except -1
    cdef void *args(self, size_t size) except NULL
    cdef int add(self, chunks_fn chunks, run_fn run, void *args, bint poll) except -1
