"""A network as a flat list of operations over the rows of a step, with the memory they work in.

Blocks (`_blocks`, `_mixers`, `_moe`) append operations to a `Program`; `_exec` runs it.
"""

from libc.stdint cimport int16_t, int64_t
from libc.stdlib cimport free, realloc

from ._kernels cimport Matrix, floats, kernels
from ._memory cimport Arena, Memory
from ._pool cimport ck_op


cdef enum:
    SLAB = 1 << 28


cdef class Acts:
    def __init__(self, int64_t rows, int64_t cols, bint quantised):
        cdef Memory values = Memory(rows * cols * sizeof(float))
        self.memory = [values]
        self.c.f, self.c.cols = <float *>values.at, cols
        self.quantised = quantised
        self.blocks = cols // 32
        if quantised:
            quants, scales = Memory(2 * rows * cols), Memory(rows * self.blocks * 2 * sizeof(float))
            self.memory += [quants, scales]
            self.c.q, self.c.s = <int16_t *>(<Memory>quants).at, <float *>(<Memory>scales).at


cdef class Program:
    """An empty program; `source` has the checkpoint's `tensors` by name and their `data(name)`.

    max_rows: rows of a step; context: positions of a slot; threads: of the pool that will run it.
    """

    def __init__(self, source, int64_t max_rows, int64_t context, int threads):
        self.k = kernels()
        self.source = source
        self.arena = Arena(SLAB)
        self.max_rows, self.context, self.threads = max_rows, context, threads
        self.matrices, self.buffers, self.kept, self.planes = {}, {}, [], []

    def __dealloc__(self):
        free(self.ops)

    @property
    def weight_bytes(self):
        """Bytes of memory that all matrices take."""
        return sum(matrix.nbytes for matrix in self.matrices.values())

    cdef Matrix matrix(self, str name):
        """The weights of that name; a second call gives the same object."""
        if name not in self.matrices:
            info = self.source.tensors[name]
            rows, cols = info.shape
            self.matrices[name] = Matrix(info.dtype, rows, cols, self.source.data(name), self.arena)
        return self.matrices[name]

    cdef float *vector(self, str name) except NULL:
        """A vector as f32."""
        info = self.source.tensors[name]
        cdef Memory memory = floats(info.dtype, self.source.data(name), info.shape[0])
        self.kept.append(memory)
        return <float *>memory.at

    cdef float *buffer(self, str name, int64_t cols) except NULL:
        """Working memory [max_rows, cols]; blocks that ask for the same one share it, in turn."""
        cdef Memory memory = self.buffers.get((name, cols))
        if memory is None:
            memory = self.buffers[name, cols] = Memory(self.max_rows * cols * sizeof(float))
        return <float *>memory.at

    cdef char *scratch(self, size_t size) except NULL:
        """Working memory of `size` bytes for each thread."""
        cdef Memory memory = self.buffers.get(size)
        if memory is None:
            memory = self.buffers[size] = Memory(self.threads * size)
        return memory.at

    cdef Acts acts(self, str name, int64_t cols, bint quantised):
        """Activations [max_rows, cols], shared like buffers."""
        key = name, cols, quantised
        if key not in self.buffers:
            self.buffers[key] = Acts(self.max_rows, cols, quantised)
        return self.buffers[key]

    cdef int64_t plane(self, int64_t count, int64_t token_bytes) except -1:
        """Room in a slot's state for `count` arrays [context] of `token_bytes`; its offset."""
        cdef int64_t offset = self.state_bytes
        self.planes.append((offset, count, token_bytes))
        self.state_bytes += count * ((self.context + 7) // 8 * 8) * token_bytes
        return offset

    cdef void *args(self, size_t size) except NULL:
        """Zeroed memory that lives as long as the program."""
        cdef bytearray memory = bytearray(size)
        self.kept.append(memory)
        return <char *>memory

    cdef int add(self, chunks_fn chunks, run_fn run, void *args, bint poll) except -1:
        """Append an operation; the pool asks `chunks` how many there are and calls `run` for each."""
        cdef ck_op *ops = <ck_op *>realloc(self.ops, (self.count + 1) * sizeof(ck_op))
        if ops is NULL:
            raise MemoryError
        self.ops = ops
        self.ops[self.count] = ck_op(chunks, run, args, poll)
        self.count += 1
        return 0
