from ._program cimport Program

cdef int add_gqa(Program program, spec, norm, float *x) except -1
