"""Continuous batching: jobs take slots as they come free and share the executor's steps."""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from attrs import define

from .api import EngineEvent, Job
from .batch import Step, plan
from .constraint import Constraint
from .errors import EngineError, EngineFailed
from .running import Running
from .slots import Slots
from .state import State
from .tokenizer import Tokenizer

__all__ = ["Runner", "Scheduler", "Ticket"]


_LOG: Final = logging.getLogger(__name__)
_TOTALS: Final = ("jobs", "prompt_tokens", "cached_tokens", "generated_tokens", "steps")


class Runner(Protocol):
    """What runs the steps; `_exec.Executor` is one."""

    @property
    def context(self) -> int:
        """Positions of a slot."""
        ...

    @property
    def vocab(self) -> int:
        """Logits of a row."""
        ...

    def new_state(self) -> State:
        """The memory of one more slot."""
        ...

    def run(
        self, tokens: Sequence[int], positions: Sequence[int], states: Sequence[State], wanted: Sequence[int]
    ) -> list[memoryview[float]] | None:
        """One step: the logits of the wanted rows, None if it was cancelled."""
        ...


@define(eq=False)
class Ticket:
    """A job and its prompt's tokens. send: takes its events, or the error that ended it.

    constraint: the job's grammar, at its beginning. cancelled: set by anybody, at any time, to end the job
    at the next step.
    """

    job: Job
    prompt: list[int]
    send: Callable[[list[EngineEvent] | EngineError], None]
    constraint: Constraint | None = None
    cancelled: bool = False


class Scheduler:
    """Belongs to one thread. counters: totals since the start, by name."""

    def __init__(self, executor: Runner, tokenizer: Tokenizer, slots: Slots) -> None:
        self.counters = dict.fromkeys(_TOTALS, 0)
        self._executor = executor
        self._tokenizer = tokenizer
        self._slots = slots
        self._waiting = deque[Ticket]()
        self._running: dict[Running, Ticket] = {}

    @property
    def idle(self) -> bool:
        """Whether `step` would do nothing."""
        return not self._waiting and not self._running

    @property
    def gauges(self) -> dict[str, int]:
        """The present numbers of jobs, and of pinned prompts and their tokens."""
        pins = self._slots.snapshots
        return {
            "running": len(self._running),
            "waiting": len(self._waiting),
            "pins": len(pins),
            "pinned_tokens": pins.tokens,
        }

    def submit(self, ticket: Ticket) -> None:
        """Queue a job whose prompt is not empty and fits the context."""
        self._waiting.append(ticket)

    def step(self) -> None:
        """Begin what can begin, run one step, send what came of it.

        Whatever breaks in it is raised, and all jobs have failed by then: none is tried again.
        """
        try:
            self._drop_cancelled()
            self._admit()
            self._run(plan(list(self._running)))
            for running in list(self._running):
                self._flush(running)
        except Exception as error:
            for slot in self._slots:
                if slot.busy:
                    slot.forget()
            self.fail(EngineFailed(f"the engine broke in a step: {type(error).__name__}: {error}"))
            raise

    def fail(self, error: EngineError) -> None:
        """End all jobs with an error."""
        tickets = [*self._waiting, *self._running.values()]
        for slot in self._slots:
            self._slots.release(slot)
        self._waiting.clear()
        self._running.clear()
        for ticket in tickets:
            ticket.send(error)

    def _drop_cancelled(self) -> None:
        for ticket in [ticket for ticket in self._waiting if ticket.cancelled]:
            self._waiting.remove(ticket)
        for running, ticket in list(self._running.items()):
            if ticket.cancelled:
                running.end("cancelled")
                self._flush(running)

    def _admit(self) -> None:
        """Give free slots to waiting jobs, in order; one whose slot is taken holds up nobody else."""
        for ticket in list(self._waiting):
            job = ticket.job
            most = max(job.echo_from - 1, 0) if job.echo else None
            try:
                slot = self._slots.acquire(ticket.prompt, job.slot, most)
            except MemoryError as error:
                self._waiting.remove(ticket)
                ticket.send(EngineFailed(f"there is no memory for one more slot: {error}"))
                continue
            if slot is None:
                continue
            seed = job.sampling.seed
            running = Running(
                job,
                ticket.prompt,
                slot,
                room=self._executor.context,
                seed=secrets.randbits(64) if seed is None else seed,
                tokenizer=self._tokenizer,
                vocab=self._executor.vocab,
                constraint=ticket.constraint,
            )
            self._waiting.remove(ticket)
            self._running[running] = ticket
            self._flush(running)
            self.counters["jobs"] += 1
            self.counters["prompt_tokens"] += len(ticket.prompt)
            self.counters["cached_tokens"] += len(slot.history)

    def _run(self, step: Step) -> None:
        if not step.tokens:
            return
        logits = self._executor.run(step.tokens, step.positions, step.states, step.wanted)
        if logits is None:
            return
        self.counters["steps"] += 1
        for running, rows, own in step.deliver(logits):
            before, reading = len(running.tokens), running.prefilling
            try:
                running.advance(rows, own)
                if reading and running.job.pin and not running.prefilling:
                    self._pin(running)
            except EngineError as error:
                if isinstance(error, EngineFailed):
                    running.slot.forget()
                self._end(running).send(error)
            self.counters["generated_tokens"] += len(running.tokens) - before

    def _pin(self, running: Running) -> None:
        try:
            self._slots.pin(running.slot)
        except MemoryError as error:
            _LOG.warning("a prompt could not be pinned: %s", error)

    def _flush(self, running: Running) -> None:
        """Send a job's events, and end it if one of them is its last."""
        ticket = self._end(running) if running.finished else self._running[running]
        if running.events:
            ticket.send(running.events)
            running.events = []

    def _end(self, running: Running) -> Ticket:
        self._slots.release(running.slot)
        return self._running.pop(running)
