"""OpenAI-shaped messages, tools and tool choice into a `Conversation`, with every shape checked.

Shapes follow the OpenAI chat completions reference; `reasoning` and `thinking` are accepted beside
`reasoning_content`, and arguments may be JSON text or an object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from colibri.conversation import (
    Conversation,
    Media,
    Part,
    Reasoning,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from colibri.errors import ConversationError, Where

__all__ = ["conversation_from_openai", "tool_choice_from_openai", "tools_from_openai", "turns_from_openai"]

_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_OWN_KEYS = frozenset({"role", "content", "tool_calls", *_REASONING_KEYS})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})


def conversation_from_openai(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    *,
    tool_choice: str | Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    open_last: bool = False,
    thinking: Thinking | None = None,
) -> Conversation:
    """Build a conversation from OpenAI-shaped values.

    `options` are keyword arguments of the family's official chat template, passed as they are;
    `open_last` asks for a prompt that ends inside the trailing assistant message.

    Raises:
        ConversationError: a value has the wrong shape; the message and `where` name it.
    """
    declared = tools_from_openai(tools)
    return Conversation(
        turns=turns_from_openai(messages),
        tools=declared,
        tool_choice=tool_choice_from_openai(tool_choice, declared),
        thinking=thinking or Thinking(),
        open_last=open_last,
        options=dict(options or {}),
    )


def turns_from_openai(messages: Any) -> tuple[Turn, ...]:
    """Turn `i` is `messages[i]`.

    Raises:
        ConversationError: `messages` is not a list of message objects, or one of them is malformed.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConversationError("`messages` must be a list of message objects", where=Where(field="messages"))
    return tuple(_turn(index, message) for index, message in enumerate(messages))


