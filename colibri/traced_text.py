"""Strings that remember where their characters came from.

They behave as plain ones do: every method first computes the plain result and only then labels it. What is
not known here gives a plain string, which counts as computed: a forgotten method loses a label, it never
forges one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Literal, Self, SupportsIndex, TypeAlias

from markupsafe import escape

from colibri.messages import Path
from colibri.provenance import Kind, Span

__all__ = ["Placed", "Run", "TracedMarkup", "TracedStr", "derived", "escaped", "joined", "made_from"]

Run: TypeAlias = tuple[int, Kind | Literal["enter", "leave"], Path, int | None]
"""Length, kind, path, and offset into the value or None.

A run of length 0 is no text but a mark of the loop whose number stands in place of the offset: "enter",
with the path of its item, or "leave".
"""


class Placed:
    """Any other value that knows the path it came from.

    Attributes of traced values start with an underscore, so that the sandbox hides them from templates.
    """

    __slots__ = ()
    _path: Path


def joined(pieces: Iterable[str]) -> TracedStr:
    """The pieces one after the other, labels kept."""
    pieces = [piece for piece in pieces if piece or _runs(piece)]
    if len(pieces) == 1 and type(pieces[0]) is TracedStr:
        return pieces[0]
    runs: list[Run] = []
    for piece in pieces:
        runs += _runs(piece)
    return TracedStr("".join(pieces), runs)


def made_from(text: str, value: Any) -> TracedStr:
    """Text that is a function of one value, such as its JSON."""
    if isinstance(value, Placed):
        return TracedStr(text, [(len(text), "value", value._path, None)])
    if isinstance(value, TracedStr) and len(value._runs) == 1:
        _, kind, path, _ = value._runs[0]
        return TracedStr(text, [(len(text), kind, path, None)])
    return derived(text, value)


def derived(text: str, *sources: Any) -> TracedStr:
    """Text made from the sources in a way that is not followed: only what their paths share is known."""
    paths = list(_paths(sources))
    if not paths or not text:
        return TracedStr(text)
    shared = paths[0]
    for path in paths:
        while path[: len(shared)] != shared:
            shared = shared[:-1]
    return TracedStr(text, [(len(text), "derived", shared, None)])


def _paths(value: Any) -> Iterator[Path]:
    match value:
        case TracedStr():
            yield from (run[2] for run in value._runs if run[0] and run[1] not in ("format", "computed"))
        case Placed():
            yield value._path
        case dict():
            for inner in value.values():
                yield from _paths(inner)
        case list() | tuple():
            for inner in value:
                yield from _paths(inner)


def _runs(text: str) -> list[Run]:
    if isinstance(text, TracedStr):
        return text._runs
    return [(len(text), "computed", (), None)] if text else []


def _shortened(run: Run, start: int, stop: int) -> Run:
    _, kind, path, offset = run
    return stop - start, kind, path, None if offset is None else offset + start


class TracedStr(str):
    """A string with a run for each stretch of one origin; plain text is computed."""

    __slots__ = ("_runs",)
    _runs: list[Run]

    def __new__(cls, text: str, runs: list[Run] | None = None) -> Self:
        """Make `text` with these runs, which add up to its length, or with the labels that it has."""
        self = str.__new__(cls, text)
        self._runs = _runs(text) if runs is None else runs
        return self

    def __str__(self) -> TracedStr:
        return self

    def __add__(self, other: str) -> TracedStr:
        if not isinstance(other, str):
            return NotImplemented
        return TracedStr(str.__add__(self, other), self._runs + _runs(other))

    def __radd__(self, other: str) -> TracedStr:
        if not isinstance(other, str):
            return NotImplemented
        return TracedStr(str.__add__(other, self), _runs(other) + self._runs)

    def __mul__(self, count: SupportsIndex) -> TracedStr:
        return TracedStr(str.__mul__(self, count), self._runs * count.__index__())

    __rmul__ = __mul__

    def __getitem__(self, key: SupportsIndex | slice) -> TracedStr:
        if not isinstance(key, slice):
            text = str.__getitem__(self, key)
            at = key.__index__() % len(self)
            return self._cut(at, at + len(text))
        start, stop, step = key.indices(len(self))
        if step == 1:
            return self._cut(start, max(start, stop))
        characters = list(self)
        return joined(characters[at] for at in range(start, stop, step))

    def __iter__(self) -> Iterator[str]:
        return iter(self._cuts((at, at + 1) for at in range(len(self))))

    def __mod__(self, values: Any) -> TracedStr:
        text = str.__mod__(self, values)
        result = None if isinstance(values, Mapping) else _percent(self, values)
        return result if result is not None and str.__eq__(result, text) else derived(text, self, values)

    def join(self, pieces: Iterable[str], /) -> TracedStr:
        """As `str.join`, labels kept."""
        pieces = list(pieces)
        text = str.join(self, pieces)
        runs: list[Run] = []
        for number, piece in enumerate(pieces):
            if number:
                runs += self._runs
            runs += _runs(piece)
        return TracedStr(text, runs)

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> TracedStr:
        """As `str.replace`, labels kept; those of the whole when `old` is empty."""
        if not old:
            return derived(str.replace(self, old, new, count), self, new)
        return joined([new]).join(self.split(old, count))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[TracedStr]:  # type: ignore[override]
        """As `str.split`, labels kept."""
        return self._pieces(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[TracedStr]:  # type: ignore[override]
        """As `str.rsplit`, labels kept."""
        return self._pieces(str.rsplit(self, sep, maxsplit), sep)

    def splitlines(self, keepends: bool = False) -> list[TracedStr]:  # type: ignore[override]
        """As `str.splitlines`, labels kept."""
        whole = _spans(str.splitlines(self, True))
        lines = str.splitlines(self, keepends)
        return self._cuts((start, start + len(line)) for (start, _), line in zip(whole, lines, strict=True))

    def partition(self, sep: str, /) -> tuple[TracedStr, TracedStr, TracedStr]:
        """As `str.partition`, labels kept."""
        head, found, tail = self._cuts(_spans(str.partition(self, sep)))
        return head, found, tail

    def rpartition(self, sep: str, /) -> tuple[TracedStr, TracedStr, TracedStr]:
        """As `str.rpartition`, labels kept."""
        head, found, tail = self._cuts(_spans(str.rpartition(self, sep)))
        return head, found, tail

    def lstrip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.lstrip`, labels kept."""
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.rstrip`, labels kept."""
        return self._cut(0, len(str.rstrip(self, chars)))

    def strip(self, chars: str | None = None, /) -> TracedStr:
        """As `str.strip`, labels kept."""
        return self.rstrip(chars).lstrip(chars)

    def removeprefix(self, prefix: str, /) -> TracedStr:
        """As `str.removeprefix`, labels kept."""
        return self._cut(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> TracedStr:
        """As `str.removesuffix`, labels kept."""
        return self._cut(0, len(str.removesuffix(self, suffix)))

    def capitalize(self) -> TracedStr:
        """As `str.capitalize`, labels kept."""
        return self._recased(str.capitalize(self))

    def casefold(self) -> TracedStr:
        """As `str.casefold`, labels kept."""
        return self._recased(str.casefold(self))

    def lower(self) -> TracedStr:
        """As `str.lower`, labels kept."""
        return self._recased(str.lower(self))

    def swapcase(self) -> TracedStr:
        """As `str.swapcase`, labels kept."""
        return self._recased(str.swapcase(self))

    def title(self) -> TracedStr:
        """As `str.title`, labels kept."""
        return self._recased(str.title(self))

    def upper(self) -> TracedStr:
        """As `str.upper`, labels kept."""
        return self._recased(str.upper(self))

    def _recased(self, text: str) -> TracedStr:
        if text == self:
            return self
        if len(text) != len(self):  # changing case never shortens, so equal lengths mean equal places
            return derived(text, self)
        return TracedStr(
            text,
            [(n, kind, path, None) if n else (n, kind, path, loop) for n, kind, path, loop in self._runs],
        )

    def _pieces(self, texts: list[str], sep: str | None) -> list[TracedStr]:
        spans: list[Span] = []
        at = 0
        for text in texts:
            start = str.find(self, text, at) if sep is None else at
            spans.append((start, start + len(text)))
            at = start + len(text) + len(sep or "")
        return self._cuts(spans)

    def _cut(self, start: int, stop: int) -> TracedStr:
        if start == 0 and stop == len(self):
            return self
        return self._cuts([(start, stop)])[0]

    def _cuts(self, spans: Iterable[Span]) -> list[TracedStr]:
        """The stretches of rising spans, in one pass over the runs; marks of loops are left behind."""
        found: list[TracedStr] = []
        runs, first, begin = self._runs, 0, 0
        for start, stop in spans:
            while first < len(runs) and begin + runs[first][0] <= start:
                begin += runs[first][0]
                first += 1
            inside: list[Run] = []
            at, position = first, begin
            while start < stop and at < len(runs) and position < stop:
                run = runs[at]
                end = position + run[0]
                if position < start or end > stop:
                    inside.append(_shortened(run, max(start - position, 0), min(stop, end) - position))
                elif run[0]:
                    inside.append(run)
                position = end
                at += 1
            found.append(TracedStr(str.__getitem__(self, slice(start, stop)), inside))
        return found


class TracedMarkup(TracedStr):
    """What the filters `safe` and `escape` give: text added to it is escaped for HTML, as jinja does it."""

    __slots__ = ()

    def __html__(self) -> str:
        return self

    def __add__(self, other: str) -> TracedMarkup:
        return TracedMarkup(TracedStr.__add__(self, escaped(other)))

    def __radd__(self, other: str) -> TracedMarkup:
        return TracedMarkup(TracedStr.__add__(escaped(other), self))


def escaped(text: Any) -> TracedMarkup:
    """As `markupsafe.escape`, labels kept where there is nothing to escape."""
    plain = str.__str__(escape(text))
    return TracedMarkup(text if plain == text else derived(plain, text))


def _spans(pieces: Sequence[str]) -> list[Span]:
    return list(pairwise(accumulate(map(len, pieces), initial=0)))


_PERCENT = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z%]")


def _percent(template: TracedStr, values: Any) -> TracedStr | None:
    """`template % values`; None when the template asks for more or other values than there are."""
    rest = list(values) if isinstance(values, tuple) else [values]
    pieces: list[str] = []
    at = 0
    for match in _PERCENT.finditer(template):
        pieces.append(template._cut(at, match.start()))
        at = match.end()
        if match.group() == "%%":
            pieces.append(template._cut(at - 1, at))
            continue
        if not rest:
            return None
        value = rest.pop(0)
        made = str(value) if match.group() == "%s" else derived(str.__mod__(match.group(), (value,)), value)
        pieces.append(made)
    return joined([*pieces, template._cut(at, len(template))])
