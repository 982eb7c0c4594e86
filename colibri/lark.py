"""Parts of Lark grammars in the dialect of `llguidance`: texts, regexes, tokens, JSON of a schema.

`%json` holds a schema and `<[7]>` is the token 7; see https://github.com/guidance-ai/llguidance,
docs/syntax.md. Regexes are those of Rust.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from colibri.schema import Schema

__all__ = ["SPACE", "alone", "escaped", "json_of", "one_of", "quoted", "token"]

SPACE = r"/[ \t\r\n]{1,8}/?"
"""A little layout, or none."""

# The layouts that people and programs write, but no white space without end, in which weak models get lost.
_LAYOUT = {"whitespace_pattern": r"(\r?\n[ \t]{0,40}|[ \t]{0,2})", "lenient": True}
_DEFINITIONS = ("$defs", "definitions")
_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~%]+)(?:/|\Z)")
_BASES = frozenset({"$id", "$anchor", "$dynamicRef", "$recursiveRef", *_DEFINITIONS})


def quoted(text: str) -> str:
    """Exactly this text."""
    return json.dumps(text, ensure_ascii=False)


def token(token_id: int) -> str:
    """Exactly this token."""
    return f"<[{token_id}]>"


def json_of(schema: Any) -> str | None:
    """JSON of a schema; None if it is none, or has no value."""
    if schema is True:
        schema = {}
    return f"%json {json.dumps({**schema, 'x-guidance': _LAYOUT})}" if isinstance(schema, Mapping) else None


def escaped(text: str) -> str:
    """A regex of exactly this text, for Python too."""
    return re.sub(r"[^0-9A-Za-z_ <>=:\"']", lambda found: rf"\U{ord(found[0]):08x}", text)


def one_of(regexes: Iterable[str]) -> str:
    """A regex of what matches one of them."""
    return f"(?:{'|'.join(dict.fromkeys(regexes))})"


def alone(schema: Schema) -> Any:
    """A schema inside a document, as a document of its own; None where its references do not allow that."""
    references = _references(schema.node)
    if references is None:
        return None
    known: dict[str, dict[str, Any]] = {}
    todo = list(references)
    while todo:
        found = _REFERENCE.match(str(todo.pop()))
        if found is None:
            return None
        place, name = found.groups()
        if name in known.setdefault(place, {}):
            continue
        known[place][name] = definition = schema.target(f"#/{place}/{name}")
        further = _references(definition)
        if further is None:
            return None
        todo += further
    return {**known, **schema.node} if known else schema.node


def _references(node: Any) -> list[Any] | None:
    """Every `$ref` in a schema; None where something in it changes what they refer to."""
    found, todo = [], [node]
    while todo:
        part = todo.pop()
        if isinstance(part, list):
            todo += part
        elif isinstance(part, dict):
            if not part.keys().isdisjoint(_BASES):
                return None
            if "$ref" in part:
                found.append(part["$ref"])
            todo += part.values()
    return found
