"""Where a client's text spells a control token of a family.

With a tokenizer that heeds `Prompt.segments` such a text stays text. Wherever a prompt is tokenized
without them, it would open or end turns that nobody took: callers may refuse it, or escape it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from attrs import evolve, frozen

from colibri.conversation import Conversation, Media, Part, Reasoning, Text, ToolCall, ToolResult
from colibri.errors import ConversationError, Where
from colibri.family import Family

__all__ = ["ControlToken", "find_control_tokens"]


@frozen
class ControlToken:
    """A spelling found: `offset` counts characters of the text at `where`.

    Neighbouring texts of a turn are read as one, so that a spelling cut in two is found where it begins.
    For arguments `where.field` names the value in the decoded JSON, and `offset` counts in that.
    """

    where: Where
    token: str
    offset: int


def find_control_tokens(conversation: Conversation, family: Family) -> tuple[ControlToken, ...]:
    """Every place where the conversation spells one of `family.control_tokens`, in order.

    Looked at is what can reach a prompt: texts, reasoning, calls and their arguments, results, tool
    declarations, extra keys of messages, and options. Of overlapping spellings the longest counts.
    """
    spellings = sorted(family.control_tokens, key=len, reverse=True)
    if not spellings:
        return ()
    pattern = re.compile("|".join(map(re.escape, spellings)))
    return tuple(found for texts in _texts(conversation) for found in _matches(pattern, texts))


_Texts = Sequence[tuple[Where, str]]
"""Texts that stand next to each other in a prompt."""


def _matches(pattern: re.Pattern[str], texts: _Texts) -> Iterator[ControlToken]:
    for match in pattern.finditer("".join(text for _, text in texts)):
        offset = match.start()
        for where, text in texts:
            if offset < len(text):
                yield ControlToken(where, match[0], offset)
                break
            offset -= len(text)


def _texts(conversation: Conversation) -> Iterator[_Texts]:
    for index, tool in enumerate(conversation.tools):
        yield from _json(tool.declaration, Where(tool=index))
    yield from _json(conversation.options, Where())
    for number, turn in enumerate(conversation.turns):
        yield [(Where(number, field="role"), turn.role)]
        yield from _json(turn.extra, Where(number))
        for is_text, group in groupby(enumerate(turn.parts), lambda item: isinstance(item[1], Text)):
            members = [(Where(number, index), part) for index, part in group]
            if is_text:
                yield _spoken(members)
            else:
                for where, part in members:
                    yield from _part(part, where)


def _spoken(parts: Sequence[tuple[Where, Part]]) -> _Texts:
    return [(where, part.text) for where, part in parts if isinstance(part, Text)]


def _part(part: Part, where: Where) -> Iterator[_Texts]:
    match part:
        case Reasoning(text=text):
            yield [(where, text)]
        case ToolCall(name=name):
            yield [(evolve(where, field="name"), name)]
            yield from _json(_decoded(part), evolve(where, field="arguments"))
        case ToolResult(name=name, parts=parts):
            yield [(evolve(where, field="name"), name or "")]
            yield _spoken([(where, inner) for inner in parts])
        case Media() | Text():  # what media are is never printed; texts were read before
            return


def _decoded(call: ToolCall) -> Any:
    try:
        return call.decoded()
    except (ConversationError, RecursionError):
        return call.arguments


def _json(value: Any, where: Where) -> Iterator[_Texts]:
    """The strings in a JSON value, keys included."""
    if isinstance(value, str):
        yield [(where, value)]
        return
    inner: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        inner = list(value.items())
    elif isinstance(value, list | tuple):
        inner = list(enumerate(value))
    for key, item in inner:
        place = evolve(where, field=str(key) if where.field is None else f"{where.field}.{key}")
        if isinstance(key, str):
            yield [(place, key)]
        yield from _json(item, place)
