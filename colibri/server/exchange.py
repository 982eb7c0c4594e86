"""One request and its answer: ids, headers that every answer carries, and what the access log tells."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from aiohttp import web
from attrs import Factory, define, field

from colibri.protocols.base import WireError
from colibri_engine.errors import EngineError

__all__ = ["ACCESS_LOG", "Exchange"]

ACCESS_LOG = logging.getLogger("colibri.access")
"""One JSON object a request; no prompts, bodies, query strings or addresses of files."""

_LOG = logging.getLogger("colibri.server")

_LARGE = 16 * 1024
"""Bytes of a body whose reading and rendering may take more than a few milliseconds."""

_T = TypeVar("_T")


def _new_id() -> str:
    return f"req_{uuid4().hex}"


@define
class Exchange:
    """What is known of one request while it is answered.

    headers: those of every answer to it. route: the pattern that its path matched, "-" for none. code:
    that of the error it was answered with. size: bytes of its body. facts: further numbers for the access
    log.
    """

    request: web.BaseRequest
    headers: dict[str, str] = Factory(dict)
    id: str = field(factory=_new_id)
    route: str = "-"
    code: str | None = None
    size: int = 0
    began: float = field(factory=time.monotonic)
    facts: dict[str, int | float | str] = Factory(dict)

    def __attrs_post_init__(self) -> None:
        self.headers["Server"] = "colibri"
        self.headers["x-request-id"] = self.headers["x-typesafe-request-id"] = self.id

    async def work(self, function: Callable[[], _T], *, large: bool = False) -> _T:
        """What `function` returns; it runs in a thread where it could hold up other requests.

        That is where the body is large, or `large` says so.

        Raises:
            Exception: what `function` raises.
        """
        if large or self.size >= _LARGE:
            return await asyncio.to_thread(function)
        return function()

    def waited(self, seconds: float) -> None:
        """Tell how long the request waited for its slot."""
        milliseconds = round(1000 * seconds)
        self.headers["x-colibri-queue-wait-ms"] = str(milliseconds)
        self.facts["queue_wait_ms"] = milliseconds

    def failed(self, wire: WireError, error: Exception) -> None:
        """Remember what the client is told, and log what is the server's own fault.

        What an engine says of itself is one line; anything else is a bug, and its traceback is needed.
        """
        self.code = wire.code
        if wire.code != "engine_error":
            return
        cause = error.__cause__ or error
        if isinstance(cause, EngineError):
            _LOG.error("request %s failed: %s", self.id, cause.message)
        else:
            _LOG.error("request %s failed", self.id, exc_info=error)

    def log(self, status: int) -> None:
        """Write the line of the access log."""
        line: dict[str, object] = {
            "time": round(time.time(), 3),
            "id": self.id,
            "client": self.request.remote,
            "method": self.request.method,
            "route": self.route,
            "status": status,
            "milliseconds": round(1000 * (time.monotonic() - self.began), 1),
            **self.facts,
        }
        if self.code is not None:
            line["code"] = self.code
        ACCESS_LOG.info("%s", json.dumps(line))
