"""The compute kernels: choice of the CPU level, weights in the engine's layout, and entry points for tests.

What each kernel computes, and in which order it sums, is written in csrc/ck.h and the headers beside it.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ._memory cimport Arena, Memory

from .errors import EngineError, SpecError

cdef extern from "ck_kernels.h" nogil:
    enum:
        CK_F32, CK_F16, CK_BF16, CK_Q8_0, CK_Q4_0, CK_Q4_1
    const ck_kernels *ck_find(const char *level)
    size_t ck_row_bytes(int32_t dtype, int64_t cols)
    void ck_pack(const ck_matrix *w, uint8_t *data, const uint8_t *rows, int64_t begin, int64_t end)
    void ck_decode(int32_t dtype, const uint8_t *source, int64_t count, float *to)
    void ck_unpack_row(const ck_matrix *w, int64_t row, uint8_t *scratch, float *to)

cdef dict _CODES = {
    "F32": CK_F32, "F16": CK_F16, "BF16": CK_BF16, "Q8_0": CK_Q8_0, "Q4_0": CK_Q4_0, "Q4_1": CK_Q4_1,
}


cdef const ck_kernels *kernels(cpu=None) except NULL:
    """The kernels of a CPU level; of COLIBRI_CPU, or else the best one, if None."""
    cdef bytes name
    cdef const ck_kernels *found
    level = cpu or os.environ.get("COLIBRI_CPU")
    if not level:
        return ck_find(NULL)
    name = level.encode()
    found = ck_find(PyBytes_AS_STRING(name))
    if found is NULL:
        raise EngineError(f"COLIBRI_CPU is {level!r}; this machine has: {', '.join(cpu_levels())}")
    return found


def cpu_levels():
    """The CPU levels this machine can run, slowest first."""
    return [name for name in ("base", "avx2") if ck_find(name.encode()) is not NULL]


def cpu_level():
    """The level the engine uses: that of COLIBRI_CPU, or else the best one.

    Raises:
        EngineError: COLIBRI_CPU names a level that this machine does not have.
    """
    return kernels().name.decode()


cdef Memory floats(str dtype, const uint8_t[::1] data, Py_ssize_t count):
    """A vector of F32, F16 or BF16 values as f32."""
    cdef Memory memory = Memory(count * sizeof(float))
    cdef int code = _CODES[dtype]
    if ck_row_bytes(code, count) != <size_t>data.shape[0]:
        raise SpecError(f"a vector of {count} {dtype} values cannot have {data.shape[0]} bytes")
    ck_decode(code, &data[0], count, <float *>memory.at)
    return memory


cdef void unpack_row(const ck_matrix *w, int64_t row, uint8_t *scratch, float *to) noexcept nogil:
    """One row of weights as f32; `scratch` has room for the row as it is stored."""
    ck_unpack_row(w, row, scratch, to)


cdef class Matrix:
    """Weights [rows, cols] copied once from their row-major file encoding, without changing a bit.

    arena: where to put them, by default in memory of their own.

    Raises:
        SpecError: an encoding without kernels, columns that do not fill its blocks, or data of another
            length than the shape asks for.
    """

    def __init__(self, str dtype, Py_ssize_t rows, Py_ssize_t cols, const uint8_t[::1] data, Arena arena=None):
        cdef int unit = 32 if dtype.startswith("Q") else 2
        if dtype not in _CODES:
            raise SpecError(f"the engine computes with {', '.join(_CODES)}, not with {dtype}")
        if rows < 1 or cols < 1 or cols % unit:
            raise SpecError(f"a {dtype} matrix needs a multiple of {unit} columns, not [{rows}, {cols}]")
        cdef size_t row_bytes = ck_row_bytes(_CODES[dtype], cols)
        if row_bytes * rows != <size_t>data.shape[0]:
            raise SpecError(f"a {dtype} matrix [{rows}, {cols}] cannot have {data.shape[0]} bytes")
        self.dtype = dtype
        self.quantised = dtype.startswith("Q")
        self.c.dtype = _CODES[dtype]
        self.c.rows, self.c.cols, self.c.groups = rows, cols, (rows + 7) // 8
        self.c.group_bytes = 8 * row_bytes
        arena = arena or Arena(0)
        cdef uint8_t *packed = <uint8_t *>arena.take(self.c.groups * self.c.group_bytes)
        self.memory = arena.slab
        self.c.data = packed
        with nogil:
            ck_pack(&self.c, packed, &data[0], 0, self.c.groups)

    cdef size_t row_bytes(self) noexcept nogil:
        return self.c.group_bytes // 8

    @property
    def nbytes(self):
        """Bytes of memory the weights take."""
        return self.c.groups * self.c.group_bytes

    def unpack(self):
        """All weights as f32, row by row, in one buffer [rows, cols]."""
        cdef Memory scratch = Memory(self.row_bytes())
        cdef bytearray out = bytearray(self.c.rows * self.c.cols * 4)
        cdef float *to = <float *><char *>out
        cdef int64_t index
        for index in range(self.c.rows):
            unpack_row(&self.c, index, <uint8_t *>scratch.at, to + index * self.c.cols)
        return memoryview(out).cast("f", (self.c.rows, self.c.cols))

    def matmul(self, const float[:, ::1] x, *, add=None, pick=None, cpu=None):
        """x [n, cols] times the weights, [n, rows], plus `add` [n, rows]; `pick` chooses rows of x."""
        cdef const ck_kernels *k = kernels(cpu)
        cdef int64_t n = x.shape[0] if pick is None else len(pick), i
        if x.shape[1] != self.c.cols:
            raise ValueError(f"x has {x.shape[1]} columns and the matrix {self.c.cols}")
        cdef Memory quants = Memory(2 * x.shape[0] * x.shape[1])
        cdef Memory scales = Memory(x.shape[0] * x.shape[1])
        cdef ck_acts acts = ck_acts(<float *>&x[0, 0], <int16_t *>quants.at, <float *>scales.at, x.shape[1])
        cdef bytearray out = bytearray(n * self.c.rows * 4)
        cdef const int32_t[::1] picked = pick
        cdef const int32_t *rows = NULL
        if pick is not None:
            rows = &picked[0]
        if add is not None:
            out[:] = memoryview(add).cast("B")
        for i in range(x.shape[0] if self.quantised else 0):
            k.quantize(&x[i, 0], acts.cols, acts.q + i * acts.cols, acts.s + i * acts.cols // 16)
        k.matmul(
            &self.c, 0, self.c.groups, &acts, rows, n,
            <float *><char *>out, self.c.rows, add is not None,
        )
        return memoryview(out).cast("f", (n, self.c.rows))


def quantize(const float[::1] x, *, cpu=None):
    """int16 quants and, of each block of 32, the pair (scale, scale * sum of quants)."""
    cdef bytearray q = bytearray(2 * x.shape[0])
    cdef bytearray s = bytearray(x.shape[0] // 4)
    kernels(cpu).quantize(&x[0], x.shape[0], <int16_t *><char *>q, <float *><char *>s)
    return memoryview(q).cast("h"), memoryview(s).cast("f", (x.shape[0] // 32, 2))


def rmsnorm(const float[::1] x, const float[::1] weight, float eps, *, cpu=None):
    """x * rsqrt(mean(x^2) + eps) * weight."""
    cdef bytearray out = bytearray(x.shape[0] * 4)
    kernels(cpu).rmsnorm(&x[0], &weight[0], x.shape[0], eps, <float *><char *>out)
    return memoryview(out).cast("f")


def rope(const float[:, ::1] x, const float[:, ::1] angles, *, bint interleaved, cpu=None):
    """Heads [heads, dim] turned by angles [pairs, 2] = cos, sin."""
    cdef bytearray out = bytearray(memoryview(x).cast("B"))
    kernels(cpu).rope(
        <float *><char *>out, x.shape[0], x.shape[1], 2 * angles.shape[0], interleaved, &angles[0, 0]
    )
    return memoryview(out).cast("f", (x.shape[0], x.shape[1]))


def attend(const float[::1] q, const float[:, ::1] k, const float[:, ::1] v, int64_t n, float scale, *, cpu=None):
    """Attention of one head over the first n of k's and v's rows, whose number is a multiple of 8."""
    cdef const ck_kernels *kernel = kernels(cpu)
    cdef int64_t dim = q.shape[0], spans = (n + CK_SPAN - 1) // CK_SPAN, i, at
    if k.shape[0] % 8 or not 0 < n <= k.shape[0] or k.shape[0] != v.shape[0]:
        raise ValueError("k and v need the same multiple of 8 rows, n of which are used")
    cdef Memory parts = Memory(spans * (dim + CK_LANES) * sizeof(float))
    cdef bytearray out = bytearray(dim * 4)
    for i in range(spans):
        at = i * CK_SPAN
        kernel.attend(
            &q[0], &k[at, 0], &v[at, 0], dim, min(n - at, CK_SPAN), scale,
            <float *>parts.at + i * (dim + CK_LANES),
        )
    kernel.combine(<float *>parts.at, spans, dim, <float *><char *>out)
    return memoryview(out).cast("f")


def swiglu(const float[::1] gate, const float[::1] up, *, cpu=None):
    """silu(gate) * up."""
    cdef bytearray out = bytearray(gate.shape[0] * 4)
    kernels(cpu).swiglu(&gate[0], &up[0], gate.shape[0], <float *><char *>out)
    return memoryview(out).cast("f")


def softmax(const float[::1] x, *, cpu=None):
    """exp(x - max(x)) and its sum."""
    cdef bytearray out = bytearray(memoryview(x).cast("B"))
    cdef float top
    total = kernels(cpu).softmax(<float *><char *>out, x.shape[0], &top)
    return memoryview(out).cast("f"), total


def logsumexp(const float[::1] x, *, cpu=None):
    """log(sum(exp(x))), summed in f64."""
    return kernels(cpu).logsumexp(&x[0], x.shape[0])
