"""`colibri chat`: talk with a model in the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click

from colibri.cli.replies import ReplyView
from colibri.cli.session import Session, Wishes, open_session, session_options
from colibri.conversation import Part, Reasoning, Text, Turn
from colibri.events import Event
from colibri.reply import fold

__all__ = ["command"]


@click.command()
@session_options
@click.pass_context
def command(ctx: click.Context, /, **wishes: Any) -> None:
    """Talk with a model, turn by turn.

    Ctrl-C stops a reply, Ctrl-D or :q ends the program, :reset forgets what was said. Where stdin is no
    terminal, each line of it is a turn.
    """
    with open_session(ctx, Wishes(**wishes)) as session:
        _tell(f"{session.family.title}; Ctrl-C stops a reply, :reset forgets, :q or Ctrl-D ends")
        turns: list[Turn] = []
        while (line := _read_line()) is not None and line != ":q":
            if line == ":reset":
                turns.clear()
                _tell("forgotten")
            elif line:
                turns += _exchange(session, turns, line)


def _exchange(session: Session, past: list[Turn], line: str) -> list[Turn]:
    """Say `line`, show the reply, and give both as turns; a reply that was stopped counts as it stands."""
    said = Turn("user", (Text(line),))
    view, events = ReplyView(), list[Event]()

    def show(event: Event) -> None:
        events.append(event)
        view.feed(event)

    try:
        session.reply([*past, said], show)
    except KeyboardInterrupt:
        pass
    finally:
        view.close()
    reply = fold(events)
    parts: list[Part] = [Reasoning(reply.reasoning)] if reply.reasoning else []
    return [said, Turn("assistant", (*parts, Text(reply.content)))]


def _read_line() -> str | None:
    """The next line without surrounding white space; None at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.strip() if line else None
    with suppress(ImportError):
        import readline  # noqa: F401  input() then edits lines and keeps a history
    while True:
        try:
            return input("> ").strip()
        except KeyboardInterrupt:
            click.echo()
        except EOFError:
            click.echo()
            return None


def _tell(words: str) -> None:
    if sys.stdin.isatty():
        click.secho(words, dim=True, err=True)
