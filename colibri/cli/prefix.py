"""`colibri prefix`: whether each prompt of a conversation starts with the one before."""

from __future__ import annotations

from typing import Any

import attrs
import click

from colibri.cli.common import (
    as_json,
    disable_plugin,
    family_option,
    find_family,
    load_registry,
    model_option,
)
from colibri.cli.differences import difference_json, difference_lines
from colibri.cli.inputs import read_request
from colibri.cli.output import write_json
from colibri.cli.render import asked
from colibri.prefix import Step, check_prefixes

__all__ = ["command"]


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
    """Tell whether each prompt starts with the one before and its reply, and why not.

    An engine goes on from what it computed only as far as the texts agree. The request in FILE, or on
    stdin, is read as `colibri render` reads it: each of its assistant turns that is followed by another
    turn is looked at. `had` is what the engine has, `next` the prompt that comes.
    """
    chosen = find_family(load_registry(ctx), family, model)
    conversation, _ = asked(chosen, read_request(request_file))
    steps = check_prefixes(chosen, conversation)
    if as_json:
        write_json({"family": chosen.id, "steps": [_as_json(step) for step in steps]})
        return
    for step in steps:
        _show(step)
    if not steps:
        click.echo("no assistant turn of the request is followed by another turn")


def _show(step: Step) -> None:
    if step.broken is None:
        click.echo(f"turn {step.turn}: the next prompt goes on behind all {step.length} characters")
        return
    verdict = f"the next prompt keeps {step.kept} of {step.length} characters"
    click.echo(f"{click.style(f'turn {step.turn}: {verdict}', bold=True)}: {step.broken.message}")
    for line in difference_lines(step.broken.difference, "had", "next"):
        click.echo(f"  {line}")


def _as_json(step: Step) -> dict[str, Any]:
    broken = step.broken
    return {
        "turn": step.turn,
        "next_turn": step.next_turn,
        "length": step.length,
        "kept": step.kept,
        "broken": broken
        and {
            "cause": broken.cause,
            "message": broken.message,
            "where": attrs.asdict(broken.where),
            **difference_json(broken.difference, "had", "next"),
        },
    }
