"""JSON answers in the API's spelling: UTF-8, compact, never ASCII-escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

__all__ = ["dump", "json_response"]

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def dump(value: Any) -> bytes:
    """`value` as compact JSON in UTF-8; what UTF-8 cannot spell becomes a question mark."""
    return _ENCODER.encode(value).encode("utf-8", "replace")


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """`value` as an answer."""
    return web.Response(body=dump(value), status=status, headers=headers, content_type="application/json")
