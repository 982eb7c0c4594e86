"""How replies and their events are shown, to people and to programs."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import attrs
import click

from colibri.cli.output import printable
from colibri.events import Event, ReasoningDelta, TextDelta, ToolCallBroken, ToolCallDelta, ToolCallStart

if TYPE_CHECKING:
    from colibri.reply import Reply

__all__ = ["ReplyView", "event_json", "event_line", "reply_json", "write_reply"]

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


def event_json(event: Event) -> dict[str, Any]:
    """The event as a JSON object; `type` is its class's name in small letters and underscores."""
    return {"type": _type(event), **attrs.asdict(event)}


def event_line(event: Event) -> str:
    """The event on one line: span, type, what it says."""
    fields = attrs.asdict(event)
    span = f"{fields.pop('start')}-{fields.pop('end')}"
    return f"{span:>11}  {_type(event):<16}  {' '.join(repr(value) for value in fields.values())}".rstrip()


def reply_json(reply: Reply) -> dict[str, Any]:
    """The folded reply as a JSON object."""
    return attrs.asdict(reply)


def write_reply(reply: Reply) -> None:
    """The folded reply for a person to read, each part under its name."""
    parts = [("reasoning", reply.reasoning), ("content", reply.content)]
    parts += [("tool call", f"{call.name} {call.arguments}") for call in reply.tool_calls]
    parts += [
        (f"tool call, {broken.reason}", f"{broken.name or '?'} {broken.arguments}") for broken in reply.broken
    ]
    for name, text in (*parts, ("finish reason", reply.finish_reason)):
        if text:
            click.echo(f"{click.style(f'[{name}]', bold=True)}\n{printable(text)}")


def _type(event: Event) -> str:
    return _CAPITAL.sub("_", type(event).__name__).lower()


class ReplyView:
    """Shows a reply while it arrives: reasoning dim, text plain, each tool call on a line of its own.

    Where stdout is no terminal only the text and the tool calls are written.
    """

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty()
        self._at_line_start = True
        self._reasoned = False

    def feed(self, event: Event) -> None:
        """Show one event at once."""
        match event:
            case TextDelta(text=text):
                self._leave_reasoning()
                self._write(text)
            case ReasoningDelta(text=text) if self._terminal:
                self._reasoned = True
                self._write(text, dim=True)
            case ToolCallStart(name=name):
                self._leave_reasoning()
                self._end_line()
                self._write(f"{name} ", bold=True)
            case ToolCallDelta(arguments=arguments):
                self._write(arguments)
            case ToolCallBroken(reason=reason):
                self._end_line()
                self._write(f"[tool call: {reason}]", dim=True)

    def close(self) -> None:
        """End the last line."""
        self._end_line()

    def _leave_reasoning(self) -> None:
        if self._reasoned:
            self._end_line()
            self._reasoned = False

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")

    def _write(self, text: str, **style: bool) -> None:
        if text:
            shown = printable(text)
            click.echo(click.style(shown, **style) if self._terminal and style else shown, nl=False)
            self._at_line_start = text.endswith("\n")