def tools_from_openai(tools: Any) -> tuple[Tool, ...]:
    """The declared tools in their order, spelled as they came; None and an empty list mean none.

    Raises:
        ConversationError: a declaration lacks a name or has a malformed schema.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ConversationError("`tools` must be a list of tool objects", where=Where(field="tools"))
    return tuple(_tool(index, tool) for index, tool in enumerate(tools))


def tool_choice_from_openai(choice: Any, tools: Sequence[Tool]) -> ToolChoice | None:
    """The choice as a value; None when the client left it out.

    Raises:
        ConversationError: an unknown mode, a forced tool that is not declared, or a choice without tools.
    """
    where = Where(field="tool_choice")
    if choice is None:
        return None
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise ConversationError(
                f"`tool_choice` must be auto, none, required or an object that names a tool, not {choice!r}",
                where=where,
            )
        parsed = ToolChoice(choice)  # type: ignore[arg-type]
    elif isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ConversationError("`tool_choice.function.name` must be the name of a tool", where=where)
        if tools and name not in {tool.name for tool in tools}:
            raise ConversationError(f"`tool_choice` names {name!r}, which is not among `tools`", where=where)
        parsed = ToolChoice("tool", name)
    else:
        raise ConversationError("`tool_choice` must be a string or an object", where=where)
    if parsed.mode != "none" and not tools:
        raise ConversationError("`tool_choice` requires `tools`", where=where)
    return parsed


def _turn(index: int, message: Any) -> Turn:
    if not isinstance(message, Mapping):
        raise ConversationError(f"`messages.{index}` must be an object", where=Where(turn=index))
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ConversationError(
            f"`messages.{index}.role` must be a non-empty string", where=Where(turn=index, field="role")
        )
    content = message.get("content")
    listed = isinstance(content, Sequence) and not isinstance(content, str | bytes)
    parts = _content(index, content)
    extra = {key: value for key, value in message.items() if key not in _OWN_KEYS}
    if role == "tool":
        result = ToolResult(
            call_id=_optional_text(index, message, "tool_call_id"),
            parts=parts,
            name=_optional_text(index, message, "name"),
            listed=listed,
        )
        for key in ("tool_call_id", "name"):
            extra.pop(key, None)
        return Turn(role, (result,), extra=extra)
    reasoning = _reasoning(index, message)
    calls = _tool_calls(index, message.get("tool_calls"))
    return Turn(role, (*reasoning, *parts, *calls), listed=listed, extra=extra)


def _content(index: int, content: Any) -> tuple[Text | Media, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise ConversationError(
            f"`messages.{index}.content` must be a string, a list of parts or null",
            where=Where(turn=index, field="content"),
        )
    return tuple(_content_part(index, at, part) for at, part in enumerate(content))


def _content_part(index: int, at: int, part: Any) -> Text | Media:
    where = Where(turn=index, part=at, field="content")
    path = f"messages.{index}.content.{at}"
    if not isinstance(part, Mapping):
        raise ConversationError(f"`{path}` must be an object with a type", where=where)
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        text = part.get("text")
        if not isinstance(text, str):
            raise ConversationError(f"`{path}.text` must be a string", where=where)
        return Text(text)
    if kind == "image_url":
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, Mapping) else source
        if not isinstance(url, str):
            raise ConversationError(f"`{path}.image_url.url` must be a string", where=where)
        return Media("image", None, url)
    if kind == "input_audio":
        audio = part.get("input_audio")
        if not isinstance(audio, Mapping) or not isinstance(audio.get("data"), str):
            raise ConversationError(f"`{path}.input_audio.data` must be a base64 string", where=where)
        sound = audio.get("format")
        return Media("audio", f"audio/{sound}" if isinstance(sound, str) else None, audio["data"])
    raise ConversationError(
        f"`{path}.type` must be text, image_url or input_audio, not {kind!r}", where=where
    )


def _optional_text(index: int, message: Mapping[str, Any], key: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise ConversationError(
            f"`messages.{index}.{key}` must be a string", where=Where(turn=index, field=key)
        )
    return value


def _reasoning(index: int, message: Mapping[str, Any]) -> tuple[Part, ...]:
    for key in _REASONING_KEYS:
        text = _optional_text(index, message, key)
        if text is not None:
            return (Reasoning(text),)
    return ()


def _tool_calls(index: int, calls: Any) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise ConversationError(
            f"`messages.{index}.tool_calls` must be a list", where=Where(turn=index, field="tool_calls")
        )
    return tuple(_tool_call(index, at, call) for at, call in enumerate(calls))


def _tool_call(index: int, at: int, call: Any) -> ToolCall:
    where = Where(turn=index, part=at, field="tool_calls")
    path = f"messages.{index}.tool_calls.{at}"
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ConversationError(f"`{path}.function` must be an object", where=where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ConversationError(f"`{path}.function.name` must be a non-empty string", where=where)
    arguments = function.get("arguments", "")
    if arguments is None:
        arguments = ""
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(arguments, ensure_ascii=False)
        except (TypeError, ValueError):
            raise ConversationError(
                f"`{path}.function.arguments` must be JSON text or a JSON object", where=where
            ) from None
    call_id = call.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise ConversationError(f"`{path}.id` must be a string", where=where)
    return ToolCall(name, arguments, call_id)


def _tool(index: int, tool: Any) -> Tool:
    def refuse(path: str, expected: str) -> ConversationError:
        return ConversationError(
            f"`tools.{index}{path}` must be {expected}", where=Where(tool=index, field=path[1:] or None)
        )

    if not isinstance(tool, Mapping):
        raise refuse("", "an object")
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise refuse(".function", "an object")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise refuse(".function.name", "a non-empty string")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise refuse(".function.parameters", "an object or null")
    for key, kind, expected in (("properties", Mapping, "an object or null"), ("required", list, "a list or null")):
        value = (parameters or {}).get(key)
        if value is not None and not isinstance(value, kind):
            raise refuse(f".function.parameters.{key}", expected)
    return Tool(tool)
