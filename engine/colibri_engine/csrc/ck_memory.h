/* Large zeroed memory straight from the system; pages are taken when first touched. */
#ifndef CK_MEMORY_H
#define CK_MEMORY_H

#include <stddef.h>
#include <sys/mman.h>

#ifndef MAP_NORESERVE
#define MAP_NORESERVE 0
#endif

/* huge: ask for huge pages, for memory that will be filled. */
static void *ck_map(size_t size, int huge)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    if (huge) madvise(at, size, MADV_HUGEPAGE);
#endif
    return at;
}

static void ck_unmap(void *at, size_t size) { munmap(at, size); }

#endif
