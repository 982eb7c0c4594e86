"""One tool call while it is being written, and the readers of its name, keys and values.

A reader takes the text of one state and turns it into events. Only values that are not strings are held,
until they close.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from colibri.events import Event, Framing, ToolCallDelta, ToolCallStart
from colibri.literals import literal_to_json
from colibri.schema import Schema, argument, json_string
from colibri.states import WORD_LIMIT, State

if TYPE_CHECKING:
    from colibri.elements import Elements

__all__ = [
    "Body",
    "Call",
    "HeldReader",
    "NullReader",
    "Reader",
    "StringReader",
    "WordReader",
    "string_reader",
    "value_reader",
]


class Reader(Protocol):
    """Takes the text of one state."""

    def take(self, text: str, start: int, end: int) -> None:
        """More text, and its place in the raw reply."""
        ...

    def close(self, at: int) -> None:
        """The text is over, at raw offset `at`."""
        ...

    def abandon(self) -> None:
        """The reply ended inside the text: report what was held as cut."""
        ...


class Body(Reader, Protocol):
    """A JSON object that is, or holds, the arguments."""

    @property
    def verdict(self) -> bool | None:
        """Whether the arguments are whole and valid; None when there are none."""
        ...


@define
class Call:
    """A call that is being written.

    index: None until it was announced. schema: its tool's parameters, None for an undeclared tool.
    key: the argument whose value comes next. body: a JSON object that is, or holds, all the arguments.
    elements: nested elements that are open. broken: it was reported as broken; what follows belongs to
    nothing. started: some arguments were given. early: arguments that came before the name. loose: text of
    the call that belongs to no argument, kept where it may be salvaged.
    """

    events: list[Event] = field(repr=False)
    index: int | None = None
    schema: Schema | None = None
    key: str | None = None
    body: Body | None = None
    elements: Elements | None = None
    broken: bool = False
    started: bool = False
    early: list[tuple[str, int, int]] = field(factory=list)
    loose: list[str] = field(factory=list)

    def parameter(self) -> Schema:
        """The schema of the value to come; an unknown parameter is a string."""
        schema = self.schema.member(self.key) if self.schema and self.key is not None else None
        return schema or Schema({"type": "string"}, None)

    def opening(self) -> str:
        """The JSON text that leads to the next value; its key is then used up."""
        lead = ", " if self.started else "{"
        self.started = True
        name, self.key = json_string(self.key or ""), None
        return f"{lead}{name}: "

    def give(self, text: str, start: int, end: int) -> None:
        """More of the arguments' JSON text."""
        if self.index is not None:
            self.events.append(ToolCallDelta(self.index, text, start, end))
        else:
            self.early.append((text, start, end))

    def announce(self, index: int, call_id: str, name: str, start: int, end: int) -> None:
        """The name is known: begin the call, and give what came before its name."""
        self.index = index
        self.events.append(ToolCallStart(index, call_id, name, start, end))
        if self.early:
            text = "".join(text for text, _, _ in self.early)
            self.give(text, self.early[0][1], self.early[-1][2])
            self.early = []

    def frame(self, kind: str, start: int, end: int) -> None:
        """Text of the call that is not part of its arguments."""
        if end > start:
            self.events.append(Framing(kind, start, end))


class WordReader:
    """A name or a key: kept until it is left. `text` is None when it was too long to be one."""

    def __init__(self, events: list[Event]) -> None:
        self._events = events
        self.text: str | None = ""
        self.start = self.end = 0

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        if self.text is None:
            self._events.append(Framing("skipped", start, end))
            return
        if not self.text:
            self.start = start
        self.end = end
        self.text += text
        if len(self.text) > WORD_LIMIT:
            self.frame("skipped")
            self.text = None

    def frame(self, kind: str) -> None:
        """Report what was kept as framing."""
        if self.text:
            self._events.append(Framing(kind, self.start, self.end))

    def close(self, at: int) -> None:
        """See `Reader`."""

    def abandon(self) -> None:
        """See `Reader`."""
        self.frame("cut")


class StringReader:
    """A string value: passed on, escaped, as it comes."""

    def __init__(self, call: Call, at: int) -> None:
        self._call = call
        self._append = call.events.append
        call.give(call.opening() + '"', at, at)

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        self._append(ToolCallDelta(self._call.index or 0, encode_basestring(text)[1:-1], start, end))

    def close(self, at: int) -> None:
        """See `Reader`."""
        self._call.give('"', at, at)

    def abandon(self) -> None:
        """See `Reader`."""


class NullReader:
    """A value that is a string unless it is exactly `null`: its first characters wait for that."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._text = ""
        self._start = self._end = 0
        self._string: StringReader | None = None

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        if self._string is None:
            if not self._text:
                self._start = self._end = start
            if "null".startswith(self._text + text):
                self._text, self._end = self._text + text, end
                return
            self._string = self._begun()
        self._string.take(text, start, end)

    def _begun(self) -> StringReader:
        """The reader of what turned out to be a string, given what was kept."""
        string = StringReader(self._call, self._start)
        if self._text:
            string.take(self._text, self._start, self._end)
        return string

    def close(self, at: int) -> None:
        """See `Reader`."""
        if self._string is None and not self._text:
            self._start = self._end = at
        if self._string is None and self._text == "null":
            self._call.give(self._call.opening() + "null", self._start, self._end)
        else:
            (self._string or self._begun()).close(at)

    def abandon(self) -> None:
        """See `Reader`."""
        if self._string is None:
            self._call.frame("cut", self._start, self._end)


class HeldReader:
    """A value that is not a string: kept until it closes, then given as JSON text."""

    def __init__(self, call: Call, state: State, kinds: frozenset[str] | None) -> None:
        self._call = call
        self._state = state
        self._kinds = kinds
        self._texts: list[str] = []
        self._start = self._end = 0

    def take(self, text: str, start: int, end: int) -> None:
        """See `Reader`."""
        if not self._texts:
            self._start = start
        self._end = end
        self._texts.append(text)

    def close(self, at: int) -> None:
        """See `Reader`."""
        text = "".join(self._texts)
        if self._state.wire == "literal":
            value = literal_to_json(text, self._state.quote) or json_string(text.strip())
        else:
            value = argument(text, self._kinds)
        self._call.give(self._call.opening() + value, self._start if self._texts else at, at)

    def abandon(self) -> None:
        """See `Reader`."""
        self._call.frame("cut", self._start, self._end)


def string_reader(call: Call, kinds: frozenset[str], at: int) -> Reader:
    """The reader of a value that may be a string."""
    return NullReader(call) if "null" in kinds else StringReader(call, at)


def value_reader(call: Call, state: State, at: int) -> Reader:
    """The reader of the value of `call.key`: what the wire says decides, then the tool's schema."""
    if state.wire == "string":
        return StringReader(call, at)
    if state.wire is not None:
        return HeldReader(call, state, None)
    kinds = call.parameter().kinds
    if kinds is not None and "string" in kinds:
        return string_reader(call, kinds, at)
    return HeldReader(call, state, kinds)
