"""What kind of value a tool's JSON schema wants, and the text of an argument made into that kind.

Schemas come from clients, so anything in them may have any shape; what is not understood admits
everything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from json.encoder import encode_basestring
from typing import Any
from urllib.parse import unquote

__all__ = ["Schema", "argument", "is_json", "json_string"]

_SCHEMAS = 200
_PYTHON = {"True": "true", "False": "false", "None": "null"}


class Schema:
    """One schema inside `root`, the document that its local `$ref`s point into."""

    def __init__(self, node: Any, root: Any) -> None:
        self.node = node
        self.root = root

    @cached_property
    def kinds(self) -> frozenset[str] | None:
        """The JSON types it admits ("string", "integer", ...); None when it does not say."""
        return _kinds(self.node, self.root, {})

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The properties that it declares."""
        found = dict.fromkeys(
            name
            for part in _parts(self.node, self.root)
            for name in _mapping(part.get("properties"))
            if isinstance(name, str)
        )
        return tuple(found)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """The properties that an object must have."""
        lists = (_list(part.get("required")) for part in _parts(self.node, self.root, union=False))
        return tuple(name for names in lists for name in names if isinstance(name, str))

    def member(self, name: str) -> Schema | None:
        """The schema of property `name`; None when it is not declared."""
        found = []
        for part in _parts(self.node, self.root):
            properties = _mapping(part.get("properties"))
            if name in properties:
                found.append(properties[name])
            elif isinstance(part.get("additionalProperties"), Mapping):
                found.append(part["additionalProperties"])
        if not found:
            return None
        return Schema(found[0] if len(found) == 1 else {"anyOf": found}, self.root)

    def items(self) -> Schema:
        """The schema of an array's items; one that admits everything when it is not declared."""
        found = [part["items"] for part in _parts(self.node, self.root) if "items" in part]
        return Schema({"anyOf": found} if found else {}, self.root)

    def target(self, reference: Any) -> Any:
        """What a local `$ref` points to; None when it leads nowhere."""
        return _target(reference, self.root)

    def admits(self, value: Any) -> bool:
        """Whether `value` has a type that the schema admits, its members and items too.

        A number written as an integer is one; a boolean is not a number.
        """
        todo: list[tuple[Schema, Any]] = [(self, value)]
        while todo:
            schema, value = todo.pop()
            kinds = schema.kinds
            if kinds is not None and not kinds & _kinds_of(value):
                return False
            if isinstance(value, dict):
                members = ((schema.member(str(name)), item) for name, item in value.items())
                todo += [(member, item) for member, item in members if member is not None]
            elif isinstance(value, list):
                todo += [(schema.items(), item) for item in value]
        return True


def argument(text: str, kinds: frozenset[str] | None) -> str:
    """The JSON text of an argument that the model wrote as `text`.

    Where a string is admitted the text is one, to the byte, except `null` where null is admitted too.
    Otherwise JSON stays as it is spelled, Python's True, False and None count as JSON, and what is not
    JSON is a string.
    """
    if kinds is not None and "string" in kinds:
        return "null" if text == "null" and "null" in kinds else json_string(text)
    word = text.strip()
    word = _PYTHON.get(word, word)
    return word if is_json(word) else json_string(text)


def json_string(text: str) -> str:
    """`text` as a JSON string, not escaped to ASCII."""
    return encode_basestring(text)


def is_json(text: str) -> bool:
    """Whether `text` is one JSON value, without NaN and infinities."""
    try:
        _STRICT.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(word: str) -> None:
    raise ValueError(word)


_STRICT = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(node: Any, root: Any, *, union: bool = True) -> Iterator[Mapping[str, Any]]:
    """The schema itself and every schema it is made of: `$ref`, `allOf` and, with `union`, alternatives."""
    todo, seen = [node], set[int]()
    for part in todo:
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if "$ref" in part:
            todo.append(_target(part["$ref"], root))
        for key in ("allOf", "anyOf", "oneOf") if union else ("allOf",):
            todo += _list(part.get(key))


def _target(reference: Any, root: Any) -> Any:
    """What a local reference such as `#/$defs/Box` points to; nothing when it leads nowhere."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node = root
    for step in unquote(reference[1:]).strip("/").split("/") if len(reference) > 1 else ():
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            node = next((item for index, item in enumerate(node) if str(index) == name), None)
        else:
            node = _mapping(node).get(name)
    return node


def _kinds(node: Any, root: Any, known: dict[int, frozenset[str] | None]) -> frozenset[str] | None:
    """The types that a schema admits; one that refers back to itself admits everything there."""
    if not isinstance(node, Mapping) or id(node) in known:
        return known.get(id(node))
    if len(known) > _SCHEMAS:
        return None
    known[id(node)] = None
    wanted = [_own_kinds(node)]
    if "$ref" in node:
        wanted.append(_kinds(_target(node["$ref"], root), root, known))
    wanted += [_kinds(part, root, known) for part in _list(node.get("allOf"))]
    for key in ("anyOf", "oneOf"):
        alternatives = [_kinds(part, root, known) for part in _list(node.get(key))]
        if alternatives and None not in alternatives:
            wanted.append(frozenset().union(*(kinds for kinds in alternatives if kinds)))
    stated = [kinds for kinds in wanted if kinds is not None]
    known[id(node)] = (frozenset.intersection(*stated) or stated[0]) if stated else None
    return known[id(node)]


def _own_kinds(node: Mapping[str, Any]) -> frozenset[str] | None:
    """The types that a schema names itself."""
    kind = node.get("type")
    kinds: set[str] = {kind} if isinstance(kind, str) else {k for k in _list(kind) if isinstance(k, str)}
    if not kinds:
        values = [node["const"]] if "const" in node else _list(node.get("enum"))
        kinds = {name for value in values for name in _kinds_of(value)}
    if not kinds and "properties" in node:
        kinds = {"object"}
    if not kinds and "items" in node:
        kinds = {"array"}
    if kinds and node.get("nullable") is True:
        kinds.add("null")
    return frozenset(kinds) or None


def _kinds_of(value: Any) -> frozenset[str]:
    """The JSON types that a value has."""
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int):
        return frozenset({"integer", "number"})
    for kind, name in ((float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return frozenset({name})
    return frozenset({"object"})
