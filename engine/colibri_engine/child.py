"""One run of a program that is talked to over its standard input and output."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from attrs import Factory, field, frozen

from .errors import EngineFailed

__all__ = ["Child", "Command", "kill_children"]

_LOG: Final = logging.getLogger("colibri_engine.process")
_CHUNK: Final = 1 << 14
_LONGEST: Final = 300
_TERMINATE_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 1.0


@frozen
class Command:
    """What to run.

    argv: the program and its arguments. env: added to this process's environment. greeting: the first
    bytes of its standard input. name: what messages call the program.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(factory=dict)
    greeting: bytes = b""
    name: str = field(default=Factory(lambda command: os.path.basename(command.argv[0]), takes_self=True))


_RUNNING: Final[set[Child]] = set()


def kill_children() -> None:
    """Kill every program that runs and what it has started, for a process that ends without stopping them."""
    for child in _RUNNING:
        child.signal(signal.SIGKILL)


class Child(asyncio.SubprocessProtocol):
    """A program, in a session of its own, so that a terminal's Ctrl-C does not reach it.

    read: takes what it writes. ended: called once, when it is gone and all that it wrote was read. Its
    standard error goes to the log, line by line. last_words: the last of those lines.
    """

    def __init__(self, command: Command, read: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        """A program that is still to be started."""
        self.last_words = ""
        self._command = command
        self._read = read
        self._ended = ended
        self._transport: Any = None
        self._output = -1
        self._parts = 2
        self._gone = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._line = b""

    async def start(self) -> None:
        """Run it, once.

        Raises:
            EngineFailed: there is no such program, or the system refuses to run it.
        """
        command, loop = self._command, asyncio.get_running_loop()
        self._output, writing = os.pipe()
        os.set_blocking(self._output, False)
        loop.add_reader(self._output, self._read_output)
        try:
            await loop.subprocess_exec(
                lambda: self,
                *command.argv,
                stdout=writing,
                env={**os.environ, **command.env},
                start_new_session=True,
            )
        except BaseException as error:
            self._close_output()
            if isinstance(error, OSError | ValueError):
                raise EngineFailed(f"the engine {command.argv[0]} cannot be started: {error}") from None
            raise
        finally:
            os.close(writing)
        self.write(command.greeting)

    @property
    def pid(self) -> int:
        """The program's process id."""
        pid: int = self._transport.get_pid()
        return pid

    @property
    def gone(self) -> bool:
        """Whether it has ended and its output was read to the end."""
        return self._gone.is_set()

    @property
    def status(self) -> int | None:
        """Its exit status; negative for a signal, None while it runs."""
        status: int | None = self._transport.get_returncode()
        return status

    @property
    def end(self) -> str:
        """How it ended, to follow "the engine"."""
        status = self.status
        if status is None:
            return "closed its output"
        if status >= 0:
            return f"exited with status {status}"
        names = [each.name for each in signal.Signals if each == -status]
        return f"was killed by signal {-status}" + f" ({', '.join(names)})" * bool(names)

    async def writable(self) -> None:
        """Wait until the program has read most of what was written to it."""
        await self._writable.wait()

    def write(self, data: bytes) -> None:
        """Send bytes; what a program that is gone does not read is dropped."""
        pipe = self._transport.get_pipe_transport(0)
        if not self.gone and not pipe.is_closing():
            pipe.write(data)

    def close_input(self) -> None:
        """Let it read the end of its input."""
        self._transport.get_pipe_transport(0).close()

    def signal(self, number: int) -> None:
        """Send a signal to the program and to what it has started."""
        if self.status is None:
            self._kill_group(number)

    async def stop(self, seconds: float) -> None:
        """End it: end of input, after this many seconds SIGTERM, after five more SIGKILL."""
        try:
            self.close_input()
            for patience, number in ((seconds, signal.SIGTERM), (_TERMINATE_SECONDS, signal.SIGKILL)):
                with suppress(TimeoutError):
                    async with asyncio.timeout(patience):
                        await self._gone.wait()
                        return
                self.signal(number)
        finally:
            self.signal(signal.SIGKILL)
            await self._gone.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = transport
        _RUNNING.add(self)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called by asyncio."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._log(line)
        self._line = self._line[:_LONGEST]

    def process_exited(self) -> None:
        """Called by asyncio. What it has started goes with it, or holds its output open only so long."""
        _RUNNING.discard(self)
        self._kill_group(signal.SIGKILL)
        for close in (self._transport.close, self._close_output):
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, close)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio, when it has exited and its pipes but the output are closed."""
        self._log(self._line)
        self._transport.close()
        self._part_ended()

    def _read_output(self) -> None:
        """There is output, or its end: then the program is of no use any more.

        Read here, because asyncio's pipes allocate 256 KiB for each read, and deliver it one turn later.
        """
        try:
            data = os.read(self._output, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._read(data)
        else:
            self.close_input()
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.signal, signal.SIGKILL)
            self._close_output()

    def _close_output(self) -> None:
        if self._output >= 0:
            asyncio.get_running_loop().remove_reader(self._output)
            os.close(self._output)
            self._output = -1
            self._part_ended()

    def _part_ended(self) -> None:
        """The program and its output have ends of their own; it is gone after both."""
        self._parts -= 1
        if not self._parts:
            self._writable.set()
            self._gone.set()
            self._ended()

    def _kill_group(self, number: int) -> None:
        """No other group can have its number while one of its members lives."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace").strip()[:_LONGEST]
        if text:
            self.last_words = text
            _LOG.info("%s: %s", self._command.name, text)
