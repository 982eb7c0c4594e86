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
    find_model,
    load_registry,
    model_option,
)
from colibri.cli.inputs import read_request
from colibri.cli.output import write_exactly, write_json
from colibri.conversation import Conversation
from colibri.family import Family, Prompt
from colibri.protocols.fields import boolean, read
from colibri.protocols.openai_chat import conversation_of

__all__ = ["asked", "command"]


@click.command()
@click.argument("request_file", metavar="[FILE]", default="-")
@family_option
@model_option
@as_json
@disable_plugin
@click.pass_context
def command(
    ctx: click.Context, request_file: str, family: str | None, model: str | None, as_json: bool
) -> None:
    """Write the exact prompt of the chat request in FILE, or on stdin.

    The request is the JSON body of a chat completion. What shapes the prompt is read: messages, tools,
    tool_choice, reasoning_effort, enable_thinking, preserve_thinking, chat_template_kwargs,
    add_generation_prompt and continue_final_message. The prompt is what the family's official template
    writes, byte for byte; with --json it comes with its start, stops and segments.
    """
    registry = load_registry(ctx)
    chosen = registry[family] if family is not None else find_family(registry, None, find_model(model))
    conversation, cue = asked(chosen, read_request(request_file))
    prompt = chosen.render(conversation, cue=cue)
    if as_json:
        write_json({"family": chosen.id, **_described(prompt)})
    else:
        write_exactly(prompt.text)


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
