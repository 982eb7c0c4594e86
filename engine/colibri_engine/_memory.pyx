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
