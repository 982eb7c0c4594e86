"""Readers of JSON objects that are a call's arguments, or hold its name and arguments.

The object's text is passed on as it is spelled while it arrives, but for newlines and the like inside
strings, which models write and JSON wants escaped; strings and brackets are followed to know where it
ends, and the whole is checked when the call ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

from colibri.calls import Call
from colibri.events import ToolCallDelta
from colibri.schema import is_json, json_string
from colibri.states import WORD_LIMIT

__all__ = ["ArgumentsReader", "CallReader"]

_BLANK = " \t\r\n"
_OUTSIDE = re.compile(r'[^"{}\[\]]*+')
_INSIDE = re.compile(r'(?:[^"\\\x00-\x1f]++|\\.)*+', re.DOTALL)
_UNESCAPED = re.compile(r'[^"\\]*+')
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Follower:
    """Follows JSON text by its strings and brackets to where its first bracket closes.

    bare: the indexes of control characters inside strings, in the text taken last.
    """

    def __init__(self) -> None:
        self.bare: list[int] = []
        self._depth = 0
        self._string = False
        self._escaped = False
        self.closed = False

    def all_string(self, text: str) -> bool:
        """Whether the text lies in a string that it does not end, and may stay as it is spelled."""
        if not self._string or self._escaped:
            return False
        match = _INSIDE.match(text)
        return match is not None and match.end() == len(text)

    def take(self, text: str, at: int) -> int:
        """The index behind the closing bracket, or the end of the text when it is still open."""
        size = len(text)
        self.bare = []
        while at < size:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_INSIDE if self._string else _OUTSIDE).match(text, at)
            at = match.end() if match else at
            if at == size:
                break
            character = text[at]
            at += 1
            if self._string and character < " ":
                self.bare.append(at - 1)
            elif self._string:
                self._escaped = character == "\\"
                self._string = self._escaped
            elif character == '"':
                self._string = True
            else:
                self._depth += 1 if character in "{[" else -1
                if self._depth <= 0:
                    self.closed = True
                    break
        return at


class ArgumentsReader:
    """A JSON object that is the arguments; anything but one is no arguments, and white space is none."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._follower = _Follower()
        self._texts: list[str] = []
        self._foreign = False
        call.body = call.body or self

    @property
    def verdict(self) -> bool | None:
        """See `Body`."""
        if not self._texts and not self._foreign:
            return None
        return self.closed and is_json("".join(self._texts))

    @property
    def closed(self) -> bool:
        """Whether the object's closing brace came."""
        return self._follower.closed

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        if self.take_string(text, start, end):
            return
        at = 0
        if not self._texts and not self._foreign:
            at = len(text) - len(text.lstrip(_BLANK))
            self._call.frame("layout", start, start + at)
            self._foreign = at < len(text) and text[at] != "{"
        if not self._foreign:
            at = self.pass_on(text, at, start)
        self._call.frame("skipped", start + at, end)

    def take_string(self, text: str, start: int, end: int) -> bool:
        """Take the text if, as nearly always, it lies in a string that it does not end."""
        if self._call.index is None or not self._follower.all_string(text):
            return False
        self._texts.append(text)
        self._call.events.append(ToolCallDelta(self._call.index, text, start, end))
        return True

    def pass_on(self, text: str, at: int, start: int) -> int:
        """Give what belongs to the object from index `at` on; returns where it ends."""
        if self.closed or at == len(text):
            return at
        stop, begun = self._follower.take(text, at), at
        parts = []
        for bare in self._follower.bare:
            parts += [text[at:bare], json_string(text[bare])[1:-1]]
            at = bare + 1
        spelled = "".join([*parts, text[at:stop]])
        self._texts.append(spelled)
        self._call.started = True
        self._call.give(spelled, start + begun, start + stop)
        return stop

    def close(self, at: int) -> None:
        """See `Reader`."""

    def abandon(self) -> None:
        """See `Reader`."""


_Step: TypeAlias = Callable[[str, int], int]


