"""A whole reply: the fold of its events."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve, frozen

from colibri.events import (
    Event,
    Finished,
    FinishReason,
    Framing,
    ReasoningDelta,
    TextDelta,
    ToolCallBroken,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)

__all__ = ["BrokenCall", "Reply", "ReplyCall", "fold", "join"]


@frozen
class ReplyCall:
    """A finished call: `arguments` is the JSON text of one object."""

    name: str
    arguments: str
    id: str


@frozen
class BrokenCall:
    """A call that was begun and never finished.

    name and id are None when its name was not readable; `arguments` is as much of the JSON text as came.
    reason: `cut`, `unclosed` or `syntax`, see `ToolCallBroken`.
    """

    name: str | None
    arguments: str
    id: str | None
    reason: str


@frozen
class Reply:
    """What a model replied. Texts are exact and may be empty; `finish_reason` is None before the end."""

    reasoning: str = ""
    content: str = ""
    tool_calls: tuple[ReplyCall, ...] = ()
    finish_reason: FinishReason | None = None
    broken: tuple[BrokenCall, ...] = ()


def fold(events: Iterable[Event]) -> Reply:
    """The reply that `events` tell."""
    reasoning: list[str] = []
    content: list[str] = []
    open_calls: dict[int, tuple[ToolCallStart, list[str]]] = {}
    calls: list[ReplyCall] = []
    broken: list[BrokenCall] = []
    finish_reason: FinishReason | None = None
    for event in events:
        match event:
            case TextDelta(text=text):
                content.append(text)
            case ReasoningDelta(text=text):
                reasoning.append(text)
            case ToolCallStart(index=index):
                open_calls[index] = event, []
            case ToolCallDelta(index=index, arguments=arguments):
                open_calls[index][1].append(arguments)
            case ToolCallEnd(index=index):
                start, parts = open_calls.pop(index)
                calls.append(ReplyCall(start.name, "".join(parts), start.id))
            case ToolCallBroken(index=None, reason=reason):
                broken.append(BrokenCall(None, "", None, reason))
            case ToolCallBroken(index=int(index), reason=reason):
                start, parts = open_calls.pop(index)
                broken.append(BrokenCall(start.name, "".join(parts), start.id, reason))
            case Finished(reason=finished):
                finish_reason = finished
            case _:
                pass
    return Reply("".join(reasoning), "".join(content), tuple(calls), finish_reason, tuple(broken))


def join(events: Iterable[Event]) -> list[Event]:
    """The same events with neighbouring pieces of one thing made one.

    Two pieces are joined when the second starts where the first ends and both are text, reasoning,
    arguments of one call, or framing of one kind. The result does not depend on how a reply was cut.
    """
    joined: list[Event] = []
    texts: list[str] = []

    def close() -> None:
        last = joined[-1] if joined else None
        if len(texts) > 1 and isinstance(last, TextDelta | ReasoningDelta):
            joined[-1] = evolve(last, text="".join(texts))
        elif len(texts) > 1 and isinstance(last, ToolCallDelta):
            joined[-1] = evolve(last, arguments="".join(texts))

    for event in events:
        last = joined[-1] if joined else None
        if last is not None and _continues(last, event):
            joined[-1] = evolve(last, end=event.end)
        else:
            close()
            texts = []
            joined.append(event)
        if isinstance(event, TextDelta | ReasoningDelta):
            texts.append(event.text)
        elif isinstance(event, ToolCallDelta):
            texts.append(event.arguments)
    close()
    return joined


def _continues(last: Event, event: Event) -> bool:
    if type(last) is not type(event) or last.end != event.start:
        return False
    if isinstance(last, ToolCallDelta) and isinstance(event, ToolCallDelta):
        return last.index == event.index
    if isinstance(last, Framing) and isinstance(event, Framing):
        return last.kind == event.kind
    return isinstance(last, TextDelta | ReasoningDelta)
