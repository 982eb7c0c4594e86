"""The threads that share the work of a step; how they agree is written in csrc/ck_pool.h."""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from .errors import EngineError

cdef extern from "ck_pool.h" nogil:
    ck_pool *ck_pool_open(int threads)
    void ck_pool_close(ck_pool *pool)
    void ck_pool_run(ck_pool *pool, const ck_op *ops, int64_t count, void *batch)
    void ck_pool_cancel(ck_pool *pool, int cancelled)
    int ck_pool_cancelled(ck_pool *pool)


cdef class Pool:
    """`threads` threads, the caller of `run` among them.

    Raises:
        EngineError: the system does not start so many threads.
    """

    def __cinit__(self, int threads):
        self.threads = threads
        self.pool = ck_pool_open(threads) if 0 < threads <= 1024 else NULL
        if self.pool is NULL:
            raise EngineError(f"{threads} threads cannot be started; 1 to 1024 are possible")

    def __dealloc__(self):
        if self.pool is not NULL:
            with nogil:
                ck_pool_close(self.pool)

    cdef void run(self, const ck_op *ops, int64_t count, void *batch) noexcept nogil:
        ck_pool_run(self.pool, ops, count, batch)

    def cancel(self, bint cancelled):
        """Make the present and coming runs end early, or let them run again; from any thread."""
        ck_pool_cancel(self.pool, cancelled)

    cpdef bint cancelled(self):
        """Whether runs end early."""
        return ck_pool_cancelled(self.pool)


cdef struct Tally:
    int64_t chunks
    int64_t *counts


cdef int64_t tally_chunks(void *args, void *batch) noexcept nogil:
    return (<Tally *>args).chunks


cdef void tally_run(void *args, void *batch, int64_t chunk, int thread) noexcept nogil:
    (<Tally *>args).counts[chunk] += 1


def check(Pool pool, chunks):
    """Run one operation of chunks[i] chunks for each i; how often each chunk ran. For tests."""
    cdef int64_t n = len(chunks), i, j
    cdef ck_op *ops = <ck_op *>calloc(n, sizeof(ck_op))
    cdef Tally *tallies = <Tally *>calloc(n, sizeof(Tally))
    for i in range(n):
        tallies[i].chunks = chunks[i]
        tallies[i].counts = <int64_t *>calloc(tallies[i].chunks + 1, sizeof(int64_t))
        ops[i] = ck_op(tally_chunks, tally_run, &tallies[i], 1)
    with nogil:
        pool.run(ops, n, NULL)
    counts = [[tallies[i].counts[j] for j in range(tallies[i].chunks)] for i in range(n)]
    for i in range(n):
        free(tallies[i].counts)
    free(tallies)
    free(ops)
    return counts
