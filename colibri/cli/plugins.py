"""`colibri plugins`: who brings what, and what failed to load."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import click

from colibri.cli.common import as_json, disable_plugin, disabled_plugins
from colibri.cli.output import write_json, write_table
from colibri.errors import DuplicateClaim
from colibri.registry import PluginInfo, find_plugins, load

__all__ = ["command"]


@click.command()
@click.option("--all", "show_all", is_flag=True, help="List the built-in families' plugins too.")
@as_json
@disable_plugin
@click.pass_context
def command(ctx: click.Context, show_all: bool, as_json: bool) -> None:
    """List the plugins with what they bring, and why one failed to load.

    COLIBRI_LOAD_PLUGINS names the distributions to load; empty, it leaves only what is built in.
    """
    disabled = disabled_plugins(ctx)
    clash = None
    try:
        found: Sequence[PluginInfo] = load(disabled=disabled).plugins()
    except DuplicateClaim as error:
        clash, found = error, find_plugins(disabled=disabled)[1]
    shown = [info for info in found if show_all or not info.builtin or info.error is not None]
    if as_json:
        write_json([attrs.asdict(info) for info in shown])
    else:
        write_table(
            ("DISTRIBUTION", "VERSION", "PLUGIN", "FAMILIES", "HOOKS", "ERROR"),
            [_row(info) for info in shown],
            prose=("ERROR",),
            spare=("HOOKS", "PLUGIN", "VERSION"),
        )
    if clash is not None:
        raise clash


def _row(info: PluginInfo) -> tuple[str, ...]:
    return (
        info.distribution,
        info.version or "-",
        info.name,
        " ".join(info.families) or "-",
        " ".join(info.hooks) or "-",
        info.error or "-",
    )
