"""An engine in a process of its own: any program that speaks the serve line protocol, kept running."""

from __future__ import annotations

import asyncio
import itertools
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from os import PathLike, fspath
from os.path import abspath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from attrs import evolve, field, fields_dict, frozen

from .api import Accepted, Capabilities, Done, EngineEvent, Job, Piece, SamplingParams
from .child import Command
from .errors import EngineError, EngineFailed, JobError
from .limits import check_job
from .scoring import Scoring
from .session import Session
from .spec import ArchSpec, to_json

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

__all__ = ["Command", "ProcessEngine", "ProcessSettings", "foreign_command", "worker_command"]

_LOG: Final = logging.getLogger(__name__)
_CLOSED: Final = "the engine is closed"
_STEADY_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 30.0
_SAMPLING: Final = SamplingParams()
_COUNTERS: Final = ("jobs", "prompt_tokens", "cached_tokens", "generated_tokens", "restarts")


@frozen
class ProcessSettings:
    """How a program is run as an engine.

    context, slots: what it has if it does not announce them. tokenizer: loads the model's, on first use.
    load_seconds: how long it may take to become ready. drain_seconds: how long it may take, after the end
    of its input, to exit by itself.
    """

    context: int = 4096
    slots: int = 1
    tokenizer: Callable[[], Tokenizer] | None = None
    load_seconds: float = 1800.0
    drain_seconds: float = field(default=30.0)


def worker_command(
    checkpoint: str | PathLike[str],
    spec: ArchSpec,
    *,
    context: int | None = None,
    threads: int | None = None,
    slots: int = 1,
    kv_folder: str | PathLike[str] | None = None,
) -> Command:
    """Our own worker for a checkpoint; the arguments are those of `local.open_local`."""
    argv = [sys.executable, "-P", "-m", "colibri_engine.worker", abspath(checkpoint), f"--slots={slots}"]
    for name, value in (("context", context), ("threads", threads), ("kv-folder", kv_folder)):
        if value is not None:
            argv.append(f"--{name}={value}")
    return Command(argv, greeting=to_json(spec).encode() + b"\n", name="worker")


def foreign_command(
    argv: Sequence[str], *, checkpoint: str | PathLike[str] | None = None, slots: int = 1
) -> Command:
    """Any program that speaks the protocol, told by its environment what engines of version 1 read there."""
    env = {"SERVE": "1", "SERVE_BATCH": "1", "KV_SLOTS": str(slots)}
    if checkpoint is not None:
        env["SNAP"] = fspath(checkpoint)
    return Command(argv, env)


