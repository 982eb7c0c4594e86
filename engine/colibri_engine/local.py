"""The engine in this process: one thread owns the model, asyncio talks to it through queues."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
from collections.abc import AsyncGenerator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

try:
    from ._exec import Executor
    from ._kernels import cpu_level
    from ._sample import MAX_CANDIDATES
except ImportError as error:
    raise ImportError(
        "the compiled modules of colibri_engine are missing or were built for another Python;"
        f" install the package again, with a C compiler, to build them ({error})"
    ) from error

from .api import Capabilities, Done, EngineEvent, Job, Piece
from .batch import MAX_ROWS, MAX_WANTED
from .checkpoint import Checkpoint, open_checkpoint
from .constraint import Grammars, available
from .errors import ContextLengthExceeded, EngineError, EngineFailed, JobError, SpecError
from .limits import SAMPLING_RANGES, check_context, check_job
from .persistence import SlotFiles
from .scheduler import Scheduler, Ticket
from .scoring import Scoring
from .slots import Slots
from .spec import ArchSpec, to_json
from .tokenizer import Tokenizer, load_tokenizer

__all__ = ["MAX_PINS", "MAX_SLOTS", "LocalEngine", "open_local"]

MAX_SLOTS: Final = 16
MAX_PINS: Final = 64

_QUIET_SECONDS: Final = 5.0
_CLOSED: Final = "the engine is closed"
_LOG: Final = logging.getLogger(__name__)


def open_local(
    model: str | PathLike[str] | Checkpoint,
    spec: ArchSpec,
    *,
    context: int | None = None,
    threads: int | None = None,
    slots: int = 1,
    pins: int | None = None,
    kv_folder: str | PathLike[str] | None = None,
) -> LocalEngine:
    """Load a model into this process.

    model: a checkpoint's path, or the open checkpoint, which can be closed afterwards. context:
    positions a slot holds, by default as many as the network was made for. threads: by default one
    for each CPU that this process may use. slots: conversations at a time, 1 to 16. pins: pinned prompts
    that are kept, 0 to 64, by default the number in the environment's COLI_PIN_SLOTS or 4.
    kv_folder: where slots are kept over restarts; None keeps nothing.

    Raises:
        EngineError: the checkpoint is damaged, the description does not fit it, an argument is out of
            range, or the folder cannot be used.
    """
    if not isinstance(model, Checkpoint):
        with open_checkpoint(model) as checkpoint:
            return open_local(
                checkpoint,
                spec,
                context=context,
                threads=threads,
                slots=slots,
                pins=pins,
                kv_folder=kv_folder,
            )
    check_context(context, spec)
    if not 0 < slots <= MAX_SLOTS:
        raise SpecError(f"slots is {slots}; 1 to {MAX_SLOTS} are possible")
    pins = _pins(pins)
    tokenizer = load_tokenizer(model)
    executor = Executor(
        spec,
        model,
        context=context or spec.context,
        threads=_cpus() if threads is None else threads,
        max_rows=MAX_ROWS,
        max_wanted=MAX_WANTED,
    )
    files = None
    if kv_folder is not None:
        files = SlotFiles(Path(kv_folder), [model.fingerprint(), to_json(spec), cpu_level()])
    return LocalEngine(executor, tokenizer, slots, pins, files)


def _pins(pins: int | None) -> int:
    """How many pinned prompts to keep."""
    word = os.environ.get("COLI_PIN_SLOTS", "4") if pins is None else str(pins)
    if not word.isdecimal() or int(word) > MAX_PINS:
        name = "COLI_PIN_SLOTS" if pins is None else "pins"
        raise SpecError(f"{name} is {word!r}; it must be a number from 0 to {MAX_PINS}")
    return int(word)


def _cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalEngine(Scoring):
    """An `Engine` over one `Executor`; see `open_local`. An asynchronous context manager that closes it."""

    def __init__(
        self,
        executor: Executor,
        tokenizer: Tokenizer,
        slots: int,
        pins: int = 0,
        files: SlotFiles | None = None,
    ) -> None:
        """Start the engine thread; files: where slots are kept."""
        self._executor = executor
        self._tokenizer = tokenizer
        self._grammars = Grammars(tokenizer)
        self._slots = Slots(executor.new_state, slots, pins)
        self._files = files
        self._scheduler = Scheduler(executor, tokenizer, self._slots)
        self._mail: queue.SimpleQueue[Ticket | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._closing = False
        self._capabilities = Capabilities(
            context_length=executor.context,
            slots=slots,
            pins=pins,
            max_logprobs=MAX_CANDIDATES,
            echo=True,
            token_ids=True,
            tokenize=True,
            candidates_spelled=True,
            copies_prefixes=True,
            sampling=frozenset(SAMPLING_RANGES) | {"seed", "logit_bias"},
            grammars=available(),
        )
        self._thread = threading.Thread(target=self._work, name="colibri-engine", daemon=True)
        self._thread.start()

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        return self._capabilities

    async def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        """Yield Accepted, then Progress, Echo and Piece events, then one Done.

        An end token, one of the tokenizer's or of the job's, ends the reply and is no Piece of it.
        Closing the generator cancels the job.

        Raises:
            JobError: the job asks for something out of range, or its grammar is wrong or leads nowhere;
                ContextLengthExceeded before Accepted.
            EngineFailed: the network gave a logit that is not finite, or the engine was closed.
        """
        check_job(job, self._capabilities, self._executor.vocab)
        prompt = await self._prompt(job)
        constraint = None
        if job.grammar is not None:
            constraint = await asyncio.to_thread(self._grammars.compile, *job.grammar)
        loop = asyncio.get_running_loop()
        inbox: asyncio.Queue[list[EngineEvent] | EngineError] = asyncio.Queue()

        def send(news: list[EngineEvent] | EngineError) -> None:
            try:
                loop.call_soon_threadsafe(inbox.put_nowait, news)
            except RuntimeError:  # the loop is closed, and nobody waits for the rest
                ticket.cancelled = True

        ticket = Ticket(job, prompt, send, constraint)
        self._submit(ticket)
        done, reading = False, True
        try:
            while not done:
                news = await inbox.get()
                if isinstance(news, EngineError):
                    done = True
                    raise news
                for event in news:
                    reading = reading and not isinstance(event, Piece)
                    done = isinstance(event, Done)
                    yield event
        finally:
            if not done:
                ticket.cancelled = True
                if reading:
                    self._executor.cancel()
                self._mail.put(None)

    async def tokenize(self, text: str, trusted: Sequence[tuple[int, int]] | None = None) -> list[int]:
        """The token ids of `text`; special-token spellings are recognised in spans `trusted`, see `Job`."""
        return await asyncio.to_thread(self._tokenizer.encode, text, trusted)

    async def detokenize(self, token_ids: Sequence[int]) -> bytes:
        """The bytes that these tokens stand for."""
        return self._tokenizer.decode(token_ids)

    async def stats(self) -> Mapping[str, Any]:
        """Totals since the start, present numbers of jobs, and sizes in bytes."""
        return {
            **self._scheduler.counters,
            **self._scheduler.gauges,
            "slots": self._capabilities.slots,
            "context_length": self._executor.context,
            "threads": self._executor.threads,
            "cpu_level": cpu_level(),
            "weight_bytes": self._executor.weight_bytes,
            "slot_bytes": self._executor.state_bytes,
        }

    async def close(self) -> None:
        """End all jobs and free the model; a second call does nothing."""
        with self._lock:
            self._closing = True
        self._executor.cancel()
        self._mail.put(None)
        await asyncio.to_thread(self._thread.join)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _prompt(self, job: Job) -> list[int]:
        """The prompt's tokens, checked."""
        vocab, limit = self._executor.vocab, self._executor.context
        if isinstance(job.prompt, str):
            prompt: list[int] = await asyncio.to_thread(self._tokenizer.encode, job.prompt, job.trusted)
        else:
            prompt = list(job.prompt)
        if not prompt:
            raise JobError("the prompt has no tokens; it needs at least one")
        if len(prompt) > limit:
            raise ContextLengthExceeded(len(prompt), limit)
        for token in prompt:
            if not 0 <= token < vocab:
                raise JobError(f"the prompt has the token id {token}; ids of this model are below {vocab}")
        return prompt

    def _submit(self, ticket: Ticket) -> None:
        """Hand a job to the engine thread.

        Raises:
            EngineFailed: the engine is closed.
        """
        with self._lock:
            if self._closing:
                raise EngineFailed(_CLOSED)
            self._mail.put(ticket)

    def _work(self) -> None:
        """The engine thread. The cancel flag falls before what it announces is looked at."""
        if self._files is not None:
            self._files.restore(self._slots, self._executor.context)
        while True:
            if self._scheduler.idle:
                self._rest()
            else:
                self._read_mail()
            self._executor.cancel(False)
            if self._closing:
                break
            try:
                self._scheduler.step()
            except Exception:
                _LOG.exception("a step failed; its jobs are lost")
        self._read_mail()
        self._scheduler.fail(EngineFailed(_CLOSED))
        if self._files is not None:
            self._files.save(self._slots)
            self._files.close()
        self._slots.clear()
        self._executor.close()

    def _rest(self) -> None:
        """Wait for mail; while none comes for a moment, save what the slots remember, one by one."""
        files = self._files
        if files is None or files.save(self._slots, lambda: not self._read_mail(_QUIET_SECONDS)):
            self._read_mail(None)

    def _read_mail(self, seconds: float | None = 0.0) -> bool:
        """Queue what was submitted; whether there was anything, if only a knock (None).

        seconds: how long to wait for it, None for ever.
        """
        came = False
        while True:
            try:
                ticket = self._mail.get(timeout=0.0 if came else seconds)
            except queue.Empty:
                return came
            came = True
            if ticket is not None:
                self._scheduler.submit(ticket)
