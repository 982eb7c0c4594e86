"""What a parser says about a reply.

Every event carries `start` and `end`, the half-open span of characters of the raw generation that it
accounts for. Sorted by `start`, the spans of a whole reply cover it without gaps: text that is neither
content nor reasoning nor part of a call is reported as `Framing`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from attrs import frozen

__all__ = [
    "Event",
    "FinishReason",
    "Finished",
    "Framing",
    "ReasoningDelta",
    "TextDelta",
    "ToolCallBroken",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallStart",
]

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]


@frozen
class TextDelta:
    """More of the answer."""

    text: str
    start: int
    end: int


@frozen
class ReasoningDelta:
    """More of the reasoning that precedes the answer."""

    text: str
    start: int
    end: int


@frozen
class ToolCallStart:
    """A call begins: its dense `index` from 0, an id unique within the reply, its whole name."""

    index: int
    id: str
    name: str
    start: int
    end: int


@frozen
class ToolCallDelta:
    """More of the JSON text of call `index`'s arguments; the concatenation is one JSON object."""

    index: int
    arguments: str
    start: int
    end: int


@frozen
class ToolCallEnd:
    """Call `index` is complete: its arguments are a JSON object."""

    index: int
    start: int
    end: int


@frozen
class ToolCallBroken:
    """The model began call `index` and did not finish it in a readable form.

    `index` is None when the call had no readable name and was therefore never started. `reason` is one
    stable word: `cut` (token limit), `unclosed`, `syntax`.
    """

    index: int | None
    reason: str
    start: int
    end: int


@frozen
class Framing:
    """Characters that belong to the format: markers, layout white space, headers, skipped text.

    `kind` is one stable word that says which: `marker`; `forgiven`, a marker that forgives a mistake of the
    model (or, empty, a marker that it left out); `missing`, empty, a call's closing marker at the end of the
    reply; `layout`; `header`; `key`, an argument's name; `element`, text of a nested argument; `skipped`;
    `cut`, a marker that the end of the reply cut; `stop`, from a stop sequence on.
    """

    kind: str
    start: int
    end: int


@frozen
class Finished:
    """The reply is over. `reason` is what a client is told; the span is empty, at the end."""

    reason: FinishReason
    start: int
    end: int


Event: TypeAlias = (
    TextDelta
    | ReasoningDelta
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | ToolCallBroken
    | Framing
    | Finished
)
