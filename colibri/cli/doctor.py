"""`colibri doctor`: what would fail here, and how to repair it."""

from __future__ import annotations

import os
import sys
from typing import Any

import attrs
import click

from colibri.cli.checks import examine
from colibri.cli.common import (
    as_json,
    config_option,
    disable_plugin,
    disabled_plugins,
    family_option,
    model_option,
)
from colibri.cli.output import write_json, write_table
from colibri.server.settings import load_settings

__all__ = ["command"]

_SHOWN = {"ok": "ok", "note": "note", "fails": "FAILS"}


@click.command()
@model_option
@family_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The port that a server would listen on, instead of that of the settings.",
)
@config_option
@as_json
@disable_plugin
@click.pass_context
def command(ctx: click.Context, /, config: str | None, as_json: bool, **flags: Any) -> None:
    """Tell what would keep a model from being served here, and how to repair it.

    The settings are those that a server would have: of the --config file and the environment. Nothing is
    fetched, loaded or changed. The exit code is 1 when something fails.
    """
    findings = list(examine(load_settings(config, os.environ, flags), disabled_plugins(ctx)))
    failing = [finding for finding in findings if finding.state == "fails"]
    if as_json:
        write_json({"ok": not failing, "checks": [attrs.asdict(finding) for finding in findings]})
    else:
        rows = [(_SHOWN[one.state], one.name, one.found, one.repair or "-") for one in findings]
        write_table(("", "CHECK", "FOUND", "REPAIR"), rows, prose=("FOUND", "REPAIR"))
    sys.exit(1 if failing else 0)
