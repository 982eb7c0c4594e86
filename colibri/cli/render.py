"""`colibri render`: a request's exact prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from colibri.cli.differences import change_lines
from colibri.cli.inputs import parse_json, read_request
from colibri.cli.output import write_exactly, write_json
from colibri.conversation import Conversation
from colibri.differences import changes, pieces
from colibri.family import Family, Prompt
from colibri.protocols.fields import boolean, read
from colibri.protocols.openai_chat import conversation_of

__all__ = ["asked", "command"]


@click.command()
@click.argument("request_file", metavar="[FILE]", default="-")
@family_option
@model_option
@click.option(
    "--diff",
    "other",
    metavar="OTHER",
    help="Compare with the prompt of another family, or of the request with the fields of a JSON object.",
)
@tool_fallback_option
@as_json
@disable_plugin
@click.pass_context
def command(
    ctx: click.Context,
    request_file: str,
    family: str | None,
    model: str | None,
    other: str | None,
    tool_fallback: bool,
    as_json: bool,
) -> None:
    """Write the exact prompt of the chat request in FILE, or on stdin.

    The request is the JSON body of a chat completion. What shapes the prompt is read: messages, tools,
    tool_choice, reasoning_effort, enable_thinking, preserve_thinking, chat_template_kwargs,
    add_generation_prompt and continue_final_message. The prompt is what the family's official template
    writes, byte for byte; with --json it comes with its start, stops and segments.

    With --diff what differs between two prompts is written, line by line and turn by turn, blanks made
    visible; the exit code is 1 if anything does.
    """
    registry = load_registry(ctx)
    chosen = with_fallback(find_family(registry, family, model), tool_fallback)
    body = read_request(request_file)
    prompt = _prompt(chosen, body)
    if other is not None:
        fields = parse_json(other, "--diff") if other.lstrip().startswith("{") else {}
        versus = chosen if fields else with_fallback(registry[other], tool_fallback)
        names = (chosen.id, f"{versus.id} {other}" if fields else versus.id)
        ctx.exit(_compare(names, prompt, _prompt(versus, {**body, **fields}), as_json))
    if as_json:
        write_json({"family": chosen.id, **_described(prompt)})
    else:
        write_exactly(prompt.text)


def _prompt(family: Family, body: Mapping[str, Any]) -> Prompt:
    conversation, cue = asked(family, body)
    return family.render(conversation, cue=cue)


def _compare(names: tuple[str, str], left: Prompt, right: Prompt, as_json: bool) -> int:
    """Write what differs between two prompts; 1 if anything does, else 0."""
    told = changes(pieces(left), pieces(right))
    if as_json:
        write_json(
            {
                "names": names,
                "equal": left.text == right.text,
                "changes": [{"kind": tag, "left": a, "right": b} for tag, a, b in told],
            }
        )
    elif left.text != right.text:
        write_exactly(f"--- {names[0]}\n+++ {names[1]}\n")
        for line in change_lines(told):
            click.echo(line)
    return int(left.text != right.text)


def asked(family: Family, body: Mapping[str, Any]) -> tuple[Conversation, bool]:
    """The conversation in a chat request's body, and whether its prompt ends in a generation cue.

    Raises:
        ColibriError: a field is malformed.
    """
    conversation = conversation_of(body, efforts=family.features.efforts)
    wished = read(body, {"add_generation_prompt": boolean, "continue_final_message": boolean})
    open_last = wished.get("continue_final_message", False)
    return evolve(conversation, open_last=open_last), wished.get("add_generation_prompt", not open_last)


def _described(prompt: Prompt) -> dict[str, Any]:
    return {
        "text": prompt.text,
        "start": prompt.start,
        "stop": prompt.stop,
        "segments": [
            {
                "start": segment.start,
                "end": segment.end,
                "kind": segment.kind,
                "path": segment.path,
                "offset": segment.offset,
            }
            for segment in prompt.segments
        ],
    }
