"""`colibri serve`: the HTTP server, with one option a setting."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from colibri.cli.common import config_option, disable_plugin, find_checkpoint, load_registry, model_on_disk
from colibri.engines import network_of, open_command, open_engine, open_process
from colibri.family import Family
from colibri.server.run import listen, run_server
from colibri.server.settings import SETTINGS, Setting, Settings, SettingsError, load_settings
from colibri_engine.api import Engine

__all__ = ["command", "opener"]

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
        shape = {"is_flag": True}
    elif row.kind == "list":
        shape["multiple"] = True
    elif row.choices:
        shape["type"] = click.Choice(row.choices)
    default = f"; default: {row.shown_default}" if row.shown_default else ""
    words = f"{row.help[:1].upper()}{row.help[1:]}. [{row.variable}{default}]"
    return click.option(row.flag, row.name, default=None, help=words, **shape)


@click.command()
@config_option
@click.option("--check-config", is_flag=True, help="Check the settings, write them as TOML, and end.")
@_setting_options
@disable_plugin
@click.pass_context
def command(ctx: click.Context, /, config: str | None, check_config: bool, **flags: Any) -> None:
    """Serve a model over HTTP, as an OpenAI-compatible API.

    Each setting is also an environment variable, shown in brackets, which may begin with COLI_ or COLIBRI_,
    and a key of the --config file.
    """
    settings = load_settings(config, os.environ, flags)
    if check_config:
        _check(ctx, settings)
        return
    path, family = _model(ctx, settings)
    open_it = opener(settings, path, family)
    logging.basicConfig(format="%(message)s")
    run_server(settings, family, open_it, lambda url: _announce(settings, family, url))
    # The carriage return writes over the ^C of a terminal.
    click.echo("\rstopped" if sys.stderr.isatty() else "stopped", err=True)


def _model(ctx: click.Context, settings: Settings) -> tuple[Path | None, Family]:
    """The checkpoint and its family; another engine may keep its model to itself."""
    if settings.engine_cmd is None or settings.model is not None:
        return find_checkpoint(ctx, settings.family, settings.model)
    if settings.family is None:
        raise SettingsError("`engine_cmd` needs `model` or `family`, to know how prompts are written")
    return None, load_registry(ctx)[settings.family]


def opener(settings: Settings, path: Path | None, family: Family) -> Callable[[], Awaitable[Engine]]:
    """What opens the engine that the settings ask for, as far as can be told before.

    Raises:
        ColibriError, EngineError: it cannot be opened.
    """
    shape: dict[str, Any] = {"context": settings.context, "slots": settings.kv_slots}
    ending: dict[str, Any] = {"drain_seconds": settings.engine_drain}
    if settings.engine_cmd is not None:
        argv = shlex.split(settings.engine_cmd)
        if shutil.which(argv[0]) is None:
            raise SettingsError(f"`engine_cmd`: there is no program {argv[0]}; name one that can be run")
        return partial(open_command, argv, checkpoint=path, **shape, **ending)
    assert path is not None
    network_of(path, family, context=settings.context)
    shape |= {"threads": settings.threads, "kv_folder": settings.kv_folder}
    if settings.engine == "local":
        return lambda: asyncio.to_thread(open_engine, path, family, **shape)
    return partial(open_process, path, family, **shape, **ending)


def _check(ctx: click.Context, settings: Settings) -> None:
    """Do what is done before a model is loaded, and write the settings that differ from the defaults.

    A model that was not fetched yet is not fetched.

    Raises:
        ColibriError, EngineError: the server would refuse to start.
    """
    if (settings.engine_cmd and not settings.model) or model_on_disk(settings.model) is not None:
        opener(settings, *_model(ctx, settings))
    elif settings.family is not None:
        load_registry(ctx)[settings.family]
    listen(settings).close()
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
        {"model": settings.model_id or family.served_as, "messages": [{"role": "user", "content": "Hello"}]}
    )
    headers = ["Content-Type: application/json"]
    if settings.api_key or settings.api_key_file:
        headers.append("Authorization: Bearer KEY")
    words = ["curl", f"{url}/v1/chat/completions"]
    for header in headers:
        words += ["-H", header]
    click.echo(f"serving {family.title} at {url}/v1\n{shlex.join([*words, '-d', body])}")
    sys.stdout.flush()
