"""Gemma 4: reasoning in a channel of the turn, tool calls with bare keys and marked strings."""

from __future__ import annotations

from importlib.resources import files

from colibri import Family, hookimpl, load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one family of this plugin."""
    return [load_family(files(__name__) / "gemma4.toml")]
