"""Recorded replies without what they say: every letter an x, every digit a 1.

What decides how a reply is read stays as it is: markers, white space and punctuation, names of tools and
of their parameters, JSON's own words and escapes. Lengths and chunk borders stay too, so that what is
left is read in the same steps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from attrs import evolve

from colibri.conversation import Tool
from colibri.events import Event, Framing, ReasoningDelta, TextDelta, ToolCallDelta
from colibri.grammar import Grammar
from colibri.recording import Chunk, Recording
from colibri.reply import join
from colibri.schema import Schema

__all__ = ["redacted", "shape"]

_STRUCTURE = ("marker", "forgiven", "layout", "missing")
_VALUES = ("const", "default", "enum", "example", "examples")
_SCHEMA_WORDS = ("type", "$ref", "required")

# A pair of surrogate escapes, another escape of four digits, any escape, words of JSON and of Python,
# exponents, zeros that make a number malformed, and what an object that is a whole call calls its members.
_PAIR = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = r"\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
_KEPT = (
    r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.|\b(?:true|false|null|True|False|None)\b"
    r"|(?<=[0-9])[eE](?=[-+]?[0-9])|(?<![0-9.])0(?=[0-9])"
    r"|\"(?:name|arguments|args|parameters)\""
)
_NULL = r"\bnu?l?"  # a reply may be cut in the word that tells null from a string
_NEVER = r"(?!)"
_NAME = r"(?<=\"name\")\"?\s*:\s*\"(?:[^\"\\]|\\.)*\""


def redacted(recording: Recording, grammar: Grammar) -> Recording:
    """The same reply, prompt's end and tools without what they say."""
    words = _Words(recording.tools, grammar)
    whole = recording.raw
    raw = list(whole)
    for event in join(recording.play(grammar)):
        if _says_something(event):
            text = whole[event.start : event.end]
            if not (isinstance(event, Framing) and event.kind == "key" and text.strip() in words.known):
                header = isinstance(event, Framing) and event.kind in ("header", "skipped")
                raw[event.start : event.end] = words.without(text, header=header, last=event.end == len(raw))
    chunks, at = [], 0
    for chunk in recording.chunks:
        chunks.append(Chunk("".join(raw[at : at + len(chunk.text)]), chunk.control))
        at += len(chunk.text)
    prime = recording.prime
    return evolve(
        recording,
        chunks=tuple(chunks),
        tools=tuple(Tool(_declaration(tool.declaration)) for tool in recording.tools),
        prime=None if prime is None else words.without(prime, header=True, last=True),
    )


def shape(events: Iterable[Event]) -> list[tuple[object, ...]]:
    """What redaction leaves of events: their kinds and spans, names of calls, reasons."""
    told = ("index", "name", "kind", "reason")
    return [
        (type(event).__name__, event.start, event.end, *(getattr(event, name, None) for name in told))
        for event in join(events)
    ]


def _says_something(event: Event) -> bool:
    if isinstance(event, Framing):
        return event.kind not in _STRUCTURE
    return isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta)


class _Words:
    """Knows the words that decide how a reply is read."""

    def __init__(self, tools: Iterable[Tool], grammar: Grammar) -> None:
        schemas = [Schema(tool.parameters, tool.parameters) for tool in tools]
        self.known = {tool.name for tool in tools} | {name for one in schemas for name in one.names}
        marks = [mark for state in grammar.states.values() for mark in state.marks]
        named = {
            mark.at for mark in marks if grammar.states[mark.to].slot in ("name", "key") and mark.confirm
        }
        spelled = {mark.at for mark in marks} | set(grammar.special)
        known = "|".join(_beginning(word) for word in _longest_first(self.known)) or _NEVER
        patterns = (
            f"(?P<pair>{_PAIR})|(?P<escape>{_ESCAPE})",
            rf"(?:{_any(named)})(?:[\s\"']*(?:{known}))?",
            _any(spelled),
            rf"\"(?:{_any(self.known)})\"(?=\s*:)",
            _KEPT,
        )
        self._inside = re.compile("|".join(patterns), re.DOTALL)
        self._header = re.compile("|".join((*patterns, _NAME)), re.DOTALL)
        begun = (_beginning(word) for word in _longest_first(spelled))
        self._cut = re.compile(rf"(?:{'|'.join((*begun, _NULL))})\Z")

    def without(self, text: str, *, header: bool = False, last: bool = False) -> str:
        """`text` without what it says; `header`: it may name a call; `last`: the reply ends with it."""
        cut = self._cut.search(text) if last else None
        end = cut.start() if cut is not None else len(text)
        kept, at = [], 0
        for match in (self._header if header else self._inside).finditer(text, 0, end):
            kept += [_plain(text[at : match.start()]), _shortened(match)]
            at = match.end()
        return "".join((*kept, _plain(text[at:end]), text[end:]))


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted((word for word in words if word), key=len, reverse=True)


def _any(words: Iterable[str]) -> str:
    """Matches any of the words, the longest that it can."""
    return "|".join(map(re.escape, _longest_first(words))) or _NEVER


def _beginning(word: str) -> str:
    """Matches the longest beginning of `word`, at least one character."""
    pattern = ""
    for character in reversed(word):
        pattern = re.escape(character) + (f"(?:{pattern})?" if pattern else "")
    return pattern


def _shortened(match: re.Match[str]) -> str:
    if match["pair"]:
        return r"\u1111\u1111"
    return r"\u1111" if match["escape"] else match[0]


def _plain(text: str) -> str:
    """Letters and their accents as x, digits as 1."""
    return "".join(map(_placeholder, text))


def _placeholder(character: str) -> str:
    category = unicodedata.category(character)[0]
    return {"L": "x", "M": "x", "N": "1"}.get(category, character)


def _declaration(declaration: Any) -> dict[str, Any]:
    """A tool's declaration that is read as before: names, types and structure stay."""
    kept = {"name", "parameters", "function", "type", "strict"}
    shown: dict[str, Any] = {}
    for key, value in declaration.items():
        if key == "function" and isinstance(value, dict):
            shown[key] = _declaration(value)
        elif key == "parameters":
            shown[key] = _schema(value)
        else:
            shown[key] = value if key in kept else _value(value)
    return shown


def _schema(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _member(key, inner) for key, inner in value.items()}
    return [_schema(inner) for inner in value] if isinstance(value, list) else _value(value)


def _member(key: str, value: Any) -> Any:
    if key in _SCHEMA_WORDS and not isinstance(value, dict):
        return value
    return _value(value) if key in _VALUES else _schema(value)


def _value(value: Any) -> Any:
    """A value of the same type."""
    if isinstance(value, dict):
        return {key: _value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, str):
        return _plain(value)
    if isinstance(value, bool) or value is None:
        return value
    return type(value)(1 if value == int(value) else 1.5) if value == value and abs(value) < 1e308 else value
