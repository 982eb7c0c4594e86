"""Where the characters of a prompt came from.

Nothing is trusted by default: only what a template's own text and literals wrote is "format", and only
the tokenizer's special tokens handed in by the family are "special". Whatever loses its label becomes
untrusted text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from attrs import frozen

from colibri.messages import Path

__all__ = ["Kind", "Segment", "Span", "scoped_spans", "trusted_spans"]

Kind: TypeAlias = Literal["format", "special", "value", "computed", "derived"]
Span: TypeAlias = tuple[int, int]


@frozen
class Segment:
    """A stretch of the prompt with one origin: characters [start, end), never empty.

    kind: "format", written by the template; "special", a special token handed in by the family; "value",
    from the variable at `path`; "computed", made by the template, such as a counter; "derived", made from
    several values, or in a way that cannot be followed.
    path: keys and indexes into the template's variables, ("messages", 3, "content"); a printed dict key
    ends in "@key"; for "derived" what its sources have in common. offset: the characters are exactly
    those of the value from there on; None when they are only made from it, like a number or its JSON.
    scope: the path of the item, such as ("messages", 3), that the template's outermost loop was at.
    """

    start: int
    end: int
    kind: Kind
    path: Path = ()
    offset: int | None = None
    scope: Path | None = None


def trusted_spans(segments: Iterable[Segment]) -> tuple[Span, ...]:
    """Where spellings of special tokens are real: what the format wrote, neighbours merged."""
    return _merged((s.start, s.end) for s in segments if s.kind in ("format", "special"))


def scoped_spans(segments: Iterable[Segment], scope: Path) -> tuple[Span, ...]:
    """What was written in the turn of `scope`, such as ("messages", 3), its markers included.

    It is the ground of a loss mask: of the spans of assistant messages, leave out the generation cue.
    """
    return _merged((s.start, s.end) for s in segments if s.scope == scope)


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    merged: list[Span] = []
    for start, end in spans:
        if merged and merged[-1][1] == start:
            start = merged.pop()[0]
        merged.append((start, end))
    return tuple(merged)
