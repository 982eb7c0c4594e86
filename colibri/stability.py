"""Whether an engine can always go on from the prompt before: found out rather than believed."""

from __future__ import annotations

from typing import Literal

from colibri.conversation import Conversation, Reasoning, Text, Thinking, Tool, ToolCall, ToolResult, Turn
from colibri.family import Family
from colibri.prefix import check_prefixes

__all__ = ["stability"]


def stability(family: Family) -> Literal["always", "preserved", "never"]:
    """What `Features.prefix_stable` must say of a variant, found out on chats with and without a tool.

    always: every prompt goes on from the one before, thinking on, off or left open, whatever becomes of
    past reasoning. preserved: if past reasoning is kept. never: not even then.
    """
    keeps = family.features.preserve_thinking
    if _holds(family, preserve=None) and not (keeps and not _holds(family, preserve=False)):
        return "always"
    return "preserved" if keeps and _holds(family, preserve=True) else "never"


def _holds(family: Family, preserve: bool | None) -> bool:
    switch = family.features.thinking == "switch"
    return all(
        step.broken is None
        for enabled in ((None, True, False) if switch else (None,))
        for called in ((False, True) if family.features.tools else (False,))
        for step in check_prefixes(family, _witness(family, Thinking(enabled, preserve=preserve), called))
    )


def _witness(family: Family, thinking: Thinking, called: bool) -> Conversation:
    """Three questions, replied to as thinking says; before the second reply a tool may be called."""
    thinks = family.features.thinking != "none" and thinking.enabled is not False
    thought = (Reasoning("Because."),) if thinks else ()
    turns = [Turn("user", (Text("One?"),)), Turn("assistant", (*thought, Text("Yes.")))]
    turns.append(Turn("user", (Text("Two?"),)))
    if called:
        turns.append(Turn("assistant", (*thought, Text(""), ToolCall("ping", "{}", "call_1"))))
        turns.append(Turn("tool", (ToolResult("call_1", (Text("done"),), "ping"),)))
    turns += [Turn("assistant", (*thought, Text("No."))), Turn("user", (Text("Three?"),))]
    tool = Tool({"type": "function", "function": {"name": "ping", "description": "", "parameters": {}}})
    return Conversation(tuple(turns), (tool,) if called else (), thinking=thinking)
