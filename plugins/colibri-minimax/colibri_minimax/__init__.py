"""MiniMax-M3: tool calls as nested tags, and thinking that the model may choose itself."""

from __future__ import annotations

from importlib.resources import files

from colibri import Family, hookimpl, load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one family of this plugin."""
    return [load_family(files(__name__) / "minimax_m3.toml")]
