"""`colibri chat`: talk with a model in the terminal."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

import click
from attrs import define, field

from colibri.cli.replies import ReplyView
from colibri.cli.session import Answer, Session, Wishes, open_session, session_options
from colibri.conversation import Part, Reasoning, Text, Turn
from colibri.events import Event
from colibri.family import Prompt
from colibri.reply import fold

__all__ = ["command"]

_COMMANDS = ":reset forgets what was said, :q or Ctrl-D ends, :help lists the commands"
_SAID = "a line with a blank before its : or / is said to the model"


@click.command()
@session_options
@click.pass_context
def command(ctx: click.Context, /, **wishes: Any) -> None:
    """Talk with a model, turn by turn.

    Ctrl-C stops a reply, Ctrl-D or :q ends the program, :reset forgets what was said, :help lists the
    commands. Where stdin is no terminal, each line of it is a turn.
    """
    with open_session(ctx, Wishes(**wishes)) as session:
        if sys.stdin.isatty():
            _tell(f"{session.family.title}; Ctrl-C stops a reply, {_COMMANDS}")
        chat = _Chat(session)
        while (line := _read_line()) is not None and line != ":q":
            if line == ":reset":
                chat = _Chat(session)
                _tell("forgotten")
            elif line == ":help":
                _tell(f"{_COMMANDS}; {_SAID}")
            elif line.startswith((":", "/")):
                _tell(f"{line.split()[0]} is no command: {_COMMANDS}; {_SAID}")
            elif line:
                chat.say(line.strip())


@define
class _Chat:
    """What was said so far, and the last answer if the next prompt can be built on it."""

    session: Session
    turns: list[Turn] = field(factory=list)
    last: Answer | None = None

    def say(self, line: str) -> None:
        """Say `line` and show the reply; one that is stopped counts as it stands."""
        said = Turn("user", (Text(line),))
        prompt = self._extended(said) or self.session.prompt([*self.turns, said])
        view, events = ReplyView(), list[Event]()

        def show(event: Event) -> None:
            events.append(event)
            view.feed(event)

        self.last = None
        try:
            self.last = self.session.reply(prompt, show)
        except KeyboardInterrupt:
            pass
        finally:
            view.close()
        reply = fold(events)
        parts: list[Part] = [Reasoning(reply.reasoning)] if reply.reasoning else []
        self.turns += [said, Turn("assistant", (*parts, Text(reply.content)))]

    def _extended(self, said: Turn) -> Prompt | None:
        """The next prompt on top of what the model has read and written, where the format allows it.

        The engine then finds every token of the past in its cache.
        """
        if self.last is None or self.last.raw is None:
            return None
        return self.session.family.extend(self.last.prompt, self.last.raw, [said])


def _read_line() -> str | None:
    """The next line without white space behind it; None at the end of the input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.rstrip() if line else None
    with suppress(ImportError):
        import readline  # noqa: F401  input() then edits lines and keeps a history
    while True:
        try:
            return input("> ").rstrip()
        except KeyboardInterrupt:
            click.echo()
        except EOFError:
            click.echo()
            return None


def _tell(words: str) -> None:
    click.secho(words, dim=True, err=True)
