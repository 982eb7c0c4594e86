"""The two names of every environment variable."""

from __future__ import annotations

__all__ = ["both_names"]

_PREFIXES = ("COLI_", "COLIBRI_")


def both_names(variable: str) -> tuple[str, str]:
    """`variable`, which begins with one prefix of the program, and its name with the other."""
    prefix, other = _PREFIXES if variable.startswith(_PREFIXES[0]) else reversed(_PREFIXES)
    return variable, other + variable.removeprefix(prefix)
