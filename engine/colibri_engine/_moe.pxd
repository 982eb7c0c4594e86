from ._program cimport Program

cdef int add_moe(Program program, spec, norm, float *x) except -1
