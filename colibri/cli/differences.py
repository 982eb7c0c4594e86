"""How a place where two texts part is shown in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from colibri.differences import Change, Difference, visible

__all__ = ["change_lines", "difference_json", "difference_lines"]

_CONTEXT = 2


def difference_lines(difference: Difference, left: str, right: str) -> list[str]:
    """Both texts around the place, named `left` and `right`, and a caret below it."""
    width = max(len(left), len(right)) + 2
    at = difference.column
    return [
        f"{left + ':':<{width}}{_marked(difference.left, at)}",
        f"{right + ':':<{width}}{_marked(difference.right, at)}",
        " " * (width + at) + "^",
    ]


def difference_json(difference: Difference, left: str, right: str) -> dict[str, Any]:
    """The place as a JSON object; the excerpts go by the names `left` and `right`."""
    return {"at": difference.at, left: difference.left, right: difference.right}


def change_lines(changes: Iterable[Change]) -> Iterator[str]:
    """What changed, a line each: `-` only on the left, `+` only on the right, and a little around it."""
    told = list(changes)
    for index, (tag, left, right) in enumerate(told):
        if tag == "equal":
            yield from _around(left, head=index > 0, tail=index + 1 < len(told))
            continue
        yield from (click.style(f"- {visible(line)}", fg="red") for line in left)
        yield from (click.style(f"+ {visible(line)}", fg="green") for line in right)


def _around(lines: Sequence[str], *, head: bool, tail: bool) -> Iterator[str]:
    """Equal lines next to a change on either side; the others are only counted."""
    first = lines[: _CONTEXT if head else 0]
    last = lines[max(len(first), len(lines) - (_CONTEXT if tail else 0)) :]
    yield from (f"  {visible(line)}" for line in first)
    if left_out := len(lines) - len(first) - len(last):
        yield click.style(f"  … {left_out} equal line{'s' if left_out > 1 else ''}", dim=True)
    yield from (f"  {visible(line)}" for line in last)


def _marked(text: str, at: int) -> str:
    return text[:at] + click.style(text[at:], fg="red")
