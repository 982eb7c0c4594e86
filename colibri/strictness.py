"""Whether calls are written exactly in their format, for callers who forgive nothing."""

from __future__ import annotations

from collections.abc import Sequence

from colibri.events import Event, Framing, TextDelta, ToolCallBroken
from colibri.grammar import Grammar

__all__ = ["form_fault"]


def form_fault(events: Sequence[Event], grammar: Grammar) -> str | None:
    """What is wrong with the form of a finished reply's calls, in words; None when nothing is.

    A call that broke, a marker that the reply's end cut or left out, and a call's marker in the content
    are an "incomplete or stray tool marker"; whatever else the grammar forgives is "malformed argument
    syntax".
    """
    kinds = {event.kind for event in events if isinstance(event, Framing)}
    content = "".join(event.text for event in events if isinstance(event, TextDelta))
    broken = any(isinstance(event, ToolCallBroken) for event in events)
    if broken or kinds & {"cut", "missing"} or any(mark in content for mark in grammar.telling_marks):
        return "incomplete or stray tool marker"
    return "malformed argument syntax" if "forgiven" in kinds else None
