"""One run of an engine's program: its introduction, the jobs it has, and its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from typing import Final, Self

from attrs import define, evolve, field

from .api import Accepted, Capabilities, Done, Echo, EngineEvent, Job, Piece
from .child import Child, Command
from .errors import EngineError, EngineFailed
from .replies import capabilities_of
from .wire import (
    Caps,
    Event,
    Failure,
    LoadFailure,
    Malformed,
    Reply,
    ReplyReader,
    Started,
    Submit,
    WireError,
    encode_cancel,
    encode_stop,
    encode_submit,
)

__all__ = ["Exchange", "Session"]

_LOG: Final = logging.getLogger("colibri_engine.process")
_LAST: Final = ("DONE", "ERROR")


@define(eq=False)
class Exchange:
    """A job that the program has, and what it has said about it so far.

    left: whether nobody reads the inbox any more. release: gives the job's slot back. failure: what the
    program did wrong with the job; it is told when the program is through with it. told: whether the
    program tells control tokens from text, by its words or by a channel for tool calls.
    """

    job: Job
    release: Callable[[], None]
    inbox: asyncio.Queue[EngineEvent | EngineError] = field(factory=asyncio.Queue)
    accepted: bool = False
    left: bool = False
    failure: EngineError | None = None
    told: bool = False

    def take(self, event: EngineEvent) -> None:
        """Pass an event on; a program that says nothing of accepting a job accepts it with its first event.

        Raises:
            EngineFailed: it was accepted already.
        """
        first, self.accepted = not self.accepted, True
        if isinstance(event, Accepted):
            if not first:
                raise EngineFailed("the engine accepted the request twice")
        elif first:
            self.inbox.put_nowait(Accepted(event.prompt_tokens if isinstance(event, Done) else 0))
        if isinstance(event, Echo) and (not self.job.echo or event.position < self.job.echo_from):
            return
        if isinstance(event, Piece):
            self.told = self.told or event.control is not None
            if event.control is None and self.told:
                event = evolve(event, control=False)
            if not event.data and event.token_id is None:
                return  # it only declares the channel
        self.inbox.put_nowait(event)


class Session:
    """The program from its start to its end.

    over: why it takes no more jobs, None while it does. version: of the protocol, 1 or 2. since: when it
    became ready, by the monotonic clock. on_end: called when a program that became ready is gone.
    """

    def __init__(self, command: Command, context: int, slots: int) -> None:
        """See `start`."""
        self.on_end: Callable[[], None] = _nothing
        self.over: EngineError | None = None
        self.version = 1
        self.capabilities = Capabilities(context, slots)
        self.exchanges: dict[int, Exchange] = {}
        self.since = time.monotonic()
        self._reader = ReplyReader()
        self._words: dict[str, str] = {}
        self._introduced = asyncio.Event()
        self._load_failure: LoadFailure | None = None
        self._slots: list[asyncio.Lock] = []
        self._child = Child(command, self._read, self._end)

    @classmethod
    async def start(cls, command: Command, *, context: int, slots: int, seconds: float) -> Self:
        """Run the program and wait until it is ready; on an error it is gone.

        context, slots: what it has if it does not say. seconds: how long that may take.

        Raises:
            EngineError: it has not become ready, or said that it cannot load its model.
        """
        session = cls(command, context, slots)
        await session._child.start()
        try:
            async with asyncio.timeout(seconds):
                await session._introduced.wait()
            if session.over is not None:
                raise session.over
        except BaseException as error:
            await session._child.stop(0)
            if isinstance(error, TimeoutError):
                raise EngineFailed(
                    f"the engine {command.name} was not ready within {seconds:g} seconds"
                ) from None
            raise
        session.since = time.monotonic()
        return session

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._child.pid

    @property
    def end(self) -> str:
        """Why it is over, if it was ready."""
        return self.over.message if isinstance(self.over, WireError) else f"the engine {self._child.end}"

    async def submit(self, id: int, job: Job) -> Exchange:
        """Give a job to the program.

        Raises:
            JobError: it cannot be said in the protocol.
            EngineFailed: the run is over.
        """
        await self._child.writable()
        release = _nothing
        if self.version == 1:
            slot = self._least_busy() if job.slot is None else job.slot
            await self._slots[slot].acquire()
            job, release = evolve(job, slot=slot), self._slots[slot].release
        try:
            if self.over is not None:
                raise EngineFailed(self.over.message)
            data = encode_submit(Submit(id, job, self.version))
        except BaseException:
            release()
            raise
        exchange = self.exchanges[id] = Exchange(job, release)
        self._child.write(data)
        return exchange

    def leave(self, id: int) -> None:
        """Nobody reads this job's events any more: cancel it if it is not over."""
        exchange = self.exchanges.get(id)
        if exchange is not None and not exchange.left:
            exchange.left = True
            self._child.write(encode_cancel(id))

    async def stop(self, error: EngineError, seconds: float) -> None:
        """Fail all jobs and end the program, which gets this many seconds after the end of its input."""
        self.over = self.over or error
        for id, exchange in self.exchanges.items():
            if not exchange.left:
                exchange.inbox.put_nowait(EngineFailed(error.message))
            self.leave(id)
        await self._child.stop(seconds)

    def _least_busy(self) -> int:
        return min(range(len(self._slots)), key=lambda slot: self._slots[slot].locked())

    def _read(self, data: bytes) -> None:
        """Take what the program writes; one that cannot be understood is killed."""
        if isinstance(self.over, WireError):
            return
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except WireError as error:
            self.over = self.over or WireError(f"the engine's output cannot be read: {error.message}")
            self._child.signal(signal.SIGKILL)

    def _take(self, message: Reply) -> None:
        if isinstance(message, Event):
            exchange = self.exchanges.get(message.id)
            if exchange is not None:
                self._take_event(message.id, exchange, message.event)
        elif isinstance(message, Failure):
            self._finish(message.id, message.error)
        elif isinstance(message, Malformed):
            reason = f"the engine sent a senseless {message.kind} line: {message.reason}"
            self._fail(message.id, message.failure(reason))
            if message.kind in _LAST:
                self._finish(message.id)
        elif isinstance(message, Caps):
            self._words |= message.words
        elif isinstance(message, LoadFailure):
            self._load_failure = message
        elif isinstance(message, Started) and not self._introduced.is_set():
            self._introduce()

    def _introduce(self) -> None:
        """The program is ready: read what it has announced."""
        able = self.capabilities
        try:
            able = capabilities_of(self._words, context=able.context_length, slots=able.slots)
        except ValueError as error:
            raise WireError(f"CAPS: {error}") from None
        self.capabilities = able
        self.version = 2 if self._words.get("proto") == "2" else 1
        self._slots = [asyncio.Lock() for _ in range(able.slots)]
        self._introduced.set()

    def _take_event(self, id: int, exchange: Exchange, event: EngineEvent) -> None:
        if not exchange.left and exchange.failure is None:
            try:
                exchange.take(event)
            except EngineFailed as error:
                self._fail(id, error)
        if isinstance(event, Done):
            self._finish(id)

    def _fail(self, id: int, failure: EngineError) -> None:
        """The program did something wrong with a job, and is asked to end it."""
        exchange = self.exchanges.get(id)
        if exchange is not None and not exchange.left and exchange.failure is None:
            exchange.failure = failure
            self._child.write(encode_stop(id))

    def _finish(self, id: int, error: EngineError | None = None) -> None:
        """The program is through with a job."""
        exchange = self.exchanges.pop(id, None)
        if exchange is not None:
            exchange.release()
            error = exchange.failure or error
            if error is not None and not exchange.left:
                exchange.inbox.put_nowait(error)

    def _end(self) -> None:
        """The program is gone."""
        end = f"the engine {self._child.end}"
        if self._introduced.is_set():
            self.over = self.over or EngineFailed(f"{end} before the request was done; send it again")
        elif self._load_failure is not None:
            self.over = self._load_failure.error
        else:
            words = f"; its last words were: {self._child.last_words}" * bool(self._child.last_words)
            self.over = self.over or EngineFailed(f"{end} before it was ready{words}")
        for id in list(self.exchanges):
            self._finish(id, EngineFailed(self.over.message))
        if self._introduced.is_set():
            self.on_end()
        self._introduced.set()


def _nothing() -> None:
    """Nothing to release, or nobody to tell."""
