cdef class Memory:
    cdef char *at
    cdef readonly size_t size


cdef class Arena:
    cdef Memory slab
    cdef size_t slab_size
    cdef size_t used
    cdef char *take(self, size_t size) except NULL
