"""`colibri parse`: read a model's raw reply."""

from __future__ import annotations

from collections.abc import Sequence

import click

from colibri.cli.common import (
    as_json,
    disable_plugin,
    family_option,
    find_family,
    load_registry,
    model_option,
)
from colibri.cli.inputs import InputError, read_request, read_text, source_name
from colibri.cli.output import write_exactly, write_json
from colibri.cli.recordings import Chunk, read_chunks
from colibri.cli.render import asked
from colibri.cli.replies import event_json, event_line, reply_json, write_reply
from colibri.conversation import Tool
from colibri.events import Event
from colibri.family import Family, ParserLike, Prompt, Start
from colibri.protocols.openai_messages import tools_from_openai
from colibri.reply import fold

__all__ = ["command"]


@click.command()
@click.argument("reply_file", metavar="[FILE]", default="-")
@family_option
@model_option
@click.option(
    "--request",
    "request_file",
    metavar="FILE",
    help="The chat request that was answered: its tools, and with `messages` where its prompt left off.",
)
@click.option(
    "--start",
    type=click.Choice(["reasoning", "text"]),
    help="Where the reply begins, when the request is not at hand; absent, the reply opens its own.",
)
@click.option("--stream", is_flag=True, help="FILE is a recorded stream, one chunk a line.")
@click.option(
    "--finish", type=click.Choice(["stop", "length"]), help="What ended the reply; stop when not recorded."
)
@click.option("--events", is_flag=True, help="Write the events one a line instead of the folded reply.")
@as_json
@disable_plugin
@click.pass_context
def command(
    ctx: click.Context,
    reply_file: str,
    family: str | None,
    model: str | None,
    request_file: str | None,
    start: Start,
    stream: bool,
    finish: str | None,
    events: bool,
    as_json: bool,
) -> None:
    """Read the raw reply in FILE, or on stdin, into reasoning, text and tool calls.

    Nothing is a tool call unless the request declares the tool. A recorded stream has one chunk a line: a
    JSON string, an object with `text` and perhaps `control`, or a chunk of a completions stream.
    """
    chosen = find_family(load_registry(ctx), family, model)
    tools, prompt = _asked(chosen, request_file)
    if prompt is not None and start is not None:
        raise InputError("--start contradicts --request, whose prompt tells where the reply begins; drop one")
    text = read_text(reply_file)
    chunks = read_chunks(text, source_name(reply_file)) if stream else [Chunk(text)]
    found = _parse(chosen.new_parser(tools, prompt, start), chunks, finish)
    if not events:
        reply = fold(found)
        write_json(reply_json(reply)) if as_json else write_reply(reply)
        return
    for event in found:
        write_json(event_json(event)) if as_json else write_exactly(event_line(event) + "\n")


def _asked(family: Family, request_file: str | None) -> tuple[Sequence[Tool], Prompt | None]:
    """The tools that the reply may call, and the prompt it answers if that can be told."""
    if request_file is None:
        return (), None
    body = read_request(request_file)
    if "messages" not in body:
        return tools_from_openai(body.get("tools")), None
    conversation, cue = asked(family, body)
    return conversation.tools, family.render(conversation, cue=cue)


def _parse(parser: ParserLike, chunks: Sequence[Chunk], finish: str | None) -> list[Event]:
    events = [event for chunk in chunks for event in parser.feed(chunk.text, chunk.control)]
    recorded = "length" if any(chunk.cut for chunk in chunks) else "stop"
    return [*events, *parser.finish(finish or recorded)]
