"""`colibri serve`: the HTTP server, with one option a setting."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from colibri.cli.common import disable_plugin, find_checkpoint, load_registry, model_on_disk
from colibri.engines import open_command, open_engine, open_process
from colibri.family import Family
from colibri.server.run import run_server
from colibri.server.security import Keys, check_bind
from colibri.server.settings import SETTINGS, Setting, Settings, SettingsError, load_settings
from colibri_engine.api import Engine

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
@click.option("--check-config", is_flag=True, help="Check the settings, write them as TOML, and end.")
@_setting_options
@disable_plugin
@click.pass_context
def command(ctx: click.Context, /, config: str | None, check_config: bool, **flags: Any) -> None:
    """Serve a model over HTTP, as an OpenAI-compatible API.

    Each setting is also an environment variable, shown in brackets, and a key of the --config file.
    """
    settings = load_settings(config, os.environ, flags)
    if check_config:
        _check(ctx, settings)
        return
    path, family = _model(ctx, settings)
    logging.basicConfig(format="%(message)s")
    run_server(
        settings, family, lambda: _open(settings, path, family), lambda url: _announce(settings, family, url)
    )


def _model(ctx: click.Context, settings: Settings) -> tuple[Path | None, Family]:
    """The checkpoint and its family; another engine may keep its model to itself."""
    if settings.engine_cmd is None or settings.model is not None:
        return find_checkpoint(ctx, settings.family, settings.model)
    if settings.family is None:
        raise SettingsError("`engine_cmd` needs `model` or `family`, to know how prompts are written")
    return None, load_registry(ctx)[settings.family]


async def _open(settings: Settings, path: Path | None, family: Family) -> Engine:
    """The engine that the settings ask for."""
    shape: dict[str, Any] = {"context": settings.context, "slots": settings.kv_slots}
    if settings.engine_cmd is not None:
        argv = shlex.split(settings.engine_cmd)
        return await open_command(argv, checkpoint=path, drain_seconds=settings.engine_drain, **shape)
    assert path is not None
    shape |= {"threads": settings.threads, "kv_folder": settings.kv_folder}
    if settings.engine == "local":
        return await asyncio.to_thread(open_engine, path, family, **shape)
    return await open_process(path, family, drain_seconds=settings.engine_drain, **shape)


def _check(ctx: click.Context, settings: Settings) -> None:
    """Check what can be checked without loading the model, and write what differs from the defaults.

    Raises:
        ColibriError: the server would refuse to start.
    """
    check_bind(settings, Keys.load(settings))
    registry = load_registry(ctx)
    path = model_on_disk(settings.model)
    if settings.family is not None:
        registry[settings.family]
    elif path is not None:
        registry.identify(path)
    for row in SETTINGS:
        value = getattr(settings, row.name)
        if row.secret and value:
            click.echo(f"# {row.name}: {len(value)} given")
        elif value != row.default:
            click.echo(f"{row.name} = {json.dumps(value, ensure_ascii=False)}")
    click.echo("# These settings are valid; all others have their defaults.")


def _announce(settings: Settings, family: Family, url: str) -> None:
    """Tell where the server listens and how to try it."""
    body = json.dumps(
        {"model": settings.model_id or family.id, "messages": [{"role": "user", "content": "Hello"}]}
    )
    headers = ["Content-Type: application/json"]
    if settings.api_key or settings.api_key_file:
        headers.append("Authorization: Bearer KEY")
    words = ["curl", f"{url}/v1/chat/completions"]
    for header in headers:
        words += ["-H", header]
    click.echo(f"serving {family.title} at {url}/v1\n{shlex.join([*words, '-d', body])}")
    sys.stdout.flush()
