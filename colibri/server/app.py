"""The server as one object: checks in their order, routes, errors in the API's shape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from aiohttp import web
from attrs import evolve, frozen

from colibri.protocols.base import WireError, WireProtocol
from colibri.protocols.json_body import decode_body
from colibri.server import refusals
from colibri.server.admission import ClientGone, Ticket
from colibri.server.connections import HttpServer, read_body
from colibri.server.exchange import Exchange
from colibri.server.metrics import LoopWatch, MeasuredEngine, Metrics
from colibri.server.responses import json_response
from colibri.server.scheduler import Affinity, Scheduler
from colibri.server.security import Cors, Hosts, Keys
from colibri.server.served import Served
from colibri.server.settings import Settings

__all__ = ["App", "Body", "Handler", "Route"]

Body: TypeAlias = dict[str, Any]
Handler: TypeAlias = "Callable[[App, Exchange, Body], Awaitable[web.StreamResponse]]"
"""Answers one request; the body is empty for GET."""

_LOG = logging.getLogger("colibri.server")
_CLIENT_GONE = 499
_SHUTDOWN_SECONDS = 1.0


@frozen
class Route:
    """One endpoint: `path` may end in `{name}`, which stands for everything that follows.

    public: answered without a key. early: answered while the model loads. protocol: whose requests and
    errors it speaks.
    """

    method: str
    path: str
    handler: Handler
    public: bool = False
    early: bool = False
    protocol: WireProtocol | None = None

    def matches(self, method: str, path: str) -> bool:
        """Whether this route answers such a request."""
        head, brace, _ = self.path.partition("{")
        if method != self.method:
            return False
        return path == head if not brace else path.startswith(head) and path != head


class App:
    """Everything one server knows; `handle` answers any request.

    `keepalive` is the silence in seconds after which a stream sends a sign of life.
    """

    def __init__(self, settings: Settings, routes: tuple[Route, ...], keepalive: float = 10.0) -> None:
        self.settings = settings
        self.keepalive = keepalive
        self.routes = routes
        self.keys = Keys.load(settings)
        self.hosts = Hosts.load(settings)
        self.cors = Cors.load(settings)
        self.affinity = Affinity(settings.kv_slots)
        self.http = HttpServer(
            self.handle,
            self.refuse,
            max_connections=settings.max_connections,
            max_per_address=settings.max_connections_per_address,
            idle_timeout=settings.read_deadline,
        )
        self.metrics = Metrics(lambda: self.scheduler.counters(), lambda: len(self.http.connections))
        self.scheduler = Scheduler(
            settings.kv_slots,
            settings.max_queue,
            settings.queue_timeout,
            waited=self.metrics.queue_wait.observe,
            held=self.metrics.slot_duration.observe,
        )
        self.watch = LoopWatch(self.metrics.loop_block)
        self._served: Served | None = None

    def serve(self, served: Served) -> None:
        """The model is loaded: answer for it from now on."""
        self.affinity = Affinity(self.settings.kv_slots, copies=served.engine.capabilities.copies_prefixes)
        self._served = evolve(served, engine=MeasuredEngine(served.engine, self.metrics))

    @property
    def loaded(self) -> bool:
        """Whether the model is there."""
        return self._served is not None

    @property
    def served(self) -> Served:
        """The loaded model.

        Raises:
            ProtocolError: it is still loading.
        """
        if self._served is None:
            raise refusals.loading()
        return self._served

    @asynccontextmanager
    async def slot(
        self, wanted: int | None, key: str | None, prompt: str | Sequence[int]
    ) -> AsyncGenerator[Ticket, None]:
        """Hold a slot for the conversation called `key`, preferably the one that has its prefix.

        Raises:
            QueueFull, QueueTimeout, SchedulerClosed: there is none to be had.
        """
        async with self.scheduler.slot(wanted, self.affinity.choose(key, prompt)) as ticket:
            self.affinity.remember(ticket.slot, key, prompt)
            yield ticket

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, whatever it is, and write its line of the access log."""
        exchange = Exchange(request, self.cors.headers(request.headers.get("Origin")))
        status = _CLIENT_GONE
        try:
            with self.watch.watching():
                response = await self._answer(exchange)
            status = response.status
            return response
        finally:
            self.metrics.answered(exchange.route, status)
            if self.settings.access_log:
                exchange.log(status)

    def refuse(self, request: web.BaseRequest, error: WireError) -> web.Response:
        """Answer what could not be read as a request, and write its line of the access log."""
        exchange = Exchange(request)
        self.metrics.answered(exchange.route, error.status)
        if self.settings.access_log:
            exchange.log(error.status)
        return json_response(refusals.wrapped(error, None), error.status, exchange.headers)

    async def _answer(self, exchange: Exchange) -> web.StreamResponse:
        method, path = exchange.request.method, exchange.request.path
        route = next((route for route in self.routes if route.matches(method, path)), None)
        protocol = None
        if route is not None:
            exchange.route, protocol = route.path, route.protocol
        try:
            response = await self._checked(exchange, route)
        except ClientGone:
            raise
        except Exception as error:
            wire = refusals.explained(error, protocol)
            exchange.failed(wire, error)
            response = json_response(refusals.wrapped(wire, protocol), wire.status, wire.headers)
        if not response.prepared:
            response.headers.update(exchange.headers)
        return response

    async def _checked(self, exchange: Exchange, route: Route | None) -> web.StreamResponse:
        """Host, key, body, model, route: the first that fails answers."""
        request = exchange.request
        host_allowed = self.hosts.admit(request.headers.get("Host", ""))
        if request.method == "OPTIONS":
            return web.Response(status=204 if host_allowed else 403)
        if not host_allowed:
            raise refusals.forbidden_host(request.headers["Host"])
        if not (route is not None and route.public) and not self.keys.admit(request.headers):
            raise refusals.wrong_key()
        body: Body = {}
        if request.method == "POST":
            raw = await read_body(request, self.settings.read_deadline)
            exchange.size = len(raw)
            body = await exchange.work(partial(decode_body, raw))
            del raw
            self._check_model(body)
        if route is None:
            raise refusals.no_route(request.method, request.path)
        if not route.early and not self.loaded:
            raise refusals.loading()
        return await route.handler(self, exchange, body)

    def _check_model(self, body: Mapping[str, Any]) -> None:
        """A body that names a model must name the served one."""
        served = self.served.id
        if body.get("model") not in (None, served):
            raise refusals.unknown_model(body["model"], served)

    async def shutdown(self, limit: float) -> None:
        """Admit nobody, give who is being served `limit` seconds, tell the others, end every connection."""
        self.scheduler.close()
        self.http.pre_shutdown()
        try:
            async with asyncio.timeout(limit):
                await self.scheduler.idle()
        except TimeoutError:
            _LOG.warning("requests that still run after %g seconds are cancelled", limit)
            self.scheduler.evict()
        await self.http.shutdown(_SHUTDOWN_SECONDS)
