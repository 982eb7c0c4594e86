"""The worker program: a checkpoint's engine behind the serve line protocol.

    python -m colibri_engine.worker CHECKPOINT [--spec FILE] [--context N] [--threads N] [--slots N]
                                     [--kv-folder FOLDER]

The file holds the network's description as `spec.to_json` writes it; without one it is the first line of
standard input. Jobs come on standard input and their events go to standard output, everything else to
standard error. The end of the input lets the jobs finish and then ends the program; when nobody reads the
output any more, it ends without them.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Final

from attrs import define, field

from .api import Accepted, Done, Engine, Piece
from .errors import EngineError, EngineFailed, SpecError
from .spec import from_json
from .wire import (
    Cancel,
    Malformed,
    Request,
    RequestReader,
    Stop,
    Submit,
    WireError,
    encode_capabilities,
    encode_error,
    encode_event,
    encode_failure,
    encode_load_failure,
    encode_ready,
    encode_started,
)

__all__ = ["Worker", "main", "serve"]

_LOG: Final = logging.getLogger(__name__)
_CHUNK: Final = 1 << 16
_LAST_SECONDS: Final = 5.0


@define(eq=False)
class _Turn:
    """A job under way, what it has come to, and whether it was told to stop."""

    submit: Submit
    task: asyncio.Task[None]
    accepted: Accepted = field(factory=lambda: Accepted(0))
    made: int = 0
    stopped: bool = False


class Worker:
    """Runs the jobs that come as bytes on an engine, and writes what becomes of them.

    write: takes the bytes for the server; it is called once for all that happens at a time.
    """

    def __init__(self, engine: Engine, write: Callable[[bytes], None]) -> None:
        self._engine = engine
        self._write = write
        self._reader = RequestReader()
        self._turns: dict[int, _Turn] = {}
        self._unwritten: list[bytes] = []

    def introduce(self) -> None:
        """Say that the engine is ready and what it can do."""
        self._write(encode_ready() + encode_capabilities(self._engine.capabilities) + encode_started())

    def receive(self, data: bytes) -> None:
        """Take bytes from the server.

        Raises:
            WireError: they cannot be read on.
        """
        for message in self._reader.feed(data):
            self._take(message)

    async def drain(self) -> None:
        """Wait until all jobs are over."""
        while self._turns:
            await asyncio.wait([turn.task for turn in self._turns.values()])
            await asyncio.sleep(0)
        self._flush()

    def cancel(self) -> None:
        """End all jobs."""
        for turn in self._turns.values():
            turn.task.cancel()

    def _take(self, message: Request) -> None:
        if isinstance(message, Submit):
            if message.id in self._turns:
                self._send(encode_failure(message.id, "DUPLICATE_ID"))
                return
            task = asyncio.get_running_loop().create_task(self._answer(message))
            self._turns[message.id] = _Turn(message, task)
            task.add_done_callback(partial(self._end, message.id))
        elif isinstance(message, Stop | Cancel):
            turn = self._turns.get(message.id)
            if turn is None:
                self._send(encode_failure(message.id, "NOT_FOUND"))
            else:
                turn.stopped = isinstance(message, Stop)
                turn.task.cancel()
        elif isinstance(message, Malformed):
            code = "BAD_REQUEST" if message.kind == "SUBMIT" else "BAD_FRAME"
            self._send(encode_failure(message.id, f"{code} {message.reason}"))

    async def _answer(self, submit: Submit) -> None:
        turn = self._turns[submit.id]
        async with aclosing(self._engine.generate(submit.job)) as events:
            async for event in events:
                if isinstance(event, Piece):
                    turn.made += 1
                elif isinstance(event, Accepted):
                    turn.accepted = event
                self._send(encode_event(submit.id, event, submit.version))

    def _end(self, id: int, task: asyncio.Task[None]) -> None:
        """A job's task is over; unless it came to its own end, say how it ended."""
        turn = self._turns.pop(id)
        if task.cancelled():
            used = turn.accepted
            done = Done("stop", used.prompt_tokens, turn.made, used.cached_tokens)
            last = encode_event(id, done, turn.submit.version)
            self._send(last if turn.stopped else encode_failure(id, "CANCELLED"))
            return
        error = task.exception()
        if error is None:
            return
        if not isinstance(error, EngineError):
            _LOG.error("a job failed", exc_info=error)
            error = EngineFailed(f"the engine broke: {type(error).__name__}: {error}")
        self._send(encode_error(id, error))

    def _send(self, data: bytes) -> None:
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(data)

    def _flush(self) -> None:
        data, self._unwritten = b"".join(self._unwritten), []
        if data:
            self._write(data)


