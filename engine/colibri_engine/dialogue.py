"""A talk with a program under test: what it was asked, what it said, and how long that may take."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

from attrs import define, field

from .api import Capabilities, Done, EngineEvent, Job, Piece
from .child import Child, Command
from .replies import capabilities_of
from .wire import (
    Caps,
    Event,
    Failure,
    LoadFailure,
    Malformed,
    Other,
    Ready,
    Reply,
    ReplyReader,
    Started,
    Submit,
    WireError,
    encode_submit,
)

__all__ = ["Dialogue", "Fault", "Transcript"]

_CONTEXT: Final = 4096


class Fault(Exception):
    """What a program does wrong, as one sentence."""


@define
class Transcript:
    """All that was said about a job."""

    events: list[EngineEvent] = field(factory=list)
    failure: Failure | None = None
    malformed: Malformed | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        ended = bool(self.events) and isinstance(self.events[-1], Done)
        return ended or self.failure is not None or self.malformed is not None

    @property
    def done(self) -> Done:
        """The last event.

        Raises:
            Fault: the job failed.
        """
        if self.failure is not None:
            raise Fault(f"a job was answered with ERROR {self.failure.code}: {self.failure.error.message}")
        assert isinstance(self.events[-1], Done)
        return self.events[-1]

    @property
    def data(self) -> bytes:
        """The reply's bytes.

        Raises:
            Fault: the job failed.
        """
        assert self.done
        return b"".join(event.data for event in self.events if isinstance(event, Piece))


class Dialogue:
    """One run of the program.

    seconds: how long each thing that it is asked for may take. words: of its CAPS lines; able: what they
    mean. others: the kinds of lines it wrote that no server needs.
    """

    def __init__(self, command: Command, *, seconds: float, slots: int) -> None:
        """See `start`."""
        self.words: dict[str, str] = {}
        self.able = Capabilities(_CONTEXT, slots)
        self.others: list[str] = []
        self._seconds = seconds
        self._child = Child(command, self._read, self._wake)
        self._reader = ReplyReader()
        self._ids = itertools.count(1)
        self._about: dict[int, Transcript] = {}
        self._ready = self._started = False
        self._broken: str | None = None
        self._load_failure: LoadFailure | None = None
        self._news = asyncio.Event()

    async def start(self, seconds: float) -> None:
        """Run the program and wait until it has introduced itself.

        Raises:
            Fault: it does not, or not within so many seconds, or what it announces makes no sense.
            EngineFailed: it cannot be run.
        """
        await self._child.start()
        try:
            await self.until("READY, CAPS and STAT", lambda: self._started, seconds)
            self.able = capabilities_of(self.words, context=_CONTEXT, slots=self.able.slots)
        except ValueError as error:
            await self.close()
            raise Fault(f"CAPS: {error}") from None
        except BaseException:
            await self.close()
            raise

    @property
    def version(self) -> int:
        """The protocol's version that it announces."""
        return 2 if self.words.get("proto") == "2" else 1

    @property
    def over(self) -> bool:
        """Whether the program is gone."""
        return self._child.gone

    @property
    def status(self) -> int | None:
        """The program's exit status; negative for a signal, None while it runs."""
        return self._child.status

    def new_id(self) -> int:
        """An id that no job has had."""
        return next(self._ids)

    def about(self, id: int) -> Transcript:
        """What was said about a job so far."""
        return self._about.setdefault(id, Transcript())

    def send(self, data: bytes) -> None:
        """Write to the program."""
        self._child.write(data)

    def end_input(self) -> None:
        """Let the program read the end of its input."""
        self._child.close_input()

    def submit(self, job: Job, version: int | None = None) -> int:
        """Give the program a job, in the highest version that it speaks if none is said."""
        id = self.new_id()
        self.send(encode_submit(Submit(id, job, version or self.version)))
        return id

    async def ended(self, id: int) -> Transcript:
        """What was said about a job, when nothing more is to be expected.

        Raises:
            Fault: it does not end, or a line about it makes no sense.
        """
        reply = self.about(id)
        await self.until("the end of a job, DONE or ERROR,", lambda: reply.over)
        if reply.malformed is not None:
            raise Fault(f"a {reply.malformed.kind} line makes no sense: {reply.malformed.reason}")
        return reply

    async def ask(self, job: Job, version: int | None = None) -> Transcript:
        """Give the program a job and wait for its end; see `ended`."""
        return await self.ended(self.submit(job, version))

    async def until(self, what: str, there: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait for something.

        Raises:
            Fault: it did not come in time, or will not come any more.
        """
        seconds = self._seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                while not there():
                    self._check(what)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise Fault(f"{what} did not come within {seconds:g} seconds") from None

    async def close(self) -> None:
        """End the program."""
        await self._child.stop(0)

    def _check(self, what: str) -> None:
        if self._broken is not None:
            raise Fault(f"its output cannot be read: {self._broken}")
        if not self.over:
            return
        if self._load_failure is not None:
            kind, detail = self._load_failure.kind, self._load_failure.detail
            raise Fault(f"it says that it cannot load its model, kind={kind}: {detail}")
        words = f"; its last words were: {self._child.last_words}" * bool(self._child.last_words)
        raise Fault(f"it {self._child.end}, and {what} did not come{words}")

    def _read(self, data: bytes) -> None:
        try:
            for message in self._reader.feed(data):
                self._take(message)
        except WireError as error:
            self._broken = self._broken or error.message
        self._wake()

    def _take(self, message: Reply) -> None:
        if isinstance(message, Event):
            self.about(message.id).events.append(message.event)
        elif isinstance(message, Failure):
            self.about(message.id).failure = message
        elif isinstance(message, Malformed):
            self.about(message.id).malformed = message
        elif isinstance(message, Ready):
            self._ready = True
        elif isinstance(message, Caps):
            self.words |= message.words
        elif isinstance(message, Started):
            self._started = True
        elif isinstance(message, LoadFailure):
            self._load_failure = message
        elif isinstance(message, Other) and self._ready:
            self.others.append(message.kind)

    def _wake(self) -> None:
        self._news.set()
