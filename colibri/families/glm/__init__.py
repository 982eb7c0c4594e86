"""The GLM family of Z.ai: GLM-5.2, GLM-5.3 and GLM-4.7-Flash."""

from __future__ import annotations

from importlib.resources import files

from colibri.family import Family
from colibri.hookspecs import hookimpl
from colibri.loading import load_family

__all__ = ["colibri_families"]


@hookimpl
def colibri_families() -> list[Family]:
    """The variants, newest format first."""
    return [load_family(files(__package__) / f"{variant}.toml") for variant in ("glm53", "glm52", "glm47")]
