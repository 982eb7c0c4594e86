"""The message dicts that official chat templates see, and the way back to the conversation.

Templates are written against the dicts that Hugging Face's `apply_chat_template` hands them: keys whose
value is None are absent, and reasoning goes by two names, `reasoning_content` and `thinking`
(transformers 5.2 and later).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from colibri.conversation import Conversation, Media, Part, Reasoning, Text, ToolCall, ToolResult, Turn
from colibri.errors import Where

__all__ = ["Path", "Places", "normalized", "template_messages", "template_tools"]

Path: TypeAlias = tuple[str | int, ...]

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")


def template_messages(conversation: Conversation) -> list[dict[str, Any]]:
    """The conversation as the list `messages` of a chat template.

    A turn gives one message, but each tool result is a message of its own. Text that did not come as a
    list is one string; no text at all leaves `content` away. Arguments are the value their JSON spells,
    and stay text where it is none, so that a template refuses what the official one refuses.
    """
    return normalized(
        _message(turn, [turn.parts[index] for index in indexes])
        for turn in conversation.turns
        for indexes in _messages_of(turn)
    )


def template_tools(conversation: Conversation) -> list[dict[str, Any]] | None:
    """The declarations as the list `tools` of a chat template; None when there are none."""
    return [dict(tool.declaration) for tool in conversation.tools] or None


def normalized(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """OpenAI-shaped messages as Hugging Face hands them to a template: no None, reasoning by its names."""
    return [_named_reasoning({k: v for k, v in m.items() if v is not None}) for m in messages]


class Places:
    """Tells a path into a template's variables, such as a segment's, as a place in the conversation."""

    def __init__(self, conversation: Conversation) -> None:
        self._turns = conversation.turns
        self._messages = [
            (number, indexes)
            for number, turn in enumerate(conversation.turns)
            for indexes in _messages_of(turn)
        ]

    def where(self, path: Path) -> Where:
        """The turn and part, the tool, or the option that `path` leads to.

        `path` starts with "messages", "tools" or "kwargs"; any other one is nowhere in the conversation.
        """
        match path:
            case ("messages", int(message), *rest):
                return self._in_message(message, rest)
            case ("tools", int(tool), *rest):
                return Where(tool=tool, field=_dotted(rest))
            case ("kwargs", *rest):
                return Where(field=_dotted(rest))
        return Where()

    def _in_message(self, message: int, rest: list[str | int]) -> Where:
        turn, indexes = self._messages[message]
        parts = self._turns[turn].parts
        result = any(isinstance(parts[index], ToolResult) for index in indexes)
        match rest:
            case []:
                return Where(turn)
            case [key, *_] if key in REASONING_KEYS:
                found = [index for index in indexes if isinstance(parts[index], Reasoning)]
                return Where(turn, found[0] if found else None)
            case ["tool_calls", int(call), *inner]:
                found = [index for index in indexes if isinstance(parts[index], ToolCall)]
                return Where(turn, found[call], field=_dotted(inner[1:]))
            case [key, *_] if result and key != "role":
                return Where(turn, indexes[0], field=None if key == "content" else _dotted(rest))
            case ["content", *inner]:
                found = [index for index in indexes if isinstance(parts[index], Text | Media)]
                nth = inner[0] if inner and isinstance(inner[0], int) else 0
                return Where(turn, found[nth] if nth < len(found) else None)
        return Where(turn, field=_dotted(rest))


def _messages_of(turn: Turn) -> Iterator[list[int]]:
    """The parts of each message that the turn becomes, by index: every tool result stands alone."""
    together: list[int] = []
    for index, part in enumerate(turn.parts):
        if not isinstance(part, ToolResult):
            together.append(index)
            continue
        if together:
            yield together
        together = []
        yield [index]
    if together or not turn.parts:
        yield together


def _message(turn: Turn, parts: list[Part]) -> dict[str, Any]:
    message: dict[str, Any]
    match parts:
        case [ToolResult() as result]:
            message = {
                "role": "tool",
                "tool_call_id": result.call_id,
                "name": result.name,
                "content": _content(result.parts, result.listed),
            }
        case _:
            spoken = [part for part in parts if isinstance(part, Text | Media)]
            message = {"role": turn.role, "content": _content(spoken, turn.listed)}
            if thoughts := [part.text for part in parts if isinstance(part, Reasoning)]:
                message["reasoning_content"] = "".join(thoughts)
            if calls := [_call(part) for part in parts if isinstance(part, ToolCall)]:
                message["tool_calls"] = calls
    return {**turn.extra, **message} if turn.extra else message


def _content(parts: Sequence[Text | Media], listed: bool) -> str | list[dict[str, str]] | None:
    if listed or any(isinstance(part, Media) for part in parts):
        return [
            {"type": "text", "text": part.text}
            if isinstance(part, Text)
            else {"type": part.kind, part.kind: part.data}
            for part in parts
        ]
    return "".join(part.text for part in parts if isinstance(part, Text)) if parts else None


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": _arguments(call.arguments)}
    named = {} if call.id is None else {"id": call.id}
    return {**named, "type": "function", "function": function}


def _arguments(text: str) -> Any:
    if not text.strip():
        return {}
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _named_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    for key in REASONING_KEYS:
        if key in message:
            return {"thinking": message[key], **message, "reasoning_content": message[key]}
    return message


def _dotted(path: Iterable[str | int]) -> str | None:
    return ".".join(str(step) for step in path if step != "@key") or None
