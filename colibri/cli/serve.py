"""`colibri serve`: the HTTP server, with one option a setting."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from colibri.cli.common import disable_plugin, find_model, load_registry
from colibri.server.settings import SETTINGS, Setting, load_settings

__all__ = ["command"]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])
_TYPES: dict[str, Any] = {"text": click.STRING, "integer": click.INT, "number": click.FLOAT}


def _setting_options(command: _Decorated) -> _Decorated:
    for row in reversed(SETTINGS):
        command = _option(row)(command)
    return command


def _option(row: Setting) -> Callable[[_Decorated], _Decorated]:
    """The option of one row; ranges are the table's to check, so that every source has one error."""
    shape: dict[str, Any] = {"type": _TYPES.get(row.kind, click.STRING)}
    if row.kind == "switch":
        shape = {"is_flag": True, "flag_value": True} if "/" not in row.flag else {"is_flag": True}
    elif row.kind == "list":
        shape["multiple"] = True
    elif row.choices:
        shape["type"] = click.Choice(row.choices)
    words = f"{row.help[:1].upper()}{row.help[1:]}. [{row.variable}]"
    return click.option(row.flag, row.name, default=None, help=words, **shape)


@click.command()
@click.option("--config", metavar="FILE", help="TOML file with settings; flags and environment win over it.")
@_setting_options
@disable_plugin
@click.pass_context
def command(ctx: click.Context, /, config: str | None, **flags: Any) -> None:
    """Serve a model over HTTP, as an OpenAI-compatible API.

    Each setting is also an environment variable, shown in brackets, and a key of the --config file.
    """
    settings = load_settings(config, os.environ, flags)
    print(settings, find_model, load_registry)
