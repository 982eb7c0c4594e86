# cython: boundscheck=False, wraparound=False
"""Runs an ArchSpec: rows of any slots in, logits of the wanted rows out, without the GIL."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

from ._blocks cimport WANTED, add_embedding, add_glu, add_linear, add_norm
from ._kernels cimport Matrix
from ._memory cimport Memory
from ._mixers cimport add_gqa
from ._moe cimport add_moe
from ._pool cimport Pool
from ._program cimport Acts, Batch, Program

from .errors import EngineFailed, JobError, SpecError
from .spec import GLU, GQA, MoE, validate


cdef class State:
    """What one slot remembers of its tokens: for attention, keys and values of every position."""

    cdef Memory memory
    cdef list planes
    cdef int64_t room

    def __init__(self, Program program):
        self.memory = Memory(program.state_bytes)
        self.planes = program.planes
        self.room = (program.context + 7) // 8 * 8

    def copy_rows(self, State other, int64_t start, int64_t end):
        """Take over the positions [start, end) of another slot of the same program."""
        cdef int64_t offset, count, size, i, at
        if not 0 <= start <= end <= self.room or other.planes is not self.planes:
            raise ValueError("states of one program share positions within its context")
        for offset, count, size in self.planes:
            for i in range(count):
                at = offset + (i * self.room + start) * size
                memcpy(self.memory.at + at, other.memory.at + at, (end - start) * size)

    def blocks(self, int64_t positions):
        """The memory of the first `positions` positions: writable blocks of bytes, in the layers' order.

        They are valid as long as this object.
        """
        cdef int64_t offset, count, size, i
        if not 0 < positions <= self.room:
            raise ValueError(f"a state of {self.room} positions has no {positions}")
        return [
            memoryview(<char[: positions * size]>(self.memory.at + offset + i * self.room * size)).cast("B")
            for offset, count, size in self.planes
            for i in range(count)
        ]


cdef class Executor:
    """A network with its weights, ready to run.

    source: a checkpoint, `tensors` by name and `data(name)`. context: positions a slot can hold.
    max_rows, max_wanted: the most rows and logit rows of one step.

    Raises:
        SpecError: the description does not fit the checkpoint, or sizes the kernels cannot handle.
    """

    cdef readonly int64_t vocab, context, max_rows, max_wanted, weight_bytes, state_bytes
    cdef readonly int threads
    cdef Program program
    cdef Pool pool
    cdef float *logits
    cdef list memory
    cdef Batch batch

    def __init__(self, spec, source, *, int64_t context, int threads=1, int64_t max_rows=128, int64_t max_wanted=32):
        validate(spec, source.tensors)
        check(spec)
        self.vocab, self.context, self.threads = spec.vocab, context, threads
        self.max_rows, self.max_wanted = max_rows, max_wanted
        self.pool = Pool(threads)
        self.program = Program(source, max_rows, context, threads)
        self.memory = [Memory(max_rows * size) for size in (4, 4, 8, sizeof(char *))]
        self.batch.tokens = <int32_t *>(<Memory>self.memory[0]).at
        self.batch.want = <int32_t *>(<Memory>self.memory[1]).at
        self.batch.positions = <int64_t *>(<Memory>self.memory[2]).at
        self.batch.states = <char **>(<Memory>self.memory[3]).at
        self.memory.append(Memory(max_wanted * spec.vocab * sizeof(float)))
        self.logits = <float *>(<Memory>self.memory[4]).at
        self.build(spec)
        self.weight_bytes, self.state_bytes = self.program.weight_bytes, self.program.state_bytes
        self.program.source = None

    cdef int build(self, spec) except -1:
        cdef Program program = self.program
        cdef float *x = program.buffer("residual", spec.hidden)
        cdef Matrix head
        cdef Acts final
        add_embedding(program, spec.embedding, x)
        for layer in spec.layers:
            if isinstance(layer.mixer, GQA):
                add_gqa(program, layer.mixer, layer.norm1, x)
            if isinstance(layer.ffn, GLU):
                add_glu(program, layer.ffn, layer.norm2, x)
            elif isinstance(layer.ffn, MoE):
                add_moe(program, layer.ffn, layer.norm2, x)
        head = program.matrix(spec.head)
        final = program.acts("final", spec.hidden, head.quantised)
        add_norm(program, spec.final_norm, x, final, WANTED)
        return add_linear(program, final, [head], [<size_t>self.logits], spec.vocab, WANTED)

    def new_state(self):
        """The memory of one more slot."""
        return State(self.opened())

    def close(self):
        """Free the weights; nothing runs afterwards. Not while a step runs."""
        self.program = None
        self.pool.cancel(True)

    cdef Program opened(self):
        if self.program is None:
            raise EngineFailed("the engine is closed")
        return self.program

    def cancel(self, bint cancelled=True):
        """End the present step between two layers; steps end at once until `cancel(False)`."""
        self.pool.cancel(cancelled)

    def run(self, tokens, positions, states, wanted):
        """One step: row i is tokens[i] at positions[i] of the slot states[i].

        Every earlier position of the slot is already there or a row of this step. Returns the logits
        [vocab] of each row in `wanted`, in memory that the next step overwrites; None if the step was
        cancelled, and then it can be repeated.

        Raises:
            JobError: too many rows, a token outside the vocabulary or a position outside the context.
        """
        cdef int64_t n = len(tokens), i, token, position
        cdef State state
        cdef Program program = self.opened()
        if not 0 < n <= self.max_rows or len(wanted) > self.max_wanted:
            raise JobError(
                f"a step of {n} rows with {len(wanted)} logit rows; this engine takes up to {self.max_rows}"
                f" with {self.max_wanted}"
            )
        for i in range(n):
            token, position, state = tokens[i], positions[i], states[i]
            if not 0 <= token < self.vocab:
                raise JobError(f"token {token} is outside the vocabulary of {self.vocab}")
            if not 0 <= position < self.context:
                raise JobError(f"position {position} is outside the context of {self.context}")
            self.batch.tokens[i], self.batch.positions[i] = token, position
            self.batch.states[i] = state.memory.at
        self.batch.rows, self.batch.wanted = n, len(wanted)
        for i in range(self.batch.wanted):
            if not 0 <= wanted[i] < n:
                raise JobError(f"row {wanted[i]} is not one of the step's {n} rows")
            self.batch.want[i] = wanted[i]
        with nogil:
            self.pool.run(program.ops, program.count, &self.batch)
        if self.pool.cancelled():
            return None
        return [memoryview(<float[: self.vocab]>(self.logits + i * self.vocab)) for i in range(self.batch.wanted)]


def check(spec):
    """Refuse sizes that the vector kernels cannot handle.

    Raises:
        SpecError: a size that is not a multiple of 8.
    """
    sizes = {"hidden": spec.hidden}
    for index, layer in enumerate(spec.layers):
        if isinstance(layer.mixer, GQA):
            sizes[f"layers[{index}].mixer.head_dim"] = layer.mixer.head_dim
        if isinstance(layer.ffn, GLU):
            sizes[f"layers[{index}].ffn.width"] = layer.ffn.width
        elif isinstance(layer.ffn, MoE):
            sizes[f"layers[{index}].ffn.experts.width"] = layer.ffn.experts.width
    for name, size in sizes.items():
        if size % 8:
            raise SpecError(f"spec.{name} is {size}; the engine needs a multiple of 8")
