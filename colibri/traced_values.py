"""Dicts, lists and numbers that remember where they came from.

They hold plain values and label what is taken out of them, so that what a template does not touch costs
nothing. A way to take values out that is not known here gives plain ones, which count as computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, SupportsIndex

from colibri.messages import Path
from colibri.provenance import Kind
from colibri.traced_text import Placed, TracedStr, made_from

__all__ = ["ChangedDict", "TracedDict", "TracedFloat", "TracedInt", "TracedList", "plain", "traced"]


def traced(value: Any, path: Path, kind: Kind = "value") -> Any:
    """The value, labelled by its path; a type that JSON does not know is left as it is."""
    if kind != "value":
        return TracedStr(value, [(len(value), kind, path, 0)] if value else [])
    maker = _MAKERS.get(type(value))
    return value if maker is None else maker(value, path)


def plain(value: Any) -> Any:
    """The value with every dict and list in it replaced by the one it was made from."""
    if isinstance(value, TracedDict | TracedList):
        return value._plain
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


class TracedDict(Placed, dict[Any, Any]):
    """A dict that knows its path."""

    __slots__ = ("_path", "_plain")

    def __init__(self, plain: dict[Any, Any], path: Path) -> None:
        dict.__init__(self, plain)
        self._plain = plain
        self._path = path

    def __getitem__(self, key: Any) -> Any:
        value = dict.__getitem__(self, key)
        if type(value) in _MAKERS:
            value = traced(value, (*self._path, key))
            dict.__setitem__(self, key, value)
        return value

    def __iter__(self) -> Iterator[Any]:
        return map(self._key, dict.__iter__(self))

    def __or__(self, other: Any) -> ChangedDict:
        return ChangedDict({**self, **other}, self._path)

    def __repr__(self) -> TracedStr:
        return made_from(repr(self._plain), self)

    def get(self, key: Any, default: Any = None, /) -> Any:
        """As `dict.get`."""
        try:
            return self[key]
        except KeyError:
            return default

    def keys(self) -> list[Any]:  # type: ignore[override]
        """The keys, each labelled as one: its path ends in "@key"."""
        return list(self)

    def values(self) -> list[Any]:  # type: ignore[override]
        """The values."""
        return [self[key] for key in dict.__iter__(self)]

    def items(self) -> list[tuple[Any, Any]]:  # type: ignore[override]
        """Keys and values."""
        return [(self._key(key), self[key]) for key in dict.__iter__(self)]

    def _key(self, key: Any) -> Any:
        return traced(key, (*self._path, key, "@key")) if type(key) is str else key


class ChangedDict(Placed, dict[Any, Any]):
    """What `|` makes of a `TracedDict`: it stands at the same path, and labels nothing anew."""

    __slots__ = ("_path",)

    def __init__(self, items: dict[Any, Any], path: Path) -> None:
        dict.__init__(self, items)
        self._path = path

    def __or__(self, other: Any) -> ChangedDict:
        return ChangedDict({**self, **other}, self._path)


class TracedList(Placed, list[Any]):
    """A list that knows its path."""

    __slots__ = ("_path", "_plain")

    def __init__(self, plain: list[Any] | tuple[Any, ...], path: Path) -> None:
        list.__init__(self, plain)
        self._plain = plain
        self._path = path

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        if isinstance(key, slice):
            return [self._at(at) for at in range(*key.indices(len(self)))]
        list.__getitem__(self, key)  # raises what a plain list raises
        return self._at(key.__index__() % len(self))

    def __iter__(self) -> Iterator[Any]:
        return map(self._at, range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return map(self._at, reversed(range(len(self))))

    def __add__(self, other: list[Any]) -> list[Any]:
        return [*self, *other]

    def __repr__(self) -> TracedStr:
        return made_from(repr(self._plain), self)

    def _at(self, at: int) -> Any:
        value = list.__getitem__(self, at)
        if type(value) in _MAKERS:
            value = traced(value, (*self._path, at))
            list.__setitem__(self, at, value)
        return value


class TracedInt(Placed, int):
    """A whole number that knows its path."""

    def __new__(cls, value: int, path: Path) -> Self:
        """Make a number that came from `path`."""
        self = int.__new__(cls, value)
        self._path = path
        return self

    def __str__(self) -> TracedStr:
        return made_from(int.__repr__(self), self)


class TracedFloat(Placed, float):
    """A number that knows its path."""

    def __new__(cls, value: float, path: Path) -> Self:
        """Make a number that came from `path`."""
        self = float.__new__(cls, value)
        self._path = path
        return self

    def __str__(self) -> TracedStr:
        return made_from(float.__repr__(self), self)


# Exact types: a subclass may behave in ways that are not known here.
_MAKERS: dict[type, Callable[[Any, Path], Any]] = {
    str: lambda value, path: TracedStr(value, [(len(value), "value", path, 0)] if value else []),
    dict: TracedDict,
    list: TracedList,
    tuple: TracedList,
    int: TracedInt,
    float: TracedFloat,
}
