"""What can be saved of a call whose arguments are not in any readable form, for those who opt in.

Small and coarsely quantised models write `<tool_call>find(A1)</tool_call>`: the name is right, the markers
of the argument are not. The text behind the name then becomes the one argument that the tool needs most.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from colibri.schema import Schema, argument, json_string

__all__ = ["lead_name", "salvaged"]

_LEAD = re.compile(r"\s*([A-Za-z0-9_.-]+)")


def lead_name(text: str, names: Container[str]) -> tuple[str, str] | None:
    """The declared name that `text` begins with and what follows it; None when it begins with none."""
    match = _LEAD.match(text)
    return (match[1], text[match.end() :]) if match and match[1] in names else None


def salvaged(loose: Iterable[str], schema: Schema | None, marks: Iterable[str]) -> str | None:
    """The arguments' JSON text made of the loose text of a call; None when there is none.

    The text without the call's `marks` and without one pair of parentheses around it is the tool's first
    required parameter, else its first one, else `input`.
    """
    text = "".join(loose)
    for mark in sorted(marks, key=len, reverse=True):
        text = text.replace(mark, "")
    text = text.strip()
    if text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    if not text:
        return None
    names = (*schema.required, *schema.names, "input") if schema else ("input",)
    member = schema.member(names[0]) if schema else None
    return f"{{{json_string(names[0])}: {argument(text, member.kinds if member else None)}}}"
