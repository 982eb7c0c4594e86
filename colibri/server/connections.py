"""Below the routes: caps on connections, idle ones closed, bodies read, broken HTTP answered as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import BadStatusLine, LineTooLong
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from colibri.protocols.base import ProtocolError, WireError
from colibri.server.admission import ClientGone
from colibri.server.security import is_loopback

__all__ = ["MAX_BODY", "HttpServer", "read_body"]

MAX_BODY = 4 * 1024 * 1024
"""Bytes of the largest request body."""

_LINGER_SECONDS = 5.0
_UNREADABLE = "UNKNOWN"
"""The method by which aiohttp calls a request that it cannot read."""

_ENCODED = "The body must be sent with a Content-Length, not a Transfer-Encoding."
_SEVERAL = "The request has several Content-Length headers; send exactly one."
_INVALID = "The Content-Length header is invalid; it must be one number, of digits only."
_REASONS = {
    "Transfer-Encoding": _ENCODED,
    "chunk": _ENCODED,
    "Duplicate Content-Length": _SEVERAL,
    "Duplicate 'Content-Length'": _SEVERAL,
    "Content-Length": _INVALID,
    "'Host'": "The request needs exactly one Host header.",
    "header": "A header of the request is invalid; it must be a name, a colon and printable characters.",
}
"""What to say of a request that is not HTTP, by words in the parser's own complaint."""


class Connection(web.RequestHandler):
    """One connection of an `HttpServer`."""

    __slots__ = ("_server",)

    def __init__(self, server: HttpServer, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve the connection, or close it at once when there are too many."""
        if self._server.has_room(transport.get_extra_info("peername")):
            super().connection_made(transport)
        elif isinstance(transport, asyncio.Transport):
            transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be read as HTTP; the connection ends with it."""
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionError("there is nobody to answer, or the response has begun already")
        error = WireError(status, _reason(exc))
        if status >= 500:
            error = WireError(status, "The server failed to process the request.", "server_error")
        response = self._server.refuse(request, error)
        response.force_close()
        return response


class HttpServer(web.Server):
    """Makes and counts connections.

    `refuse` answers what does not come as far as `handler`. `max_connections` bounds all connections,
    `max_per_address` those of one address other than loopback. `idle_timeout` is how many seconds a
    connection may take to send the head of a request.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        refuse: Callable[[web.BaseRequest, WireError], web.StreamResponse],
        *,
        max_connections: int,
        max_per_address: int,
        idle_timeout: float,
    ) -> None:
        super().__init__(
            handler,
            request_factory=self._new_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=idle_timeout,
            lingering_time=_LINGER_SECONDS,
            auto_decompress=False,
        )
        self.refuse = refuse
        self._max_connections = max_connections
        self._max_per_address = max_per_address

    def __call__(self) -> web.RequestHandler:
        """A protocol for a connection that is being accepted."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def has_room(self, peer: tuple[Any, ...] | None) -> bool:
        """Whether one more connection from `peer` may be served."""
        connections = self.connections
        if len(connections) >= self._max_connections:
            return False
        if not peer or is_loopback(peer[0]):
            return True
        names = (connection.peername for connection in connections)
        same = [name for name in names if isinstance(name, tuple) and name[0] == peer[0]]
        return len(same) < self._max_per_address

    def _new_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if message.method == _UNREADABLE:
            message = message._replace(version=HttpVersion11)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=MAX_BODY)


async def read_body(request: web.BaseRequest, deadline: float) -> bytes:
    """The whole body, which has one Content-Length and arrives within `deadline` seconds.

    Raises:
        ProtocolError: its framing is not plain or its size not 1 to `MAX_BODY` bytes.
        ClientGone: it did not arrive in time; the connection is closed.
    """
    lengths = request.headers.getall("Content-Length", [])
    if "Transfer-Encoding" in request.headers:
        raise _bad(_ENCODED)
    if "Content-Encoding" in request.headers:
        raise _bad("The body must not be compressed; send it without Content-Encoding.")
    if not lengths:
        raise _bad("The request needs a body and its Content-Length header.")
    if len(lengths) > 1:
        raise _bad(_SEVERAL)
    if not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 16:
        raise _bad(_INVALID)
    if not 1 <= int(lengths[0]) <= MAX_BODY:
        raise _bad(f"The body must have 1 to {MAX_BODY} bytes, not {lengths[0]}.")
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    try:
        async with asyncio.timeout(deadline):
            return await request.content.readexactly(int(lengths[0]))
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise ClientGone from None
    except asyncio.IncompleteReadError:
        raise ClientGone from None


def _reason(error: BaseException | None) -> str:
    """What is wrong with a request that could not be read, as far as it can be told."""
    if isinstance(error, LineTooLong):
        return "A line in the head of the request is too long."
    if isinstance(error, BadStatusLine):
        return "The request does not begin with a request line of HTTP/1.1."
    complaint = str(getattr(error, "message", "")).partition("\n")[0]
    return next(
        (say for words, say in _REASONS.items() if words in complaint), "The request is not valid HTTP."
    )


def _bad(message: str) -> ProtocolError:
    return ProtocolError.bad(message, code=None)
