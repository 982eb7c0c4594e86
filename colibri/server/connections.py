"""Below the routes: caps on connections, idle ones closed, bodies read, broken HTTP answered as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

from colibri.protocols.base import ProtocolError, WireError
from colibri.server.admission import ClientGone
from colibri.server.refusals import wrapped
from colibri.server.responses import json_response
from colibri.server.security import is_loopback

__all__ = ["MAX_BODY", "HttpServer", "read_body"]

MAX_BODY = 4 * 1024 * 1024
"""Bytes of the largest request body."""

_LINGER_SECONDS = 5.0


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
        if request.writer.output_size > 0:
            raise ConnectionError("the response has begun already")
        error = WireError(status, "The request is not valid HTTP.")
        if status >= 500:
            error = WireError(status, "The server failed to process the request.", "server_error")
        response = json_response(wrapped(error, None), status)
        response.force_close()
        return response


class HttpServer(web.Server):
    """Makes and counts connections.

    `max_connections` bounds all of them, `max_per_address` those of one address other than loopback.
    `idle_timeout` is how many seconds a connection may take to send the head of a request.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
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
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=MAX_BODY)


async def read_body(request: web.BaseRequest, deadline: float) -> bytes:
    """The whole body, which has one Content-Length and arrives within `deadline` seconds.

    Raises:
        ProtocolError: its framing is not plain or its size not 1 to `MAX_BODY` bytes.
        ClientGone: it did not arrive in time; the connection is closed.
    """
    lengths = request.headers.getall("Content-Length", [])
    if "Transfer-Encoding" in request.headers:
        raise _bad("The body must be sent with a Content-Length, not a Transfer-Encoding.")
    if "Content-Encoding" in request.headers:
        raise _bad("The body must not be compressed; send it without Content-Encoding.")
    if len(lengths) != 1 or not (lengths[0].isascii() and lengths[0].isdigit()) or len(lengths[0]) > 16:
        raise _bad("The request needs exactly one Content-Length header, of digits only.")
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


def _bad(message: str) -> ProtocolError:
    return ProtocolError.bad(message, code=None)
