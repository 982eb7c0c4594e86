"""`colibri verify`: a checkpoint's own chat template against the family."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from colibri.cli.common import as_json, disable_plugin, family_option, find_checkpoint
from colibri.cli.differences import difference_json, difference_lines
from colibri.cli.inputs import InputError
from colibri.cli.output import write_json
from colibri.differences import first_difference
from colibri.verify import Mismatch, compare, is_template, official_of, trials

__all__ = ["command"]

_Item = TypeVar("_Item")


@click.command()
@click.argument("path")
@family_option
@as_json
@disable_plugin
@click.pass_context
def command(ctx: click.Context, path: str, family: str | None, as_json: bool) -> None:
    """Compare a family's prompts with those of the chat template that PATH carries.

    PATH is a model folder, a .gguf file, a name that can be pulled, or a .jinja file with --family. A
    corpus of conversations is rendered both ways under every option of the variant; the first difference
    of each case that fails is shown, and the exit code is 1. What both refuse counts as equal.
    """
    if is_template(path) and family is None:
        raise InputError(f"{path}: a template alone does not tell its family; name it with --family")
    place, chosen = find_checkpoint(ctx, family, path)
    official = official_of(place, chosen)
    planned = trials(chosen)
    with _shown(planned, f"verifying {chosen.id}", quiet=as_json) as steps:
        failed = [found for trial in steps if (found := compare(chosen, official, trial)) is not None]
    if as_json:
        write_json(
            {
                "family": chosen.id,
                "renders": len(planned),
                "failed": [_as_json(mismatch) for mismatch in failed],
            }
        )
    else:
        _show(failed)
        verdict = (
            f"{len(failed)} of {len(planned)} renders differ from"
            if failed
            else (f"all {len(planned)} renders equal")
        )
        click.echo(f"{chosen.id}: {verdict} what the chat template of {path} gives")
    if failed:
        ctx.exit(1)


@contextmanager
def _shown(items: Sequence[_Item], what: str, *, quiet: bool) -> Iterator[Iterable[_Item]]:
    """The items, with a bar on stderr of how many are done if it is a terminal."""
    if quiet or not stderr_is_terminal():
        yield items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield bars.track(items, description=what)


def stderr_is_terminal() -> bool:
    """Whether somebody watches stderr."""
    return sys.stderr.isatty()


def _show(failed: Sequence[Mismatch]) -> None:
    """Each case that fails, with the options under which it fails in the same way."""
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for mismatch in failed:
        key = mismatch.trial.case, tuple(_lines(mismatch))
        alike.setdefault(key, []).append(mismatch.trial.options or "defaults")
    for (case, lines), options in alike.items():
        click.echo(f"{click.style(case, bold=True)} ({', '.join(options)})")
        click.echo("\n".join((*lines, "")))


def _lines(mismatch: Mismatch) -> list[str]:
    official, family = mismatch.official, mismatch.family
    if official.text is None:
        return [f"  only the template refuses it: {official.refusal}"]
    if family.text is None:
        return [f"  only the family refuses it: {family.refusal}"]
    difference = first_difference(official.text, family.text)
    assert difference is not None
    return ["  " + line for line in difference_lines(difference, "template", "family")]


def _as_json(mismatch: Mismatch) -> dict[str, Any]:
    trial, official, family = mismatch.trial, mismatch.official, mismatch.family
    told: dict[str, Any] = {"case": trial.case, "options": trial.options}
    if official.text is None or family.text is None:
        return {**told, "template_refuses": official.refusal, "family_refuses": family.refusal}
    difference = first_difference(official.text, family.text)
    assert difference is not None
    return {**told, **difference_json(difference, "template", "family")}
