"""`colibri render`: a request's exact prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from colibri.cli.common import (
    as_json,
    disable_plugin,
    family_option,
    find_family,
    find_model,
    load_registry,
    model_option,
)
from colibri.cli.inputs import InputError, read_request
from colibri.cli.output import write_exactly, write_json
from colibri.conversation import Conversation, Thinking
from colibri.family import Prompt
from colibri.protocols.fields import Check, boolean, mapping, read, text
from colibri.protocols.openai_messages import conversation_from_openai

__all__ = ["command", "conversation_of"]

_FIELDS: Mapping[str, Check] = {
    "add_generation_prompt": boolean,
    "chat_template_kwargs": mapping,
    "continue_final_message": boolean,
    "enable_thinking": boolean,
    "preserve_thinking": boolean,
    "reasoning_effort": text,
}


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
    conversation, cue = conversation_of(read_request(request_file))
    prompt = chosen.render(conversation, cue=cue)
    if as_json:
        write_json({"family": chosen.id, **_described(prompt)})
    else:
        write_exactly(prompt.text)


def conversation_of(body: Mapping[str, Any]) -> tuple[Conversation, bool]:
    """The conversation in a chat request's body, and whether its prompt ends in a generation cue.

    Raises:
        ConversationError: a message, a tool or the tool choice is malformed. ProtocolError: another field
            is.
    """
    if "messages" not in body:
        raise InputError("the request has no `messages`; it must be the body of a chat completion")
    fields = read(body, _FIELDS)
    open_last = fields.get("continue_final_message", False)
    conversation = conversation_from_openai(
        body["messages"],
        body.get("tools"),
        tool_choice=body.get("tool_choice"),
        options=fields.get("chat_template_kwargs"),
        open_last=open_last,
        thinking=Thinking(
            enabled=fields.get("enable_thinking"),
            effort=fields.get("reasoning_effort"),
            preserve=fields.get("preserve_thinking"),
        ),
    )
    return conversation, fields.get("add_generation_prompt", not open_last)


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
