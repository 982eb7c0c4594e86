"""Values written as programming-language literals, made into JSON text.

Two spellings are read: Python's (`[1, 'a', None]`, `{"k": (1, 2)}`) and one with bare keys and strings
between longer delimiters (`{k:<|"|>v<|"|>}`), in which strings are verbatim. Numbers stay as spelled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from colibri.schema import is_json, json_string

__all__ = ["literal_to_json"]

_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])")
_WORD = re.compile(r"[^,:\[\]{}()\"']+")
_PUNCTUATION = {"(": "[", ")": "]", "[": "[", "]": "]", "{": "{", "}": "}", ",": ", ", ":": ": "}
_ESCAPE = re.compile(
    r"\\(?:(\n)|([\\'\"abfnrtv])|([0-7]{1,3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(00[01][0-9a-fA-F]{5}))"
)
_ESCAPED = dict(zip("\\'\"abfnrtv", "\\'\"\a\b\f\n\r\t\v", strict=True))
_SURROGATE = re.compile("[\ud800-\udfff]")


def literal_to_json(text: str, quotes: Sequence[str]) -> str | None:
    """The JSON text of the literal `text`, whose strings stand between `quotes`; None if it is not one."""
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        quote = next((quote for quote in quotes if text.startswith(quote, at)), None)
        if quote is not None:
            end = _string_end(text, at + len(quote), quote)
            if end < 0:
                return None
            out.append(json_string(_unescaped(text[at + len(quote) : end], quote)))
            at = end + len(quote)
        elif text[at] in _PUNCTUATION:
            token = _PUNCTUATION[text[at]]
            if token in ("]", "}") and out and out[-1] == ", ":
                out.pop()
            out.append(token)
            at += 1
        elif (match := _NUMBER.match(text, at)) or (match := _WORD.match(text, at)):
            word, at = match.group().strip(), match.end()
            out.append(json_string(word) if text.startswith(":", at) else _WORDS.get(word, word))
        else:
            return None
    spelled = "".join(out)
    return spelled if is_json(spelled) else None


def _string_end(text: str, at: int, quote: str) -> int:
    if len(quote) > 1:
        return text.find(quote, at)
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" else 1
    return at if at < len(text) else -1


def _unescaped(text: str, quote: str) -> str:
    if len(quote) > 1 or "\\" not in text:
        return text
    text = _ESCAPE.sub(_escaped, text)
    if _SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _escaped(match: re.Match[str]) -> str:
    newline, simple, octal, *codes = match.groups()
    if newline:
        return ""
    if simple:
        return _ESCAPED[simple]
    if octal:
        return chr(int(octal, 8))
    code = int(next(code for code in codes if code), 16)
    return chr(code) if code < 0x110000 else match.group()
