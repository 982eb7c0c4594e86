"""Endpoints that show what the engine reads, without generating: rendering, tokens, the tokenizer.

Shapes are those that lm-eval's remote tokenizer and vLLM use, and llama.cpp's for rendering.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from colibri.protocols.base import ProtocolError
from colibri.protocols.fields import boolean, read, refuse, token_ids
from colibri.protocols.openai_chat import CHAT
from colibri.rendering import Renderer
from colibri.server.app import App, Body
from colibri.server.exchange import Exchange
from colibri.server.jobs import Member
from colibri.server.responses import json_response
from colibri_engine.api import Engine
from colibri_engine.errors import JobError

__all__ = ["apply_template", "detokenize", "tokenize", "tokenizer_info"]


async def tokenize(app: App, exchange: Exchange, body: Body) -> web.Response:
    """The token ids of a text, or of the prompt for a conversation.

    Special tokens are recognised by their spelling and never added.

    Raises:
        ProtocolError: the text is missing, or the engine does not show its tokens.
    """
    engine = _engine(app)
    read(body, {"add_special_tokens": boolean})
    member = await _rendered(app, exchange, body) if "messages" in body else Member(body.get("prompt", ""))
    if not isinstance(member.text, str) or ("prompt" not in body and member.prompt is None):
        refuse("prompt", "a string; or send `messages`")
    ids = await engine.tokenize(member.text, member.trusted)
    context = engine.capabilities.context_length
    return json_response({"tokens": ids, "count": len(ids), "max_model_len": context})


async def detokenize(app: App, exchange: Exchange, body: Body) -> web.Response:
    """The text of token ids.

    Bytes that are not UTF-8 become U+FFFD.

    Raises:
        ProtocolError: the ids are missing or malformed, or the engine does not show its tokens.
    """
    engine = _engine(app)
    ids = token_ids("tokens", body.get("tokens"))
    try:
        text = await engine.detokenize(ids)
    except JobError as error:
        raise ProtocolError.bad(error.message, "tokens") from None
    return json_response({"prompt": text.decode("utf-8", "replace")})


async def tokenizer_info(app: App, exchange: Exchange, body: Body) -> web.Response:
    """The special tokens of the format and its chat template.

    Raises:
        ProtocolError: the engine does not show its tokens.
    """
    _engine(app)
    family = app.served.family
    render = family.render
    special = dict(render.special_tokens) if isinstance(render, Renderer) else {}
    end = next(iter(family.stops.tokens), None)
    info: dict[str, Any] = {"bos_token": None, "eos_token": end, "pad_token": end, **special}
    return json_response({**info, "chat_template": family.template.source})


async def apply_template(app: App, exchange: Exchange, body: Body) -> web.Response:
    """The exact prompt of a chat request.

    Raises:
        ColibriError: the request cannot be rendered.
    """
    return json_response({"prompt": (await _rendered(app, exchange, body)).text})


async def _rendered(app: App, exchange: Exchange, body: Body) -> Member:
    def render() -> Member:
        (given,) = CHAT.parse(body, app.served.offer).prompts
        return Member.of(app.served, given)

    return await exchange.work(render)


def _engine(app: App) -> Engine:
    engine = app.served.engine
    if not engine.capabilities.tokenize:
        raise ProtocolError.bad("this model's engine does not show its tokens", code="unsupported_endpoint")
    return engine
