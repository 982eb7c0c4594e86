from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ._memory cimport Memory


cdef extern from "ck.h" nogil:
    enum:
        CK_LANES, CK_SPAN

    ctypedef struct ck_matrix:
        int32_t dtype
        int64_t rows
        int64_t cols
        int64_t groups
        size_t group_bytes
        const uint8_t *data

    ctypedef struct ck_acts:
        float *f
        int16_t *q
        float *s
        int64_t cols

    ctypedef struct ck_kernels:
        const char *name
        void (*quantize)(const float *x, int64_t cols, int16_t *q, float *s) noexcept nogil
        void (*matmul)(
            const ck_matrix *w, int64_t begin, int64_t end, const ck_acts *x, const int32_t *pick, int64_t n,
            float *out, int64_t ldo, int add,
        ) noexcept nogil
        void (*rmsnorm)(
            const float *x, const float *weight, int64_t cols, float eps, float *y
        ) noexcept nogil
        void (*rope)(
            float *x, int64_t heads, int64_t dim, int64_t dims, int interleaved, const float *angles
        ) noexcept nogil
        void (*attend)(
            const float *q, const float *k, const float *v, int64_t dim, int64_t n, float scale, float *part
        ) noexcept nogil
        void (*combine)(float *parts, int64_t n, int64_t dim, float *out) noexcept nogil
        void (*swiglu)(const float *gate, const float *up, int64_t cols, float *y) noexcept nogil
        float (*softmax)(float *x, int64_t n, float *top) noexcept nogil
        double (*logsumexp)(const float *x, int64_t n) noexcept nogil


cdef class Matrix:
    cdef ck_matrix c
    cdef Memory memory
    cdef readonly str dtype
    cdef bint quantised
    cdef size_t row_bytes(self) noexcept nogil


cdef const ck_kernels *kernels(cpu=*) except NULL
cdef void unpack_row(const ck_matrix *w, int64_t row, uint8_t *scratch, float *to) noexcept nogil
cdef Memory floats(str dtype, const uint8_t[::1] data, Py_ssize_t count)
