"""Whether a plugin implements a hook, told without importing it."""

from __future__ import annotations

from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

__all__ = ["any_plugin_names_hook"]


def any_plugin_names_hook(hook: str) -> bool:
    """Whether the module of any installed plugin spells `hook`, or cannot be read as Python source.

    Importing a plugin takes longer than the help text may, and most bring families only. A module that
    does not spell a hook's name does not bring it, unless by a star import.
    """
    return any(_may_name(entry.module, hook) for entry in entry_points(group="colibri"))


def _may_name(module: str, hook: str) -> bool:
    if "." in module:  # finding a submodule imports its package
        return True
    try:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            return False
        return hook in Path(spec.origin).read_text(encoding="utf-8")
    except (ImportError, OSError, ValueError):
        return True
