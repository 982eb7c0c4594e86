cdef class Memory:
    cdef char *at
    cdef readonly size_t size