class ProcessEngine(Scoring):
    """An `Engine` that is a program; see `start`. An asynchronous context manager that closes it.

    A program that ends by itself, or writes what cannot be read, is started again: at once, and after ever
    longer pauses if it ends soon. Its jobs fail with EngineFailed, and new ones wait for it.
    """

    def __init__(self, command: Command, settings: ProcessSettings) -> None:
        """See `start`."""
        self._command = command
        self._settings = settings
        self._tokenizer = settings.tokenizer and cache(settings.tokenizer)
        self._counters = Counter(dict.fromkeys(_COUNTERS, 0))
        self._ids = itertools.count(1)
        self._changed = asyncio.Condition()
        self._pause = 0.0
        self._down: EngineError | None = None
        self._restarting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._session: Session

    @classmethod
    async def start(cls, command: Command, settings: ProcessSettings | None = None) -> Self:
        """Run the program and wait until it is ready.

        Raises:
            CheckpointError: it says that it cannot load its model.
            EngineFailed: it cannot be run, has ended, or took too long.
        """
        engine = cls(command, settings or ProcessSettings())
        await engine._begin()
        return engine

    @property
    def capabilities(self) -> Capabilities:
        """What the program announces; it tokenizes if its tokenizer is known here."""
        return evolve(self._session.capabilities, tokenize=self._tokenizer is not None)

    @property
    def pid(self) -> int:
        """The process id of the program, as it runs now."""
        return self._session.pid

    async def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.generate`; a program that is being started again is waited for.

        Raises:
            JobError: the job is out of range or beyond the capabilities; ContextLengthExceeded if the
                program says so.
            EngineFailed: the program ended or broke the protocol, or cannot be started again.
        """
        session = await self._running()
        _check(job, session)
        id = next(self._ids)
        exchange = await session.submit(id, job)
        self._counters["jobs"] += 1
        try:
            while True:
                event = await exchange.inbox.get()
                if isinstance(event, EngineError):
                    raise event
                self._count(event)
                yield event
                if isinstance(event, Done):
                    return
        finally:
            session.leave(id)

    async def tokenize(self, text: str, trusted: Sequence[tuple[int, int]] | None = None) -> list[int]:
        """See `Engine.tokenize`.

        Raises:
            JobError: this engine's tokenizer is not known here.
        """
        tokenizer = await self._loaded_tokenizer()
        return await asyncio.to_thread(tokenizer.encode, text, trusted)

    async def detokenize(self, token_ids: Sequence[int]) -> bytes:
        """See `Engine.detokenize`.

        Raises:
            JobError: this engine's tokenizer is not known here.
        """
        return (await self._loaded_tokenizer()).decode(token_ids)

    async def stats(self) -> Mapping[str, Any]:
        """Totals since the start, present numbers of jobs, and what the program announced."""
        accepted = sum(exchange.accepted for exchange in self._session.exchanges.values())
        return {
            **self._counters,
            "running": accepted,
            "waiting": len(self._session.exchanges) - accepted,
            "slots": self.capabilities.slots,
            "context_length": self.capabilities.context_length,
        }

    async def close(self) -> None:
        """End all jobs and the program; a second call does nothing."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begin(self) -> None:
        """Run the program."""
        settings = self._settings
        self._session = await Session.start(
            self._command,
            context=settings.context,
            slots=settings.slots,
            seconds=settings.load_seconds,
        )
        self._session.on_end = self._ended

    async def _running(self) -> Session:
        """The present session, after a restart if one is under way.

        Raises:
            EngineFailed: the program could not be started again, or the engine is closed.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: self._closing or self._down or self._session.over is None)
        if self._closing is not None:
            raise EngineFailed(_CLOSED)
        if self._down is not None:
            raise EngineFailed(f"the engine is down and is started again; last time: {self._down.message}")
        return self._session

    def _ended(self) -> None:
        """The program is gone, and its jobs have failed: run it again."""
        if self._closing is not None:
            return
        _LOG.warning("%s; it is started again", self._session.end)
        steady = time.monotonic() - self._session.since >= _STEADY_SECONDS
        self._pause = 0.0 if steady else _longer(self._pause)
        self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self._begin()
            except EngineError as error:
                _LOG.warning("the engine could not be started again: %s", error.message)
                self._down = error
                self._pause = _longer(self._pause)
            else:
                self._down = None
                self._counters["restarts"] += 1
            async with self._changed:
                self._changed.notify_all()
            if self._down is None:
                return

    async def _close(self) -> None:
        async with self._changed:
            self._changed.notify_all()
        if self._restarting is not None:
            self._restarting.cancel()
            with suppress(asyncio.CancelledError):
                await self._restarting
        await self._session.stop(EngineFailed(_CLOSED), self._settings.drain_seconds)

    def _count(self, event: EngineEvent) -> None:
        if isinstance(event, Piece):
            self._counters["generated_tokens"] += 1
        elif isinstance(event, Accepted):
            self._counters["prompt_tokens"] += event.prompt_tokens
            self._counters["cached_tokens"] += event.cached_tokens

    async def _loaded_tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise JobError("this engine cannot tokenize; its tokenizer is not known here")
        return await asyncio.to_thread(self._tokenizer)


def _check(job: Job, session: Session) -> None:
    """Refuse what the program cannot do.

    Raises:
        JobError: naming the field.
    """
    able = session.capabilities
    check_job(job, able, vocab=sys.maxsize)
    beyond = {
        "echo": job.echo and not (able.echo and (session.version == 2 or job.logprobs is not None)),
        "prompt (token ids)": not isinstance(job.prompt, str) and not able.token_ids,
        "stop_token_ids": bool(job.stop_token_ids) and session.version == 1,
    }
    for name in fields_dict(SamplingParams):
        changed = getattr(job.sampling, name) != getattr(_SAMPLING, name)
        beyond[f"sampling.{name}"] = changed and name not in able.sampling
    for name, refused in beyond.items():
        if refused:
            raise JobError(f"{name}: this engine cannot do that; leave it out")


def _longer(pause: float) -> float:
    return min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)
