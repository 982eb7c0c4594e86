"""The Inkling family."""

from __future__ import annotations

from importlib.resources import files

from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one variant."""
    return [load_family(files(__package__) / "inkling.toml")]
