"""The hooks of a colibri plugin. Implementations are marked with `colibri.hookimpl`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pluggy import HookimplMarker, HookspecMarker

if TYPE_CHECKING:
    import click

    from colibri.family import Family

__all__ = ["hookimpl", "hookspec"]

hookspec = HookspecMarker("colibri")
hookimpl = HookimplMarker("colibri")


@hookspec
def colibri_families() -> Iterable[Family]:  # type: ignore[empty-body]
    """Return the model families that this plugin brings."""


@hookspec
def colibri_commands(cli: click.Group) -> None:
    """Add commands to the `colibri` program."""
