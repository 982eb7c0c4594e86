"""How an explanation of a reply is shown, to people and to programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import attrs
import click

from colibri.cli.replies import reply_json
from colibri.explain import Explanation, Row
from colibri.grammar import Grammar
from colibri.reasons import shown
from colibri.recording import Recording
from colibri.reply import Reply
from colibri.states import State

__all__ = ["explanation_json", "write_explanation"]

_COLORS = {
    "mark": "cyan",
    "refused": "yellow",
    "ignored": "yellow",
    "broken": "red",
    "held": "bright_black",
    "else": "bright_black",
    "layout": "bright_black",
    "call": "green",
    "called": "green",
}
_TEXT = 32
_DETAIL = 160


def explanation_json(explanation: Explanation, family: str, grammar: Grammar) -> dict[str, Any]:
    """The explanation as a JSON object."""
    return {
        "family": family,
        "grammar": grammar.name,
        "rows": [attrs.asdict(row) for row in explanation.rows],
        "states": {state.name: _description(state) for state in explanation.states},
        "not_calls": [attrs.asdict(row) for row in explanation.not_calls],
        "reply": reply_json(explanation.reply),
    }


def write_explanation(explanation: Explanation, family: str, grammar: Grammar, recording: Recording) -> None:
    """The explanation for a person to read: what happened where, the states, what was no call, the sum."""
    tools = ", ".join(tool.name for tool in recording.tools) or "none"
    click.echo(f"family {family}, grammar {grammar.name}; declared tools: {tools}")
    click.echo(f"{_count(len(recording.raw), 'character')} in {_count(len(recording.chunks), 'chunk')}\n")
    _write_rows(explanation.rows)
    _write_title("states")
    width = max(len(state.name) for state in explanation.states)
    for state in explanation.states:
        click.echo(f"{state.name:<{width}}  {_description(state)}")
    _write_title("not calls")
    for row in explanation.not_calls:
        click.echo(f"{row.start:>5}  {row.detail}")
    if not explanation.not_calls:
        click.echo(_nothing_refused(explanation.reply, grammar))
    _write_title("reply")
    click.echo(_sum(explanation.reply))


def _write_rows(rows: Sequence[Row]) -> None:
    cells = [
        (f"{row.start}-{row.end}", row.state, row.what, shown(row.text, _TEXT), _short(row.detail))
        for row in rows
    ]
    if sys.stdout.isatty():
        _draw(rows, cells)
        return
    at, state, what, text = (max(len(line[column]) for line in cells) for column in range(4))
    for line in cells:
        click.echo(f"{line[0]:>{at}}  {line[1]:<{state}}  {line[2]:<{what}}  {line[3]:<{text}}  {line[4]}")


def _draw(rows: Sequence[Row], cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("what", no_wrap=True)
    table.add_column("text", overflow="fold")
    table.add_column("meaning", overflow="fold")
    for row, line in zip(rows, cells, strict=True):
        table.add_row(*map(Text, line), style=_COLORS.get(row.what))
    Console().print(table)


def _write_title(title: str) -> None:
    click.echo("\n" + click.style(f"[{title}]", bold=True))


def _short(detail: str) -> str:
    return detail if len(detail) <= _DETAIL else f"{detail[:_DETAIL]}…"


def _description(state: State) -> str:
    """What a state's text is, and where its marks lead."""
    marks = ", ".join(f"{mark.at!r} -> {mark.to}" for mark in state.marks) or "nothing"
    if state.otherwise is not None:
        lead = f"at most {state.within} characters" if state.within else "white space"
        return f"{lead}, then {marks}; anything else -> {state.otherwise}"
    slot = "ignored" if state.slot == "skip" else state.slot
    return f"{slot} until {marks}"


def _nothing_refused(reply: Reply, grammar: Grammar) -> str:
    if reply.tool_calls:
        return "everything that looked like a call is one"
    openers = dict.fromkeys(
        mark.at for state in grammar.states.values() for mark in state.marks if mark.tools
    )
    if not openers:
        return "this format has no tool calls"
    return f"the reply does not spell what opens a call: {', '.join(map(repr, openers))}"


def _sum(reply: Reply) -> str:
    calls = ", ".join(call.name for call in reply.tool_calls) or "none"
    broken = f"; broken calls: {len(reply.broken)}" if reply.broken else ""
    return (
        f"{_count(len(reply.reasoning), 'character')} of reasoning, {len(reply.content)} of text;"
        f" calls: {calls}{broken}; finish reason: {reply.finish_reason}"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
