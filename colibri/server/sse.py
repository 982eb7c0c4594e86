"""Server-sent events: one frame a chunk, written as it comes, with signs of life in between.

The frame format is that of the HTML standard's "event stream": fields, a line each, and an empty line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType

from aiohttp import HttpVersion11, web

from colibri.protocols.base import Chunk
from colibri.server.admission import ClientGone
from colibri.server.responses import dump

__all__ = ["EventStream"]

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


_TURN_SECONDS = 0.00025
"""How long one stream may write before others have their turn."""


class _Frames:
    """Spells chunks as frames.

    Nearly all chunks of a stream are a choice's next text and nothing else. They differ in that text
    only, so the JSON around it is made once.
    """

    def __init__(self) -> None:
        self._around: dict[tuple[int, str], tuple[bytes, bytes]] = {}

    def frame(self, chunk: Chunk) -> bytes:
        """The chunk as a `data:` frame."""
        found = _only_text(chunk)
        if found is None:
            return b"data: %b\n\n" % dump(chunk)
        index, name, text = found
        around = self._around.get((index, name))
        if around is None:
            around = self._around[index, name] = self._split(chunk, name)
        return b"%b%b%b" % (around[0], dump(text), around[1])

    def _split(self, chunk: Chunk, name: str) -> tuple[bytes, bytes]:
        """The frame of such a chunk before and after its text."""
        choice = {**chunk["choices"][0], "delta": {name: "\0"}}
        head, tail = dump({**chunk, "choices": [choice]}).split(dump("\0"))
        return b"data: " + head, tail + b"\n\n"


def _only_text(chunk: Chunk) -> tuple[int, str, str] | None:
    """Choice, key and text of a chunk that says nothing else; None for all others."""
    choices = chunk.get("choices")
    if not choices or len(choices) > 1 or len(chunk) != 5 + ("usage" in chunk) or chunk.get("usage"):
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if not delta or len(delta) > 1 or choice["logprobs"] is not None or choice["finish_reason"] is not None:
        return None
    ((name, text),) = delta.items()
    return (choice["index"], name, text) if isinstance(text, str) else None


class EventStream:
    """A streamed answer, to be used as a context manager.

    Nothing is sent before `open`. After `interval` seconds without a frame, what `alive` returns is sent.
    A client that takes nothing for `patience` seconds is disconnected. `named` frames carry the chunk's
    type as their event name.
    """

    def __init__(
        self,
        request: web.BaseRequest,
        *,
        alive: Callable[[], Chunk],
        interval: float,
        patience: float,
        named: bool = False,
    ) -> None:
        self._request = request
        self._alive = alive
        self._interval = interval
        self._patience = patience
        self._named = named
        self._clock = asyncio.get_running_loop().time
        self._last = self._turn = 0.0
        self._chunked = request.version >= HttpVersion11
        self._frames = _Frames()
        self._beat: asyncio.Task[None] | None = None
        self.response = web.StreamResponse(headers=_HEADERS)

    @property
    def opened(self) -> bool:
        """Whether the status line has been sent."""
        return self.response.prepared

    async def open(self, headers: Mapping[str, str]) -> None:
        """Send status 200 and the headers.

        Raises:
            ClientGone: the client hung up.
        """
        self.response.headers.update(headers)
        try:
            await self.response.prepare(self._request)
        except ConnectionError:
            raise ClientGone from None
        self._last = self._clock()
        self._beat = asyncio.create_task(self._keep_alive())

    async def send(self, chunks: Iterable[Chunk]) -> None:
        """Write one frame a chunk.

        Raises:
            ClientGone: the client hung up or takes nothing.
        """
        for chunk in chunks:
            frame = self._frames.frame(chunk)
            if self._named:
                frame = b"event: %b\n%b" % (str(chunk["type"]).encode(), frame)
            await self._write(frame)

    async def fail(self, error: Chunk) -> None:
        """Write an error as the last frame and end the answer."""
        with suppress(ClientGone):
            await self.send([error])
            await self.end()

    async def end(self, done: str | None = None) -> None:
        """Write the last frame, if the protocol has one, and end the answer.

        Raises:
            ClientGone: the client hung up or takes nothing.
        """
        if done is not None:
            await self._write(f"data: {done}\n\n".encode())
        self._stop()
        try:
            await self.response.write_eof()
        except ConnectionError:
            raise ClientGone from None

    async def _write(self, frame: bytes) -> None:
        protocol = self._request.protocol
        if protocol.writing_paused:
            await self._drain()
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ClientGone
        # As `response.write` would, which takes a fifth of a token's CPU time.
        transport.write(b"%x\r\n%b\r\n" % (len(frame), frame) if self._chunked else frame)
        self._last = now = self._clock()
        if now - self._turn > _TURN_SECONDS:  # an engine with ready tokens never makes us wait
            await asyncio.sleep(0)
            self._turn = self._clock()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await self._request.writer.drain()
        except (TimeoutError, ConnectionError):
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ClientGone from None

    async def _keep_alive(self) -> None:
        with suppress(ClientGone):
            while True:
                await asyncio.sleep(max(0.0, self._last + self._interval - self._clock()))
                if self._clock() >= self._last + self._interval:
                    await self.send([self._alive()])

    def _stop(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