async def serve(engine: Engine, source: int, sink: int) -> None:
    """Serve an engine over two descriptors until the source ends or nobody reads the sink, then close it.

    Raises:
        WireError: what comes from the source cannot be read on.
    """
    loop = asyncio.get_running_loop()
    inbox: asyncio.Queue[bytes] = asyncio.Queue()

    def write(data: bytes) -> None:
        if not _write(sink, data):
            work.cancel()

    worker = Worker(engine, write)
    work = loop.create_task(_work(worker, inbox))
    _start(_read, source, partial(_call, loop, inbox.put_nowait))
    _start(_watch, sink, partial(_call, loop, work.cancel))
    try:
        await asyncio.wait([work])
        if not work.cancelled():
            work.result()
    finally:
        work.cancel()
        worker.cancel()
        await worker.drain()
        await engine.close()


async def _work(worker: Worker, inbox: asyncio.Queue[bytes]) -> None:
    """Take what comes, and after its end let the jobs finish."""
    worker.introduce()
    while data := await inbox.get():
        worker.receive(data)
    await worker.drain()


def main(arguments: Sequence[str] | None = None) -> int:
    """Load the model and serve it; the exit status."""
    options = _parse(arguments)
    logging.basicConfig(format="%(message)s")
    sink = os.dup(1)
    os.dup2(2, 1)
    loaded = threading.Event()
    _start(_watch, sink, partial(_end, loaded))
    try:
        engine = _open(options)
    except (EngineError, OSError, MemoryError) as error:
        kind, detail = _load_failure(error)
        _write(sink, encode_load_failure(kind, detail))
        return 1
    loaded.set()
    try:
        asyncio.run(serve(engine, 0, sink))
    except WireError as error:
        _LOG.error("the input cannot be read: %s", error.message)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m colibri_engine.worker", description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    for name in ("spec", "kv-folder"):
        parser.add_argument(f"--{name}", type=Path)
    for name in ("context", "threads"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--slots", type=int, default=1)
    return parser.parse_args(arguments)


def _open(options: argparse.Namespace) -> Engine:
    """Load what the options name; only now is the compiled core imported."""
    from .local import open_local

    with open(options.spec or 0, "rb", buffering=0, closefd=options.spec is not None) as file:
        spec = from_json(file.readline().decode(errors="replace"))
    return open_local(
        options.checkpoint,
        spec,
        context=options.context,
        threads=options.threads,
        slots=options.slots,
        kv_folder=options.kv_folder,
    )


def _load_failure(error: BaseException) -> tuple[str, str]:
    """Kind and detail of a LOAD_FAIL line."""
    if isinstance(error, MemoryError):
        return "nomem", str(error) or "out of memory"
    if isinstance(error, OSError):
        return "io", f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return "unsupported" if isinstance(error, SpecError) else "format", str(error)


def _start(work: Callable[..., None], *arguments: object) -> None:
    """Run this in a thread that does not keep the program alive."""
    threading.Thread(target=work, args=arguments, daemon=True).start()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Call this in the loop; once that is closed, nobody waits for it."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments)


def _read(source: int, take: Callable[[bytes], object]) -> None:
    """Read the source; the end is an empty piece."""
    data = b"-"
    while data:
        try:
            data = os.read(source, _CHUNK)
        except OSError:
            data = b""
        take(data)


def _watch(sink: int, lost: Callable[[], object]) -> None:
    """Wait until nobody reads the sink, if that can be told: of a pipe it can, of a file it cannot."""
    poll = select.poll()
    poll.register(sink, select.POLLHUP)
    if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll()):
        lost()


def _end(loaded: threading.Event) -> None:
    """End the program, whatever it is doing; with the model loaded, it has a moment to end by itself."""
    if loaded.is_set():
        time.sleep(_LAST_SECONDS)
    os._exit(1)


def _write(sink: int, data: bytes) -> bool:
    """Write all of it; whether that was possible."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(sink, view) :]
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
