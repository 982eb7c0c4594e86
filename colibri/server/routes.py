"""The endpoints that tell about the server, and the table of all endpoints."""

from __future__ import annotations

import json
from importlib.metadata import version
from importlib.resources import files
from urllib.parse import unquote

from aiohttp import web
from attrs import asdict

from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_completions import COMPLETIONS
from colibri.server import refusals
from colibri.server.answer import answer
from colibri.server.app import App, Body, Route
from colibri.server.exchange import Exchange
from colibri.server.metrics import CONTENT_TYPE
from colibri.server.prompts import apply_template, detokenize, tokenize, tokenizer_info
from colibri.server.responses import json_response

__all__ = ["ROUTES"]

_MODELS = "/v1/models"


async def health(app: App, exchange: Exchange, body: Body) -> web.Response:
    """Whether requests are answered; with the key, also what the server is doing."""
    state = "closing" if app.scheduler.closed else "ok" if app.loaded else "loading"
    answer: dict[str, object] = {"status": state}
    if app.loaded and app.keys.admit(exchange.request.headers):
        served = app.served
        answer |= {
            "model": served.id,
            "arch": served.family.id,
            "scheduler": asdict(app.scheduler.counters()),
            "kv_slots": app.settings.kv_slots,
            "input_modalities": ["text", *served.media],
            "continue_assistant": app.settings.continue_assistant,
            "capabilities": served.card()["capabilities"],
        }
    return json_response(answer, 200 if state == "ok" else 503)


async def metrics(app: App, exchange: Exchange, body: Body) -> web.Response:
    """Every number, in the Prometheus text format 0.0.4."""
    exchange.headers = {"Cache-Control": "no-store", "Content-Type": CONTENT_TYPE, "Server": "colibri"}
    return web.Response(body=app.metrics.text())


async def models(app: App, exchange: Exchange, body: Body) -> web.Response:
    """The list of models, which is one."""
    return json_response({"object": "list", "data": [app.served.card()]})


async def model(app: App, exchange: Exchange, body: Body) -> web.Response:
    """One model by its id.

    Raises:
        ProtocolError: it is not the served one.
    """
    name = unquote(exchange.request.raw_path.partition("?")[0].removeprefix(f"{_MODELS}/"))
    if name != app.served.id:
        raise refusals.no_model(name, app.served.id)
    return json_response(app.served.card())


async def openapi(app: App, exchange: Exchange, body: Body) -> web.Response:
    """This document."""
    document = json.loads(files("colibri.server").joinpath("openapi.json").read_text(encoding="utf-8"))
    document["info"]["version"] = version("colibri-llm")
    return json_response(document)


async def chat_completions(app: App, exchange: Exchange, body: Body) -> web.StreamResponse:
    """Answer a conversation, whole or as a stream."""
    return await answer(app, exchange, body, CHAT)


async def completions(app: App, exchange: Exchange, body: Body) -> web.StreamResponse:
    """Continue raw text or token ids, whole or as a stream."""
    return await answer(app, exchange, body, COMPLETIONS)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/health", health, public=True, early=True),
    Route("GET", "/metrics", metrics, early=True),
    Route("GET", "/openapi.json", openapi, public=True, early=True),
    Route("GET", _MODELS, models),
    Route("GET", f"{_MODELS}/{{model}}", model),
    Route("POST", "/v1/chat/completions", chat_completions, protocol=CHAT),
    Route("POST", "/v1/completions", completions, protocol=COMPLETIONS),
    Route("POST", "/apply-template", apply_template),
    Route("POST", "/tokenize", tokenize),
    Route("POST", "/detokenize", detokenize),
    Route("GET", "/tokenizer_info", tokenizer_info),
)
"""Every endpoint; the first that matches answers."""
