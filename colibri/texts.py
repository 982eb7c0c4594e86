"""Which strings and constants a JSON schema admits, for formats that write strings as they are.

What is asked is a schema's own keywords for strings, its alternatives and its references. `format` is an
annotation and does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import define, frozen

from colibri.schema import Schema

__all__ = ["Lengths", "Texts", "admits_all", "texts"]

_PARTS = 200
_PAIRS = 1_000_000
_UNSAID = ("pattern", "not", "if", "$dynamicRef", "$recursiveRef")
_NOTES = frozenset(
    {
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "default",
        "definitions",
        "deprecated",
        "description",
        "example",
        "examples",
        "format",
        "readOnly",
        "title",
        "writeOnly",
    }
)


@frozen
class Lengths:
    """Every text of `least` to `most` characters; None: there is no most."""

    least: int = 0
    most: int | None = None

    def admits(self, text: str) -> bool:
        """Whether the text is one of them."""
        return self.least <= len(text) and (self.most is None or len(text) <= self.most)

    @property
    def possible(self) -> bool:
        """Whether there is any such text."""
        return self.most is None or self.least <= self.most

    def both(self, other: Lengths) -> Lengths:
        """The texts that are among these and among the others."""
        mosts = [most for most in (self.most, other.most) if most is not None]
        return Lengths(max(self.least, other.least), min(mosts, default=None))


Text: TypeAlias = "str | Lengths | bool | None"
Texts: TypeAlias = "tuple[Text, ...]"
"""Alternatives: one string, or all of a length; True, False and None stand for themselves."""

_ANY: Texts = (Lengths(), True, False, None)


class _Unsaid(Exception):
    """The schema asks for something else of a string, or for too much."""


def texts(schema: Schema) -> Texts | None:
    """The strings that a schema admits, and which of true, false and null; None where that cannot be said."""
    try:
        return _Reading(schema).of(schema.node)
    except _Unsaid:
        return None


def admits_all(node: Any) -> bool:
    """Whether a schema plainly admits every value."""
    return node is True or (isinstance(node, Mapping) and node.keys() <= _NOTES)


@define
class _Reading:
    """Reads one schema; left: how many of its parts may still be looked at."""

    schema: Schema
    left: int = _PARTS

    def of(self, node: Any) -> Texts:
        self.left -= 1
        if node is True:
            return _ANY
        if not isinstance(node, Mapping) or not node.keys().isdisjoint(_UNSAID) or self.left < 0:
            raise _Unsaid
        found = _both(_typed(node), _listed(node))
        lengths = Lengths(_bound(node, "minLength") or 0, _bound(node, "maxLength"))
        found = _both(found, (*((lengths,) if lengths.possible else ()), *_ANY[1:]))
        if "$ref" in node:
            found = _both(found, self.of(self.schema.target(node["$ref"])))
        for part in _members(node, "allOf"):
            found = _both(found, self.of(part))
        for key in ("anyOf", "oneOf"):
            if key in node:
                several = [self.of(part) for part in _members(node, key)]
                if key == "oneOf" and not _apart(several):
                    raise _Unsaid
                found = _both(found, _distinct(text for each in several for text in each))
        return found


def _typed(node: Mapping[str, Any]) -> Texts:
    kinds = node.get("type", ["string", "boolean", "null"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list):
        raise _Unsaid
    named: dict[str, Texts] = {"string": (Lengths(),), "boolean": (True, False), "null": (None,)}
    return tuple(text for kind, several in named.items() if kind in kinds for text in several)


def _listed(node: Mapping[str, Any]) -> Texts:
    found = _ANY
    for values in ([node["const"]] if "const" in node else None, node.get("enum")):
        if values is not None:
            if not isinstance(values, list):
                raise _Unsaid
            plain = (value for value in values if value is None or isinstance(value, str | bool))
            found = _both(found, _distinct(plain))
    return found


def _bound(node: Mapping[str, Any], key: str) -> int | None:
    value = node.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        raise _Unsaid
    return int(value)


def _members(node: Mapping[str, Any], key: str) -> list[Any]:
    members = node.get(key, [])
    if not isinstance(members, list):
        raise _Unsaid
    return members


def _apart(several: list[Texts]) -> bool:
    """Whether no text is among two of several kinds."""
    return not any(_both(one, other) for at, one in enumerate(several) for other in several[:at])


def _both(one: Texts, other: Texts) -> Texts:
    """What is among the one and among the other."""
    if len(one) * len(other) > _PAIRS:
        raise _Unsaid
    pairs = ((left, right) for left in one for right in other)
    return _distinct(text for left, right in pairs for text in _shared(left, right))


def _shared(left: Text, right: Text) -> Iterator[Text]:
    if isinstance(left, Lengths) and isinstance(right, Lengths):
        if (both := left.both(right)).possible:
            yield both
    elif isinstance(left, Lengths):
        if isinstance(right, str) and left.admits(right):
            yield right
    elif isinstance(right, Lengths):
        if isinstance(left, str) and right.admits(left):
            yield left
    elif left == right:
        yield left


def _distinct(found: Iterable[Text]) -> Texts:
    return tuple(dict.fromkeys(found))
