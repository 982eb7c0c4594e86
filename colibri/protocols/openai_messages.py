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
from colibri.protocols.base import ProtocolError
from colibri.protocols.json_body import check_value

__all__ = [
    "ShapeError",
    "chosen_tool",
    "conversation_from_openai",
    "declared_tools",
    "tool_choice_from_openai",
    "tools_from_openai",
    "turns_from_openai",
    "wire_path",
]

_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_OWN_KEYS = frozenset({"role", "content", "tool_calls", *_REASONING_KEYS})
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_FIELD_PATHS = {"effort": "reasoning_effort"}


class ShapeError(ConversationError):
    """A value of the request has the wrong shape: `path` is its wire path, `kind` a stable word."""

    def __init__(self, path: str, expected: str, where: Where, kind: str = "invalid_value") -> None:
        super().__init__(f"`{path}` {expected}", where=where)
        self.path = path
        self.kind = kind


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
    if options is not None and not (
        isinstance(options, Mapping) and all(isinstance(key, str) for key in options)
    ):
        raise ShapeError("options", "must be an object with strings as keys", Where(field="options"))
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
    if not _is_list(messages):
        raise ShapeError("messages", "must be a list of message objects", Where(field="messages"))
    return tuple(_turn(index, message) for index, message in enumerate(messages))


def declared_tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """The `tools` of a request, or its legacy `functions`, in the wrapper that templates expect.

    Raises:
        ConversationError: a declaration lacks a name or has a malformed schema.
    """
    name = "functions" if body.get("tools") in (None, []) and body.get("functions") is not None else "tools"
    declared = body.get(name)
    if isinstance(declared, list | tuple):
        declared = [_wrapped(item) for item in declared]
    return tools_from_openai(declared, name)


def chosen_tool(body: Mapping[str, Any], tools: Sequence[Tool]) -> ToolChoice | None:
    """The `tool_choice` of a request, or its legacy `function_call`; None when it has neither.

    Raises:
        ConversationError: as `tool_choice_from_openai`.
    """
    name = "tool_choice" if body.get("tool_choice") is not None else "function_call"
    return tool_choice_from_openai(body.get(name), tools, name)


def tools_from_openai(tools: Any, name: str = "tools") -> tuple[Tool, ...]:
    """The declared tools in their order, spelled as they came; None and an empty list mean none.

    `name` is the field's, for errors.

    Raises:
        ConversationError: a declaration lacks a name or has a malformed schema.
    """
    if tools is None:
        return ()
    if not _is_list(tools):
        raise ShapeError(name, "must be a list of tool objects", Where(field="tools"))
    return tuple(_tool(name, index, tool) for index, tool in enumerate(tools))


def tool_choice_from_openai(
    choice: Any, tools: Sequence[Tool], name: str = "tool_choice"
) -> ToolChoice | None:
    """The choice as a value; None when the client left it out. `name` is the field's, for errors.

    Raises:
        ConversationError: an unknown mode, a forced tool that is not declared, or a choice without tools.
    """
    if choice is None:
        return None
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise _choice_error(
                name,
                f"must be auto, none, required or an object that names a tool, not {choice!r}",
                "unsupported_value",
            )
        parsed = ToolChoice(choice)  # type: ignore[arg-type]
    elif isinstance(choice, Mapping):
        inner = choice.get("function", choice)
        tool = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(tool, str) or not tool:
            raise _choice_error(name, "must have the name of a tool as `function.name`")
        if tools and tool not in {declared.name for declared in tools}:
            raise _choice_error(name, f"names {tool!r}, which is not among `tools`")
        parsed = ToolChoice("tool", tool)
    else:
        raise _choice_error(name, "must be a string or an object")
    if parsed.mode != "none" and not tools:
        raise _choice_error(name, "requires `tools`")
    return parsed


def wire_path(where: Where, conversation: Conversation | None = None) -> str | None:
    """The place `where` as a path into an OpenAI-shaped request, such as `messages.3.content.1`.

    Without the conversation the path ends at the message. None when `where` is no place at all.
    """
    if where.tool is not None:
        return ".".join(filter(None, (f"tools.{where.tool}", where.field)))
    if where.turn is None:
        return _FIELD_PATHS.get(where.field, where.field) if where.field else None
    path = f"messages.{where.turn}"
    if conversation is not None and where.part is not None and where.turn < len(conversation.turns):
        inner = _part_path(conversation.turns[where.turn], where.part)
        return ".".join(filter(None, (path, inner, where.field)))
    return ".".join(filter(None, (path, where.field)))


def _part_path(turn: Turn, index: int) -> str | None:
    if index >= len(turn.parts):
        return None
    part = turn.parts[index]
    if isinstance(part, Reasoning):
        return _REASONING_KEYS[0]
    if isinstance(part, ToolCall):
        before = sum(isinstance(other, ToolCall) for other in turn.parts[:index])
        return f"tool_calls.{before}.function"
    if isinstance(part, ToolResult) or not turn.listed:
        return "content"
    return f"content.{sum(isinstance(other, Text | Media) for other in turn.parts[:index])}"


