"""`colibri run`: answer one prompt."""

from __future__ import annotations

from typing import Any

import attrs
import click

from colibri.cli.common import as_json
from colibri.cli.inputs import InputError, read_text
from colibri.cli.output import write_json
from colibri.cli.replies import ReplyView, event_json
from colibri.cli.session import Wishes, open_session, session_options
from colibri.conversation import Text, Turn
from colibri.events import Event

__all__ = ["command"]


@click.command()
@click.argument("prompt", default="-")
@session_options
@as_json
@click.pass_context
def command(ctx: click.Context, /, prompt: str, as_json: bool, **wishes: Any) -> None:
    """Answer PROMPT, or what stdin holds when it is absent or "-".

    With --json the events of the reply come one a line, and the token counts last.
    """
    text = read_text("-") if prompt == "-" else prompt
    if not text.strip():
        raise InputError("the prompt is empty; give it as an argument or on stdin")
    view = ReplyView()

    def show(event: Event) -> None:
        write_json(event_json(event)) if as_json else view.feed(event)

    with open_session(ctx, Wishes(**wishes)) as session:
        try:
            answer = session.reply(session.prompt([Turn("user", (Text(text),))]), show)
        finally:
            view.close()
    if as_json:
        write_json({"type": "usage", **attrs.asdict(answer.done)})
