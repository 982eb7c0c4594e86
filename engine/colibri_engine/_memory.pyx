"""Zeroed memory from the system."""

cdef extern from "ck_memory.h" nogil:
    void *ck_map(size_t size, int huge)
    void ck_unmap(void *at, size_t size)

cdef class Memory:
    """`size` zeroed bytes; untouched pages cost nothing.

    huge: use huge pages where the system has them, for memory that will be filled entirely.

    Raises:
        MemoryError: the system refuses so much address space.
    """

    def __cinit__(self, size_t size, bint huge=False):
        self.size = (size + 4095) // 4096 * 4096 or 4096
        self.at = <char *>ck_map(self.size, huge)
        if self.at is NULL:
            raise MemoryError(f"the system gives no {self.size} bytes of memory")

    def __dealloc__(self):
        if self.at is not NULL:
            ck_unmap(self.at, self.size)


cdef class Arena:
    """Memory for many arrays that live equally long, next to each other so that huge pages can hold them.

    slab_size: how much is asked of the system at a time, at least. Who takes memory also keeps `slab`,
    which is what frees it.
    """

    def __cinit__(self, size_t slab_size):
        self.slab_size = slab_size

    cdef char *take(self, size_t size) except NULL:
        """`size` zeroed bytes, aligned to a cache line."""
        cdef size_t start = (self.used + 63) // 64 * 64
        if self.slab is None or start + size > self.slab.size:
            self.slab, start = Memory(max(size, self.slab_size), huge=True), 0
        self.used = start + size
        return self.slab.at + start
