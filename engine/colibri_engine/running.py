"""A job on its way through the engine: which rows it needs next, and what their logits become."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from ._sample import Sampler, read_out
from .api import Accepted, Candidate, Done, Echo, EngineEvent, Job, Piece, Progress
from .constraint import Constraint
from .slots import Slot
from .tokenizer import Tokenizer

__all__ = ["Running"]


class Running:
    """One job in its slot.

    tokens: prompt and reply so far; those beyond the slot's history are still to be run. events: what
    happened since somebody last took them.
    """

    def __init__(
        self,
        job: Job,
        prompt: list[int],
        slot: Slot,
        *,
        room: int,
        seed: int,
        tokenizer: Tokenizer,
        vocab: int,
        constraint: Constraint | None = None,
    ) -> None:
        """Start a job whose prompt's beginning is the slot's history; room: positions in the context."""
        self.job = job
        self.slot = slot
        self.tokens = list(prompt)
        self.finished = False
        self._prompt = len(prompt)
        self._cached = len(slot.history)
        self._budget = min(job.max_tokens, room - len(prompt))
        self._ends = tokenizer.eos | set(job.stop_token_ids)
        self._tokenizer = tokenizer
        self._constraint = constraint
        self._sampler = Sampler(job.sampling, seed, prompt, vocab)
        self._began = self._decoding_since = time.monotonic()
        self.events: list[EngineEvent] = [Accepted(self._prompt, self._cached)]
        if job.echo and job.echo_from == 0:
            self._echo(0, None, ())

    @property
    def pending(self) -> int:
        """Rows that are to be run before the next token can be chosen."""
        return len(self.tokens) - len(self.slot.history)

    @property
    def prefilling(self) -> bool:
        """Whether the prompt is still being read."""
        return len(self.slot.history) < self._prompt

    def wants(self, row: int) -> bool:
        """Whether the logits of the pending row number `row` are needed: those of the position after it."""
        echoed = self.job.echo and len(self.slot.history) + row + 1 >= self.job.echo_from
        return echoed or row == self.pending - 1

    def advance(self, rows: int, logits: Sequence[memoryview[float]]) -> None:
        """The next `rows` pending rows were run; logits: of those that were wanted, in order.

        Raises:
            EngineFailed: a logit is not finite.
            JobError: the job's grammar leads nowhere.
        """
        start = len(self.slot.history)
        reading = self.prefilling
        wanted = [row for row in range(rows) if self.wants(row)]
        self.slot.history += self.tokens[start : start + rows]
        if reading:
            self.events.append(Progress(len(self.slot.history), self._prompt))
        for row, values in zip(wanted, logits, strict=True):
            position = start + row + 1
            if position < len(self.tokens):
                self._echo(position, *self._read(values, self.tokens[position]))
            else:
                self._next(values, position)

    def end(self, reason: Literal["stop", "length", "cancelled"]) -> None:
        """The last event."""
        now = time.monotonic()
        self.finished = True
        self.events.append(
            Done(
                reason,
                prompt_tokens=self._prompt,
                completion_tokens=len(self.tokens) - self._prompt,
                cached_tokens=self._cached,
                prefill_seconds=(now if self.prefilling else self._decoding_since) - self._began,
                decode_seconds=0.0 if self.prefilling else now - self._decoding_since,
            )
        )

    def _next(self, logits: memoryview[float], position: int) -> None:
        """Choose the token at `position` and emit it, or end."""
        if position == self._prompt:
            self._decoding_since = time.monotonic()
        grammar = self._constraint
        if position - self._prompt >= self._budget:
            return self.end("length")
        if grammar is not None and grammar.finished:
            return self.end("stop")
        mask = None if grammar is None else grammar.mask(self._ends)
        token = self._sampler.choose(logits, position, mask)
        if token in self._ends:
            return self.end("stop")
        self._sampler.accept(token)
        if grammar is not None:
            grammar.accept(token)
        self.tokens.append(token)
        data, control = self._tokenizer.token_bytes(token), self._tokenizer.is_control(token)
        logprob, top = self._read(logits, token)
        self.events.append(Piece(data, token, control, logprob, top))
        if grammar is not None and grammar.finished:
            return self.end("stop")
        if len(self.tokens) - self._prompt >= self._budget:
            return self.end("length")
        return None

    def _read(self, logits: memoryview[float], token: int) -> tuple[float | None, tuple[Candidate, ...]]:
        if self.job.logprobs is None:
            return None, ()
        logprob, top = read_out(logits, token, self.job.logprobs)
        spell: Callable[[int], bytes] = self._tokenizer.token_bytes
        return logprob, tuple(Candidate(other, value, spell(other)) for other, value in top)

    def _echo(self, position: int, logprob: float | None, top: tuple[Candidate, ...]) -> None:
        token = self.tokens[position]
        self.events.append(Echo(position, self._tokenizer.token_bytes(token), token, logprob, top))
