"""`colibri parse`: read a model's raw reply."""

from __future__ import annotations

import click
from attrs import evolve

from colibri.cli.common import (
    as_json,
    disable_plugin,
    family_option,
    find_family,
    load_registry,
    model_option,
    tool_fallback_option,
    with_fallback,
)
from colibri.cli.explanations import explanation_json, write_explanation
from colibri.cli.failures import warn
from colibri.cli.inputs import InputError, read_request, read_text, source_name
from colibri.cli.output import write_exactly, write_json
from colibri.cli.recordings import Recorded, read_recording, write_recording
from colibri.cli.render import asked
from colibri.cli.replies import event_json, event_line, reply_json, write_reply
from colibri.explain import explain as explain_reply
from colibri.family import Family, Start
from colibri.grammar import Grammar
from colibri.protocols.openai_messages import tools_from_openai
from colibri.recording import Recording
from colibri.redaction import redacted, shape
from colibri.rendering import reply_tail
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
@click.option("--explain", is_flag=True, help="Tell step by step how the reply is read, and what is no call.")
@click.option("--record", metavar="FILE", help="Keep the reply with its chunks for a bug report.")
@click.option("--redact", is_flag=True, help="Record no words and digits of the reply, only its form.")
@tool_fallback_option
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
    explain: bool,
    record: str | None,
    redact: bool,
    tool_fallback: bool,
    as_json: bool,
) -> None:
    """Read the raw reply in FILE, or on stdin, into reasoning, text and tool calls.

    Nothing is a tool call unless the request declares the tool. A recorded stream has one chunk a line: a
    JSON string, an object with `text` and perhaps `control`, or a chunk of a completions stream. What
    --record kept is read with the family, tools and prompt of its time unless others are named.
    """
    if redact and record is None:
        raise InputError("--redact says how --record keeps a reply; name a file with --record")
    if events and explain:
        raise InputError("--events and --explain are two ways to show one reply; drop one")
    recorded = read_recording(read_text(reply_file), source_name(reply_file), stream=stream)
    named = family if family is not None or model is not None else recorded.family
    chosen = with_fallback(find_family(load_registry(ctx), named, model), tool_fallback)
    recording = _asked(chosen, recorded.recording, request_file, start)
    recording = evolve(recording, finish=finish or recording.finish)
    grammar = chosen.reply_grammar(recording.tools)
    if grammar is not chosen.grammar:  # the form of another family, of which the prompt knows nothing
        recording = evolve(recording, prime=None, start=recording.start or "text")
    if record is not None:
        _record(record, Recorded(recording, chosen.id), grammar, redact=redact)
    if explain:
        _explain(recording, chosen.id, grammar, as_json=as_json)
        return
    found = recording.play(grammar)
    if not events:
        reply = fold(found)
        write_json(reply_json(reply)) if as_json else write_reply(reply)
        return
    for event in found:
        write_json(event_json(event)) if as_json else write_exactly(event_line(event) + "\n")


def _asked(family: Family, recording: Recording, request_file: str | None, start: Start) -> Recording:
    """The recording as the reply to a request: with its tools, and behind its prompt if it has one."""
    if start is not None:
        recording = evolve(recording, start=start, prime=None)
    if request_file is None:
        return recording
    body = read_request(request_file)
    if "messages" not in body:
        return evolve(recording, tools=tuple(tools_from_openai(body.get("tools"))))
    if start is not None:
        raise InputError("--start contradicts --request, whose prompt tells where the reply begins; drop one")
    conversation, cue = asked(family, body)
    prompt = family.render(conversation, cue=cue)
    prime = reply_tail(prompt.text, family.grammar)
    return evolve(recording, tools=conversation.tools, prime=prime, start=None)


def _record(path: str, recorded: Recorded, grammar: Grammar, *, redact: bool) -> None:
    """Keep the reply in a file, without what it says if that is wished."""
    if redact:
        recording = recorded.recording
        kept = redacted(recording, grammar)
        if shape(kept.play(grammar)) != shape(recording.play(grammar)):
            warn("without its words this reply is read otherwise; the recording may not show what you saw")
        recorded = evolve(recorded, recording=kept)
    write_recording(path, recorded)


def _explain(recording: Recording, family: str, grammar: Grammar, *, as_json: bool) -> None:
    explanation = explain_reply(grammar, recording)
    if as_json:
        write_json(explanation_json(explanation, family, grammar))
    else:
        write_explanation(explanation, family, grammar, recording)