def _choice_error(name: str, expected: str, kind: str = "invalid_value") -> ShapeError:
    return ShapeError(name, expected, Where(field="tool_choice"), kind)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _turn(index: int, message: Any) -> Turn:
    path = f"messages.{index}"
    if not isinstance(message, Mapping):
        raise ShapeError(path, "must be an object", Where(index))
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ShapeError(f"{path}.role", "must be a non-empty string", Where(index, field="role"))
    extra = {key: value for key, value in message.items() if key not in _OWN_KEYS}
    content = message.get("content")
    if role == "tool":
        result = ToolResult(
            call_id=_optional_text(index, message, "tool_call_id"),
            parts=_content(index, content, first=0),
            name=_optional_text(index, message, "name"),
            listed=_is_list(content),
        )
        for key in ("tool_call_id", "name"):
            extra.pop(key, None)
        return Turn(role, (result,), extra=extra)
    parts: list[Part] = list(_reasoning(index, message))
    parts += _content(index, content, first=len(parts))
    parts += _tool_calls(index, message.get("tool_calls"), first=len(parts))
    return Turn(role, tuple(parts), listed=_is_list(content), extra=extra)


def _content(index: int, content: Any, first: int) -> tuple[Text | Media, ...]:
    """The parts of `content`, of which the first will be part `first` of the turn."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),)
    path = f"messages.{index}.content"
    if not _is_list(content):
        raise ShapeError(path, "must be a string, a list of parts or null", Where(index, field="content"))
    return tuple(
        _content_part(f"{path}.{at}", part, Where(index, first + at)) for at, part in enumerate(content)
    )


def _content_part(path: str, part: Any, where: Where) -> Text | Media:
    if not isinstance(part, Mapping):
        raise ShapeError(path, "must be an object with a type", where)
    kind = part.get("type")
    if isinstance(kind, str) and kind in _TEXT_TYPES:
        text = part.get("text")
        if not isinstance(text, str):
            raise ShapeError(f"{path}.text", "must be a string", where)
        return Text(text)
    if kind == "image_url":
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, Mapping) else source
        if not isinstance(url, str):
            raise ShapeError(f"{path}.image_url.url", "must be a string", where)
        return Media("image", None, url)
    if kind == "input_audio":
        audio = part.get("input_audio")
        if not isinstance(audio, Mapping) or not isinstance(audio.get("data"), str):
            raise ShapeError(f"{path}.input_audio.data", "must be a base64 string", where)
        sound = audio.get("format")
        return Media("audio", f"audio/{sound}" if isinstance(sound, str) else None, audio["data"])
    raise ShapeError(
        f"{path}.type", "must be text, image_url or input_audio", where, "unsupported_content_type"
    )


def _optional_text(index: int, message: Mapping[str, Any], key: str) -> str | None:
    value = message.get(key)
    if value is not None and not isinstance(value, str):
        raise ShapeError(f"messages.{index}.{key}", "must be a string", Where(index, field=key))
    return value


def _reasoning(index: int, message: Mapping[str, Any]) -> tuple[Reasoning, ...]:
    for key in _REASONING_KEYS:
        text = _optional_text(index, message, key)
        if text is not None:
            return (Reasoning(text),)
    return ()


def _tool_calls(index: int, calls: Any, first: int) -> tuple[ToolCall, ...]:
    if calls is None:
        return ()
    path = f"messages.{index}.tool_calls"
    if not _is_list(calls):
        raise ShapeError(path, "must be a list", Where(index, field="tool_calls"))
    return tuple(_tool_call(f"{path}.{at}", call, Where(index, first + at)) for at, call in enumerate(calls))


def _tool_call(path: str, call: Any, where: Where) -> ToolCall:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ShapeError(f"{path}.function", "must be an object", where)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise ShapeError(f"{path}.function.name", "must be a non-empty string", where)
    arguments = _arguments(f"{path}.function.arguments", function.get("arguments"), where)
    call_id = call.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise ShapeError(f"{path}.id", "must be a string", where)
    return ToolCall(name, arguments, call_id)


def _arguments(path: str, arguments: Any, where: Where) -> str:
    """The JSON text of a call's arguments; text that is not JSON is left to the family's format."""
    if arguments is None:
        return ""
    if not isinstance(arguments, str):
        try:
            return json.dumps(arguments, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            raise ShapeError(path, "must be JSON text or a JSON object", where) from None
    try:
        check_value(json.loads(arguments), path, spelled=arguments)
    except ProtocolError as error:
        raise ShapeError(path, f"is refused: {error.message}", where) from None
    except RecursionError:
        raise ShapeError(path, "nests arrays and objects too deep", where) from None
    except ValueError:
        pass
    return arguments


def _wrapped(declaration: Any) -> Any:
    """A bare function as a tool; anything else as it is."""
    if not isinstance(declaration, Mapping) or "function" in declaration or "name" not in declaration:
        return declaration
    return {"type": "function", "function": {k: v for k, v in declaration.items() if k != "type"}}


def _tool(name: str, index: int, tool: Any) -> Tool:
    def refuse(field: str | None, expected: str) -> ShapeError:
        path = f"{name}.{index}.{field}" if field else f"{name}.{index}"
        return ShapeError(path, f"must be {expected}", Where(tool=index, field=field))

    if not isinstance(tool, Mapping):
        raise refuse(None, "an object")
    function = tool.get("function", tool)
    if not isinstance(function, Mapping):
        raise refuse("function", "an object")
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise refuse("function.name", "a non-empty string")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise refuse("function.parameters", "an object or null")
    for key, kind in (("properties", Mapping), ("required", list)):
        value = (parameters or {}).get(key)
        if value is not None and not isinstance(value, kind):
            raise refuse(
                f"function.parameters.{key}", "a list or null" if kind is list else "an object or null"
            )
    return Tool(tool)
