"""The OLMoE family of Ai2: OLMoE-1B-7B-Instruct, releases 0125 and 0924."""

from __future__ import annotations

from importlib.resources import files

from colibri.families.olmoe.network import network
from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The variants, newest format first."""
    return [
        load_family(files(__package__) / f"{variant}.toml", network=network)
        for variant in ("olmoe", "olmoe_0924")
    ]
