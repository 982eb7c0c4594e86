"""The DeepSeek V4 family: V4, its preview release, and V4.1."""

from __future__ import annotations

from importlib.resources import files

from colibri.families.deepseek_v4.results import in_call_order
from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The variants, newest format first."""
    return [
        load_family(files(__package__) / f"{variant}.toml", prepare=in_call_order)
        for variant in ("deepseek_v41", "deepseek_v4", "deepseek_v4_preview")
    ]
