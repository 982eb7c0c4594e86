"""`colibri engine-check`: does a program speak the serve line protocol?"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import click

from colibri.cli.common import as_json
from colibri.cli.output import write_json

if TYPE_CHECKING:
    from colibri_engine.conformance import Result

__all__ = ["command"]

_WORDS = {True: "ok", False: "FAILED", None: "skipped"}


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="CMD...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--slots", type=click.IntRange(1), default=2, show_default=True, help="Slots it is to have.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds that it may take for a reply.",
)
@as_json
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], slots: int, timeout: float, as_json: bool) -> None:
    """Check that a program can be served as an engine.

    CMD is the program with its arguments; it is run as the server would run it. The exit code is 1 if it
    fails a check.
    """
    try:
        argv = shlex.split(words[0]) if len(words) == 1 else list(words)
    except ValueError:
        raise click.BadParameter(f"{words[0]!r} has a quote that is not closed", param_hint="CMD") from None
    results = asyncio.run(_run(argv, slots, timeout, quiet=as_json))
    if as_json:
        write_json([attrs.asdict(result) for result in results])
    ctx.exit(any(result.passed is False for result in results))


async def _run(argv: Sequence[str], slots: int, seconds: float, *, quiet: bool) -> list[Result]:
    """All results, each shown as it comes."""
    from colibri_engine.conformance import run_checks
    from colibri_engine.process import foreign_command

    results = []
    async for result in run_checks(foreign_command(argv, slots=slots), seconds=seconds, slots=slots):
        results.append(result)
        if not quiet:
            click.echo(f"{_WORDS[result.passed]:8}{result.name}" + f": {result.detail}" * bool(result.detail))
    return results
