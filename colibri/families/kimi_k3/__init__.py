"""The Kimi K3 family of Moonshot AI."""

from __future__ import annotations

from importlib.resources import files

from colibri.families.kimi_k3.results import named_results
from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one variant."""
    return [load_family(files(__package__) / "kimi_k3.toml", prepare=named_results)]
