"""gpt-oss: the harmony format, in which every message of the assistant names its channel."""

from __future__ import annotations

from importlib.resources import files

from colibri import Family, hookimpl, load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one family of this plugin."""
    return [load_family(files(__name__) / "gpt_oss.toml")]
