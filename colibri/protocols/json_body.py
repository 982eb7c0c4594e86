"""Strict decoding of a JSON request body.

RFC 8259 leaves duplicate names, numbers beyond a double and unpaired surrogates to the implementation;
here they are refused, since a request must mean one thing and every text must be encodable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import isinf
from typing import Any, NoReturn

from colibri.protocols.base import ProtocolError

__all__ = ["MAX_DEPTH", "check_value", "decode_body"]

MAX_DEPTH = 64
"""How deep arrays and objects may nest; code that walks a body may recurse this far."""


def decode_body(raw: bytes) -> dict[str, Any]:
    """The JSON object that `raw` spells.

    Raises:
        ProtocolError: it is not UTF-8, not JSON, not an object, repeats a key, nests too deep, or holds a
            number beyond a double, an unpaired surrogate or a NUL character.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError.bad(
            f"the request body is not UTF-8 (byte {error.start}); send UTF-8 JSON", code=None
        ) from None
    try:
        body = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ProtocolError.bad(
            f"the request body is not valid JSON: {error.msg} at line {error.lineno} column {error.colno}",
            code=None,
        ) from None
    except RecursionError:
        raise _too_deep("") from None
    except ValueError:
        raise ProtocolError.bad("the request body holds an integer of too many digits") from None
    if not isinstance(body, dict):
        raise ProtocolError.bad("the request body must be a JSON object", code=None)
    check_value(body, spelled=text)
    return body


def check_value(value: Any, path: str = "", *, spelled: str = "\\u") -> None:
    """Refuse what no later step could handle, naming where in `value` it stands.

    `spelled` is the JSON text of `value`: only one with unicode escapes can hold an unpaired surrogate
    or NUL.

    Raises:
        ProtocolError: containers nest deeper than `MAX_DEPTH`, or a string holds a NUL character or an
            unpaired surrogate.
    """
    escaped = "\\u" in spelled
    if escaped and isinstance(value, str):
        _check_text(path, value)
    level = [(path, value)] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        below: list[tuple[str, Any]] = []
        for at, node in level:
            for key, child in _members(node):
                if isinstance(child, dict | list):
                    below.append((f"{at}.{key}" if at else str(key), child))
                elif escaped and isinstance(child, str):
                    _check_text(f"{at}.{key}" if at else str(key), child)
                if escaped and isinstance(key, str):
                    _check_text(at, key)
        level = below
    if level:
        raise _too_deep(level[0][0])


def _members(node: dict[str, Any] | list[Any]) -> Iterable[tuple[str | int, Any]]:
    return node.items() if isinstance(node, dict) else enumerate(node)


def _check_text(path: str, text: str) -> None:
    if "\0" in text:
        raise ProtocolError.bad(f"`{path}` holds a NUL character; remove it", path or None)
    try:
        text.encode()
    except UnicodeEncodeError:
        name = path.encode(errors="replace").decode()
        raise ProtocolError.bad(
            f"`{name}` holds an unpaired surrogate escape, which is no character; remove it", name or None
        ) from None


def _too_deep(path: str) -> ProtocolError:
    place = f"`{'.'.join(path.split('.')[:3])}`" if path else "the request body"
    return ProtocolError.bad(
        f"{place} nests arrays and objects deeper than {MAX_DEPTH} levels", path.split(".")[0] or None
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    decoded = dict(pairs)
    if len(decoded) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        name = twice.encode(errors="replace").decode()
        raise ProtocolError.bad(f"the key `{name}` occurs twice in one object; send it once", name)
    return decoded


def _finite(text: str) -> float:
    number = float(text)
    if isinf(number):
        raise ProtocolError.bad(f"the number {text[:40]} is too large; send one that fits a double")
    return number


def _constant(name: str) -> NoReturn:
    raise ProtocolError.bad(f"the request body is not valid JSON: {name} is not a JSON number", code=None)


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant)
