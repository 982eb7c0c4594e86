from libc.stdint cimport int64_t


cdef extern from "ck_pool.h" nogil:
    ctypedef struct ck_op:
        int64_t (*chunks)(void *args, void *batch) noexcept nogil
        void (*run)(void *args, void *batch, int64_t chunk, int thread) noexcept nogil
        void *args
        int poll

    ctypedef struct ck_pool:
        pass


cdef class Pool:
    cdef ck_pool *pool
    cdef readonly int threads
    cdef void run(self, const ck_op *ops, int64_t count, void *batch) noexcept nogil
    cpdef bint cancelled(self)
