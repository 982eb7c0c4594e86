"""SmolLM2-Instruct: a small ChatML model on the llama architecture."""

from __future__ import annotations

from importlib.resources import files

from colibri import Family, hookimpl, load_family
from colibri_smollm2.network import network

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The one family of this plugin."""
    return [load_family(files(__name__) / "smollm2.toml", network=network)]