class CallReader:
    """A JSON object that holds the name and the arguments, in any order.

    Arguments before the name wait for it. Arguments written as a string that spells an object are
    unpacked. `announce` is called with the name and the raw offset where it ends.
    """

    _ARGUMENTS = ("arguments", "args", "parameters")

    def __init__(self, call: Call, announce: Callable[[str, int], None]) -> None:
        self._call = call
        self._announce = announce
        self._step: _Step = self._open
        self._key = ""
        self._token: list[str] = []
        self._kept = 0
        self._limit: int | None = WORD_LIMIT
        self._then: Callable[[int], None] = self._after_key
        self._follower = _Follower()
        self._arguments: ArgumentsReader | None = None
        self._inside: ArgumentsReader | None = None
        self._packed: bool | None = None
        self._start = self._framed = 0
        call.body = self

    @property
    def verdict(self) -> bool | None:
        """See `Body`."""
        if self._arguments is not None:
            return self._arguments.verdict
        if self._packed is not None:
            return self._packed
        return None if self._step == self._done else False

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        if self._inside and self._inside.take_string(text, start, end):
            return
        self._start, self._framed = start, 0
        at = 0
        while at < len(text):
            at = self._step(text, at)
        self._frame(len(text))

    def close(self, at: int) -> None:
        """See `Reader`."""

    def abandon(self) -> None:
        """See `Reader`."""

    def _frame(self, at: int) -> None:
        self._call.frame("header", self._start + self._framed, self._start + at)
        self._framed = at

    # The steps: each takes characters from index `at` and gives the index of the next.

    def _open(self, text: str, at: int) -> int:
        if text[at] == "{":
            self._step = self._before_key
        elif text[at] not in _BLANK:
            self._step = self._lost
        return at + 1

    def _lost(self, text: str, at: int) -> int:
        return len(text)

    def _done(self, text: str, at: int) -> int:
        return len(text)

    def _before_key(self, text: str, at: int) -> int:
        if text[at] == '"':
            self._collect(self._after_key)
        elif text[at] == "}":
            self._step = self._done
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        if text[at] == ":":
            self._step = self._value
        return at + 1

    def _value(self, text: str, at: int) -> int:
        character = text[at]
        if character in _BLANK:
            return at + 1
        arguments = self._key in self._ARGUMENTS and self._arguments is None and self._packed is None
        if character == '"':
            if arguments:
                self._collect(self._unpack, limit=None)
            else:
                self._collect(self._name if self._key == "name" else self._after_value)
            return at + 1
        if character == "{" and arguments:
            self._arguments = self._inside = ArgumentsReader(self._call)
            self._step = self._in_arguments
            return at
        if arguments and character != "n":
            self._packed = False
        if character in "{[":
            self._follower = _Follower()
            self._step = self._nested
        else:
            self._step = self._scalar
        return at

    def _in_arguments(self, text: str, at: int) -> int:
        self._frame(at)
        if self._arguments is not None:
            at = self._framed = self._arguments.pass_on(text, at, self._start)
            if self._arguments.closed:
                self._inside = None
                self._step = self._before_key
        return at

    def _nested(self, text: str, at: int) -> int:
        at = self._follower.take(text, at)
        if self._follower.closed:
            self._step = self._before_key
        return at

    def _scalar(self, text: str, at: int) -> int:
        if text[at] in ",}":
            self._step = self._before_key
            return at
        return at + 1

    def _collect(self, then: Callable[[int], None], *, limit: int | None = WORD_LIMIT) -> None:
        """Read a string, keeping little more than `limit` characters, and call `then` behind it."""
        self._token, self._kept, self._then, self._limit = [], 0, then, limit
        self._step = self._in_string

    def _in_string(self, text: str, at: int) -> int:
        match = _UNESCAPED.match(text, at)
        end = match.end() if match else at
        self._keep(text[at:end])
        if end == len(text):
            return end
        if text[end] == "\\":
            self._keep("\\")
            self._step = self._escaped
        else:
            self._then(end + 1)
        return end + 1

    def _escaped(self, text: str, at: int) -> int:
        self._keep(text[at])
        self._step = self._in_string
        return at + 1

    def _keep(self, text: str) -> None:
        if self._limit is None or self._kept <= self._limit:
            self._token.append(text)
            self._kept += len(text)

    # What a finished string means; `at` is the index behind it.

    def _string(self) -> str | None:
        """The string that was read; None when it is too long or not JSON."""
        if self._limit is not None and self._kept > self._limit:
            return None
        try:
            value = json.loads(f'"{"".join(self._token)}"')
        except ValueError:
            return None
        # Half of an escaped surrogate pair is no character that could be sent on.
        return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else None

    def _after_key(self, at: int) -> None:
        self._key = self._string() or ""
        self._step = self._colon

    def _after_value(self, at: int) -> None:
        self._step = self._before_key

    def _name(self, at: int) -> None:
        self._step = self._before_key
        name = (self._string() or "").strip()
        if name and self._call.index is None:
            self._frame(at)
            self._announce(name, self._start + at)

    def _unpack(self, at: int) -> None:
        self._step = self._before_key
        text = self._string()
        self._packed = text is not None and text.lstrip(_BLANK)[:1] == "{" and is_json(text)
        if text is not None and self._packed:
            self._frame(at)
            self._call.started = True
            self._call.give(text, self._start + at, self._start + at)
