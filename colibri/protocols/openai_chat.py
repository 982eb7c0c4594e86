"""POST /v1/chat/completions: a conversation in, one or more assistant messages out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from colibri.conversation import Conversation, Media, Thinking, ToolCall, ToolResult
from colibri.errors import Where
from colibri.protocols.base import Offer, ProtocolError, Request, WireProtocol, active_tools
from colibri.protocols.fields import boolean, mapping, one_of, read, refuse, refused
from colibri.protocols.openai_chat_reply import ChatReply
from colibri.protocols.openai_errors import envelope, explain
from colibri.protocols.openai_messages import (
    chosen_tool,
    declared_tools,
    turns_from_openai,
    wire_path,
)
from colibri.protocols.openai_options import delivery_options, generation_options, most_logprobs
from colibri.protocols.strict_tools import check_declarations

__all__ = ["CHAT", "conversation_of", "parse"]

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_RESERVED_KEYWORDS = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "special_tokens"}
)


def parse(body: Mapping[str, Any], offer: Offer) -> Request:
    """The request that `body` asks for, checked in the order in which the API documents its refusals.

    Raises:
        ColibriError: a field is malformed or not offered; `explain` says how to answer.
    """
    strict = read(body, {"strict_tool_calls": boolean}).get("strict_tool_calls", False)
    if strict:
        _check_strict(body)
    conversation = conversation_of(body, efforts=offer.efforts, strict=strict)
    if offer.continue_assistant and conversation.turns[-1].role == "assistant":
        conversation = evolve(conversation, open_last=True)
    _check_media(conversation, offer)
    _check_tools(conversation, offer, strict)
    return Request(
        prompts=(conversation,),
        **generation_options(body, offer),
        logprobs=_logprobs(body, offer),
        strict_tool_calls=strict,
        affinity=_affinity(body),
        **delivery_options(body, offer),
    )


def conversation_of(
    body: Mapping[str, Any], *, efforts: Sequence[str] = (), strict: bool = False
) -> Conversation:
    """The conversation in `body`, nothing of it continued.

    `efforts` are levels to take beside the common ones; `strict` holds declarations to what
    `strict_tool_calls` needs.

    Raises:
        ColibriError: a field is malformed.
    """
    thinking = _thinking(body, efforts)
    options = read(body, {"chat_template_kwargs": _template_keywords}).get("chat_template_kwargs", {})
    tools = declared_tools(body)
    if strict:
        check_declarations(tools)
    turns = turns_from_openai(body.get("messages"))
    if not turns:
        refuse("messages", "a non-empty array")
    return Conversation(
        turns=turns,
        tools=tools,
        tool_choice=chosen_tool(body, tools),
        thinking=thinking,
        options=options,
    )


def _check_strict(body: Mapping[str, Any]) -> None:
    if body.get("stream"):
        raise ProtocolError.bad(
            "`strict_tool_calls` needs `stream`: false, since a call is checked when it is whole", "stream"
        )
    if body.get("logprobs"):
        raise ProtocolError.bad("`strict_tool_calls` does not support `logprobs`; drop one", "logprobs")


def _thinking(body: Mapping[str, Any], efforts: Sequence[str]) -> Thinking:
    found = read(
        body,
        {
            "reasoning_effort": one_of(*dict.fromkeys((*_EFFORTS, *efforts))),
            "enable_thinking": boolean,
            "preserve_thinking": boolean,
        },
    )
    return Thinking(
        enabled=found.get("enable_thinking"),
        effort=found.get("reasoning_effort"),
        preserve=found.get("preserve_thinking"),
    )


def _template_keywords(name: str, value: Any) -> dict[str, Any]:
    keywords = dict(mapping(name, value))
    for reserved in sorted(_RESERVED_KEYWORDS & keywords.keys()):
        refused(f"{name}.{reserved}", "here; the request's own fields say it")
    return keywords


def _check_media(conversation: Conversation, offer: Offer) -> None:
    for index, turn in enumerate(conversation.turns):
        for at, part in enumerate(turn.parts):
            inner = part.parts if isinstance(part, ToolResult) else (part,)
            for media in inner:
                if isinstance(media, Media) and media.kind not in offer.media:
                    path = wire_path(Where(index, at), conversation)
                    raise ProtocolError.bad(
                        f"`{path}` is {media.kind} input, which this model does not take; send text only",
                        path,
                        "unsupported_content_type",
                    )


def _check_tools(conversation: Conversation, offer: Offer, strict: bool) -> None:
    active = active_tools(conversation)
    if active and not offer.tools:
        help = ", or start the server with --tool-fallback" if offer.tools_in_words else ""
        refused("tools", f"by this model; leave out `tools` and `tool_choice`{help}")
    if not offer.tools:
        _check_no_calls(conversation)
    if strict and not active:
        raise ProtocolError.bad(
            "`strict_tool_calls` needs `tools` and a `tool_choice` other than none", "strict_tool_calls"
        )


def _check_no_calls(conversation: Conversation) -> None:
    """Refuse calls and results in the past, which a format without tools would leave out."""
    for index, turn in enumerate(conversation.turns):
        if turn.role == "tool" or any(isinstance(part, ToolCall) for part in turn.parts):
            name = f"messages.{index}" + ("" if turn.role == "tool" else ".tool_calls")
            refused(name, "by this model, whose format has no tools; send it as text")


def _logprobs(body: Mapping[str, Any], offer: Offer) -> int | None:
    found = read(body, {"echo": boolean, "logprobs": boolean})
    most = body.get("top_logprobs")
    wanted = found.get("logprobs", False)
    most = 0 if most is None else most_logprobs("top_logprobs", most, offer, wanted=wanted)
    if found.get("echo"):
        refused("echo", "by chat completions, which return no prompt; use completions")
    if not wanted:
        return None
    if not offer.max_logprobs:
        refused("logprobs", "by this model's engine; leave it out")
    return most


def _affinity(body: Mapping[str, Any]) -> str:
    """What tells one conversation from another: the client's key, else how its messages begin."""
    key = body.get("prompt_cache_key")
    if isinstance(key, str) and key:
        return key
    messages = body["messages"]
    first_user = next((at for at, message in enumerate(messages) if message["role"] == "user"), len(messages))
    opening = json.dumps(messages[: first_user + 1], sort_keys=True)
    return hashlib.sha1(opening.encode(), usedforsecurity=False).hexdigest()


CHAT = WireProtocol(
    name="openai_chat", parse=parse, reply=ChatReply, error=explain, envelope=envelope, done="[DONE]"
)
