"""JSON objects that end too early, as in calls that a reply's end cut off."""

from __future__ import annotations

import json
import re

__all__ = ["finished"]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+("?)', re.DOTALL)
_LOOSE_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*(\\(?:u[0-9a-fA-F]{0,3})?)\Z")
_LOOSE_WORD = re.compile(r"[-+.\w]+\Z")


def finished(text: str) -> str | None:
    """The object that `text` begins, closed where it stops; None if it begins none.

    What had begun stays, but for half a number or word; a key without a value gets null.
    """
    if not text.lstrip().startswith("{"):
        return None
    closed, closers = _closed(text)
    if not closers:
        return text if _is_object(text) else None
    for body in (closed, _LOOSE_WORD.sub("", closed)):
        for ending in ("", "null", ":null"):
            whole = (body.rstrip().removesuffix(",") if not ending else body) + ending + closers
            if _is_object(whole):
                return whole
    return None


def _closed(text: str) -> tuple[str, str]:
    """The text with its last string closed, and the brackets that are open."""
    open_brackets: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == '"':
            string = _STRING.match(text, at)
            assert string is not None
            if not string[1]:
                loose = _LOOSE_ESCAPE.search(text, at)
                text = (text[: loose.start(1)] if loose else text) + '"'
                break
            at = string.end()
            continue
        if text[at] in "{[":
            open_brackets.append("}" if text[at] == "{" else "]")
        elif text[at] in "}]" and open_brackets:
            open_brackets.pop()
        at += 1
    return text, "".join(reversed(open_brackets))


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
