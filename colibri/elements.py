"""Arguments written as nested elements, with the types that the tool's schema gives them.

The scanner has one state for all depths; the stack is here. A string right below the call is passed on
as it comes; anything deeper is built and given when its outermost element closes.
"""

from __future__ import annotations

from attrs import define, field

from colibri.calls import Call, Reader, string_reader
from colibri.schema import Schema, argument, json_string

__all__ = ["DEPTH_LIMIT", "Elements"]

DEPTH_LIMIT = 64
"""How deep elements nest at most; the tags of deeper ones are text, so that closing them stays cheap."""


@define
class _Element:
    name: str
    schema: Schema
    texts: list[str] = field(factory=list)
    children: list[tuple[str, str]] = field(factory=list)

    def child(self, name: str) -> Schema:
        """The schema of an element inside it."""
        member = self.schema.member(name)
        if member is not None:
            return member
        listed = name == "item" or "array" in (self.schema.kinds or ())
        return self.schema.items() if listed else Schema({}, None)

    def value(self) -> str:
        """Its JSON text."""
        kinds = self.schema.kinds or frozenset()
        text = "".join(self.texts)
        if self.children:
            names = {name for name, _ in self.children}
            if names == {"item"} or ("array" in kinds and "object" not in kinds):
                return f"[{', '.join(value for _, value in self.children)}]"
            return self._object()
        if not text.strip() and "string" not in kinds:
            for kind, empty in (("array", "[]"), ("object", "{}"), ("null", "null")):
                if kind in kinds:
                    return empty
        return argument(text, self.schema.kinds)

    def _object(self) -> str:
        members: dict[str, list[str]] = {}
        for name, value in self.children:
            members.setdefault(name, []).append(value)
        pairs = []
        for name, values in members.items():
            value = values[0] if len(values) == 1 else f"[{', '.join(values)}]"
            pairs.append(f"{json_string(name)}: {value}")
        return f"{{{', '.join(pairs)}}}"


class Elements:
    """The open elements of one call."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._stack: list[_Element] = []
        self._beyond = 0
        self._string: Reader | None = None

    @property
    def open(self) -> bool:
        """Whether an element is open."""
        return bool(self._stack)

    def take(self, text: str, start: int, end: int) -> None:
        """Text of the innermost element; between elements it is layout."""
        if self._string is not None:
            self._string.take(text, start, end)
            return
        if self._stack:
            self._stack[-1].texts.append(text)
        self._call.frame("element" if self._stack else "layout", start, end)

    def close(self, at: int) -> None:
        """See `Reader`."""

    def abandon(self) -> None:
        """The call ended while elements were open: report what was kept."""
        string, self._string = self._string, None
        if string is not None:
            string.abandon()

    def begin(self, name: str, tag: str, at: int) -> None:
        """An element `name` begins; `tag` is its whole tag, text again if it stands inside a string."""
        if self._string is not None:
            self._string.take(tag, at, at)
        elif len(self._stack) == DEPTH_LIMIT:
            self._beyond += 1
            self._stack[-1].texts.append(tag)
        elif self._stack:
            self._stack.append(_Element(name, self._stack[-1].child(name)))
        else:
            self._call.key = name
            schema = self._call.parameter()
            self._stack.append(_Element(name, schema))
            kinds = schema.kinds or frozenset()
            if "string" in kinds and not kinds & {"object", "array"}:
                self._string = string_reader(self._call, kinds, at)

    def end(self, name: str, tag: str, at: int) -> None:
        """A closing tag: it closes the innermost open element of that name and all inside it."""
        names = [element.name for element in self._stack]
        if self._beyond:
            self._beyond -= 1
            self._stack[-1].texts.append(tag)
        elif name in names and (self._string is None or name == names[0]):
            depth = len(names) - 1 - names[::-1].index(name)
            while len(self._stack) > depth:
                self._close(at)
        elif self._string is not None:
            self._string.take(tag, at, at)

    def end_all(self, at: int) -> None:
        """The call ends: whatever is still open ends with it."""
        self._beyond = 0
        while self._stack:
            self._close(at)

    def _close(self, at: int) -> None:
        element = self._stack.pop()
        if self._stack:
            self._stack[-1].children.append((element.name, element.value()))
        elif self._string is not None:
            self._string.close(at)
            self._string = None
        else:
            self._call.key = element.name
            self._call.give(self._call.opening() + element.value(), at, at)
