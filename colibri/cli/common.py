"""Options and steps that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from colibri.cli.failures import warn
from colibri.server.variables import both_names

if TYPE_CHECKING:
    from colibri.family import Family
    from colibri.registry import Registry

__all__ = [
    "DEFAULT_MODEL",
    "as_json",
    "config_option",
    "disable_plugin",
    "disabled_plugins",
    "family_option",
    "find_checkpoint",
    "find_family",
    "find_model",
    "load_registry",
    "model_on_disk",
    "model_option",
    "tool_fallback_option",
    "with_fallback",
]

DEFAULT_MODEL = "smollm2"
"""What `run`, `chat` and `serve` use when no model is named."""

_DISABLED = "colibri.disabled"
_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def _disable(ctx: click.Context, parameter: click.Parameter, names: Sequence[str]) -> None:
    ctx.meta.setdefault(_DISABLED, []).extend(names)


def disable_plugin(command: _Decorated) -> _Decorated:
    """Give a command the option --disable-plugin, which `load_registry` heeds."""
    return click.option(
        "--disable-plugin",
        multiple=True,
        metavar="NAME",
        expose_value=False,
        callback=_disable,
        help="Leave out a plugin or distribution; may be repeated.",
    )(command)


def disabled_plugins(ctx: click.Context) -> list[str]:
    """The names given with --disable-plugin, before and after the command."""
    names: list[str] = ctx.meta.get(_DISABLED, [])
    return names


model_option = click.option(
    "--model",
    "-m",
    envvar=both_names("COLI_MODEL"),
    metavar="PATH",
    help=f"Checkpoint: a folder, a .gguf file or a name that can be pulled; {DEFAULT_MODEL} when absent.",
)
family_option = click.option(
    "--family", "-f", metavar="ID", help="Model family; found from the checkpoint when absent."
)
config_option = click.option(
    "--config",
    metavar="FILE",
    help="TOML file with settings, its paths relative to its folder; flags and environment win over it.",
)
tool_fallback_option = click.option(
    "--tool-fallback", is_flag=True, help="Offer tools where the format has none, as `colibri serve` can."
)
as_json = click.option("--json", "as_json", is_flag=True, help="Write JSON for programs.")


def load_registry(ctx: click.Context) -> Registry:
    """The installed families; a plugin that failed to load is named on stderr.

    Raises:
        DuplicateClaim: two plugins claim one id.
    """
    from colibri.registry import load

    registry = load(disabled=disabled_plugins(ctx))
    for info in registry.plugins():
        if info.error is not None:
            warn(f"plugin {info.distribution} {info.version} failed to load: {info.error}")
    return registry


def model_on_disk(model: str | Path | None) -> Path | None:
    """The checkpoint that --model names; None when it is one that can be fetched and was not yet.

    Raises:
        ModelUnavailable: there is no such file, folder or model.
    """
    from colibri.errors import ModelUnavailable
    from colibri.models import cached, known_models

    if model is not None and Path(model).exists():
        return Path(model)
    known = known_models()
    name = str(model or DEFAULT_MODEL)
    if name not in known:
        raise ModelUnavailable(
            f"{name}: no such file or folder; name a checkpoint, or one of the models that can be pulled:"
            f" {', '.join(known)}"
        )
    return cached(known[name])


def find_model(model: str | Path | None) -> Path:
    """The checkpoint that --model names, fetched if it is one that can be.

    Raises:
        ModelUnavailable: there is no such file, folder or model, or it cannot be fetched.
    """
    path = model_on_disk(model)
    if path is not None:
        return path
    from colibri.cli.pull import fetch_shown

    return fetch_shown(str(model or DEFAULT_MODEL))


def find_family(registry: Registry, family: str | None, model: str | Path | None) -> Family:
    """The named family, else that of the checkpoint, which is only then looked for.

    Raises:
        UnknownFamily: no family has this id. CheckpointUnknown: no family claims the checkpoint.
        ModelUnavailable: see `find_model`.
    """
    return registry[family] if family is not None else registry.identify(find_model(model))


def with_fallback(family: Family, tool_fallback: bool) -> Family:
    """The family as --tool-fallback of `colibri serve` has it, if that is wished."""
    from colibri.server.served import with_settings
    from colibri.server.settings import Settings

    return with_settings(family, Settings(tool_fallback=tool_fallback))


def find_checkpoint(ctx: click.Context, family: str | None, model: str | None) -> tuple[Path, Family]:
    """The checkpoint and its family; a family that is not installed is told before anything is fetched.

    Raises:
        ColibriError: see `find_model` and `find_family`.
    """
    registry = load_registry(ctx)
    named = None if family is None else registry[family]
    path = find_model(model)
    return path, named or registry.identify(path)
