"""Where two prompts part, shown so that nothing of it can be overlooked."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, TypeAlias

from attrs import frozen

from colibri.family import Prompt

__all__ = ["Change", "Difference", "changes", "excerpt", "first_difference", "pieces", "visible"]

Change: TypeAlias = tuple[Literal["equal", "replace", "delete", "insert"], tuple[str, ...], tuple[str, ...]]
"""What became of some pieces of the left text, and the pieces of the right one that stand there."""

_SIGNS = {" ": "·", "\n": "⏎", "\t": "⇥"}
_AROUND = 40


@frozen
class Difference:
    """The first place where two texts differ: `at` counts characters.

    left, right: what stands around it, made visible. column: where the place is in each of them.
    """

    at: int
    left: str
    right: str
    column: int


def visible(text: str) -> str:
    r"""`text` on one line, with a sign for every character that could not be seen or told apart.

    Space is `·`, newline `⏎`, tab `⇥`; other blanks, control and combining characters are `\u{...}`.
    """
    return "".join(
        _SIGNS.get(char) or (char if _is_plain(char) else f"\\u{{{ord(char):x}}}") for char in text
    )


def _is_plain(char: str) -> bool:
    return char.isprintable() and not unicodedata.combining(char)


def first_difference(left: str, right: str) -> Difference | None:
    """Where two texts part; None if they are equal."""
    if left == right:
        return None
    shorter = min(len(left), len(right))
    at = next((i for i in range(shorter) if left[i] != right[i]), shorter)
    shown, column = excerpt(left, at)
    return Difference(at, shown, excerpt(right, at)[0], column)


def excerpt(text: str, at: int, *, before: int = _AROUND, after: int = _AROUND) -> tuple[str, int]:
    """The visible text around a place, and the place's column in it; `…` stands for what is left out."""
    start, end = max(at - before, 0), min(at + after, len(text))
    lead = ("…" if start else "") + visible(text[start:at])
    return lead + visible(text[at:end]) + ("…" if end < len(text) else ""), len(lead)


def pieces(prompt: Prompt) -> list[str]:
    """The prompt's lines, cut also where another turn begins, for formats that write no newlines."""
    text, cuts = prompt.text, {0, len(prompt.text)}
    cuts.update(at + 1 for at, char in enumerate(text) if char == "\n")
    for before, after in pairwise(prompt.segments):
        if before.scope != after.scope:
            cuts.add(after.start)
    borders = sorted(cuts)
    return [text[start:end] for start, end in pairwise(borders)]


def changes(left: Sequence[str], right: Sequence[str]) -> list[Change]:
    """How the left pieces become the right ones, in order; what is equal is told too."""
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return [(tag, tuple(left[a:b]), tuple(right[c:d])) for tag, a, b, c, d in matcher.get_opcodes()]
