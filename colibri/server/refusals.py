"""What the server itself refuses, as errors that clients are told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colibri.protocols.base import ProtocolError, Request, WireError, WireProtocol
from colibri.protocols.openai_errors import envelope, explain
from colibri.server.admission import QueueFull, QueueTimeout, SchedulerClosed
from colibri.server.scheduler import Evicted

__all__ = [
    "explained",
    "forbidden_host",
    "loading",
    "malformed_call",
    "no_model",
    "no_route",
    "unknown_model",
    "wrapped",
    "wrong_key",
]

_RETRY = {"Retry-After": "1"}
_REFUSALS: Mapping[type[Exception], WireError] = {
    QueueFull: WireError(
        429,
        "The server is busy and its waiting queue is full; try again shortly.",
        "rate_limit_error",
        code="queue_full",
        headers=_RETRY,
    ),
    QueueTimeout: WireError(
        429,
        "The request waited too long for a free slot; try again shortly.",
        "rate_limit_error",
        code="queue_timeout",
        headers=_RETRY,
    ),
    Evicted: WireError(
        503,
        "The server was shut down before the reply was done; send the request again.",
        "server_error",
        code="scheduler_closed",
        headers=_RETRY,
    ),
    SchedulerClosed: WireError(
        503,
        "The server is shutting down and takes no more requests.",
        "server_error",
        code="scheduler_closed",
        headers=_RETRY,
    ),
}


def explained(
    error: BaseException, protocol: WireProtocol | None, request: Request | None = None, choice: int = 0
) -> WireError:
    """Any exception as what the client is told, in the words of its protocol."""
    for kind, wire in _REFUSALS.items():
        if isinstance(error, kind):
            return wire
    return (protocol.error if protocol is not None else explain)(error, request, choice)


def wrapped(error: WireError, protocol: WireProtocol | None) -> dict[str, Any]:
    """The error in the envelope of its protocol, OpenAI's where there is none."""
    return (protocol.envelope if protocol is not None else envelope)(error)


def forbidden_host(host: str) -> ProtocolError:
    """The Host header names a host that is not trusted."""
    message = f"Host {host[:200]!r} is not allowed; start the server with --allowed-host to trust it."
    return ProtocolError(WireError(403, message, code="forbidden"))


def wrong_key() -> ProtocolError:
    """A key is needed and none of them came."""
    return ProtocolError(
        WireError(401, "Invalid or missing API key.", "authentication_error", code="invalid_api_key")
    )


def unknown_model(named: object, served: str) -> ProtocolError:
    """The body names another model than the served one."""
    return ProtocolError(WireError(404, _other_model(named, served), param="model", code="model_not_found"))


def no_model(named: str, served: str) -> ProtocolError:
    """The path names another model than the served one."""
    return ProtocolError(WireError(404, _other_model(named, served), code="not_found"))


def no_route(method: str, path: str) -> ProtocolError:
    """Nothing answers this path."""
    return ProtocolError(WireError(404, f"There is no {method} {path[:200]}.", code="not_found"))


def malformed_call(fault: str) -> ProtocolError:
    """The model's calls are not in the form that a strict request wants; `fault` says why."""
    message = f"Invalid tool call: {fault}."
    return ProtocolError(WireError(502, message, "server_error", code="invalid_model_tool_call"))


def loading() -> ProtocolError:
    """The model is not there yet."""
    message = "The model is still loading; try again shortly."
    return ProtocolError(WireError(503, message, "server_error", code="model_loading", headers=_RETRY))


def _other_model(named: object, served: str) -> str:
    return f"The model {str(named)[:200]!r} does not exist; this server serves {served!r}."
