"""The Qwen family of Alibaba: Qwen3.6, Qwen3.5 and Qwen3.8."""

from __future__ import annotations

from importlib.resources import files

from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The variants, newest format first."""
    return [load_family(files(__package__) / f"{variant}.toml") for variant in ("qwen38", "qwen36", "qwen35")]
