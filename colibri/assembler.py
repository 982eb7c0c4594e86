"""The assembler: turns what the scanner finds into events.

It owns what no table can say: when a call begins, is announced and ends, what its arguments are as JSON,
and which words are names and keys of the declared tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from attrs import evolve

from colibri.automaton import Edge, Node
from colibri.bodies import ArgumentsReader, CallReader
from colibri.calls import Call, Reader, WordReader, value_reader
from colibri.conversation import Tool
from colibri.elements import Elements
from colibri.events import (
    Event,
    Finished,
    FinishReason,
    Framing,
    ReasoningDelta,
    TextDelta,
    ToolCallBroken,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from colibri.salvage import lead_name, salvaged
from colibri.schema import Schema
from colibri.sink import Put
from colibri.states import State

__all__ = ["Assembler"]

_NAME = re.compile(r"[^\s<>\"'(){}\[\],|\ud800-\udfff]{1,128}")


class Assembler:
    """A `Sink` that fills `events`; the parser takes them out.

    salvage: the marks of calls, where unreadable arguments shall be salvaged; None to leave them.
    """

    def __init__(
        self, tools: Sequence[Tool], new_id: Callable[[], str], salvage: Collection[str] | None = None
    ) -> None:
        self.events: list[Event] = []
        self.finished_calls = 0
        self._schemas = {tool.name: Schema(tool.parameters, tool.parameters) for tool in tools}
        self._new_id = new_id
        self._salvage = salvage
        self._ids: set[str] = set()
        self._announced = 0
        self._call: Call | None = None
        self._reader: Reader | None = None
        self._tag = self._tag_slot = self._tag_word = ""

    # What the scanner reports.

    def enter(self, node: Node, at: int) -> Put:
        """See `Sink`."""
        slot = node.slot
        if slot in ("text", "reasoning", "name", "call"):
            if self._call is not None and not self._call.broken:
                self._break(self._call, "unclosed", at)
            self._call = Call(self.events) if slot in ("name", "call") else None
        if slot == "text":
            return self._text
        if slot == "reasoning":
            return self._reasoning
        self._reader = self._new_reader(node, at)
        return self._skipped if self._reader is None else self._reader.take

    def leave(self, node: Node, at: int) -> None:
        """See `Sink`."""
        reader, self._reader = self._reader, None
        if isinstance(reader, WordReader):
            self._take_word(node, reader, at)
        elif reader is not None:
            reader.close(at)

    def frame(self, kind: str, start: int, end: int) -> None:
        """See `Sink`."""
        self.events.append(Framing(kind, start, end))

    def mark(self, edge: Edge, start: int, end: int) -> None:
        """See `Sink`."""
        self.events.append(Framing("forgiven" if edge.lenient else "marker", start, end))
        if self._call is not None and self._call.elements is not None:
            self._take_tag(self._call.elements, edge, end)
        if edge.end:
            self._end_call(end)

    def word(self, node: Node, text: str, *, whole: bool, reasoning: bool, declared: bool) -> bool | None:
        """See `Sink`."""
        state, word = node.state, text.strip()
        if state.slot == "key":
            schema = self._call.schema if self._call else None
            known: Sequence[str] = schema.names if schema else ()
            return _unquoted(state.decoded(word), known) in known if whole else _begins(state, word, known)
        names = tuple(self._schemas)
        if whole:
            name, _ = _named(state, word)
            if name in self._schemas or (self._salvage and lead_name(text, self._schemas)):
                return True
            return name is not None and not reasoning and not declared and _NAME.fullmatch(word) is not None
        if self._salvage and lead_name(text, self._schemas):
            return None
        begins = _begins(state, word, names)
        if begins is False and not reasoning and (not word or _NAME.fullmatch(word)):
            return None
        return begins

    def finish(self, reason: str, node: Node, at: int) -> None:
        """The reply is over, in state `node`: end or break the open call."""
        final = reason == "stop" and node.state.final
        if final:
            self.leave(node, at)
        elif self._reader is not None:
            self._reader.abandon()
        call = self._call
        if call is not None and not call.broken:
            if final and not (call.elements and call.elements.open):
                self.events.append(Framing("missing", at, at))
                self._end_call(at)
            else:
                self._break(call, "cut" if reason == "length" else "unclosed", at)
        outcome: FinishReason = "tool_calls" if self.finished_calls else "stop"
        self.events.append(Finished("length" if reason == "length" else outcome, at, at))

    @property
    def busy(self) -> bool:
        """Whether a call is open or a state's text is being kept."""
        return self._call is not None or self._reader is not None

    def take(self) -> list[Event]:
        """The events since the last time."""
        events = self.events.copy()
        self.events.clear()
        return events

    def forget_prompt(self) -> None:
        """What was read so far was the prompt's: keep only the call that it left open, as the first."""
        call, events = self._call, self.take()
        self._announced = self.finished_calls = 0
        if call is not None and call.index is not None and not call.broken:
            for event in events:
                if isinstance(event, ToolCallStart | ToolCallDelta) and event.index == call.index:
                    self.events.append(evolve(event, index=0))
            call.index, self._announced = 0, 1

    # Text of the states.

    def _text(self, text: str, start: int, end: int) -> None:
        self.events.append(TextDelta(text, start, end))

    def _reasoning(self, text: str, start: int, end: int) -> None:
        self.events.append(ReasoningDelta(text, start, end))

    def _skipped(self, text: str, start: int, end: int) -> None:
        self.events.append(Framing("skipped", start, end))
        if self._salvage and self._call is not None:
            self._call.loose.append(text)

    def _new_reader(self, node: Node, at: int) -> Reader | None:
        """The reader of a state's text; None where it is ignored."""
        slot, call = node.slot, self._call
        if slot in ("name", "key", "close"):
            return WordReader(self.events)
        if call is None or call.broken:
            return None
        if slot == "value" and call.key is not None and call.body is None:
            return value_reader(call, node.state, at)
        if slot == "args" and (call.body or not call.started):
            return call.body or ArgumentsReader(call)
        if slot == "call":
            return CallReader(call, lambda name, end: self._announce(call, name, None, end, end))
        if slot == "element":
            call.elements = call.elements or Elements(call)
            return call.elements
        return None

    # Calls.

    def _take_tag(self, elements: Elements, edge: Edge, at: int) -> None:
        """Follow the marks of an element's tag: the first leads to its name, the last back."""
        slot = edge.target.slot
        if slot in ("key", "close"):
            self._tag, self._tag_slot = edge.spelled, slot
        elif slot == "element" and self._tag:
            take = elements.begin if self._tag_slot == "key" else elements.end
            take(self._tag_word, self._tag + edge.spelled, at)
            self._tag = ""

    def _take_word(self, node: Node, reader: WordReader, at: int) -> None:
        """Judge a finished name, key or closing name."""
        call, word = self._call, (reader.text or "").strip()
        if call is not None and not call.broken and node.slot == "name":
            if self._salvage and word not in self._schemas and (lead := lead_name(word, self._schemas)):
                word, rest = lead
                call.loose.append(rest)
            name, native = _named(node.state, word)
            if name:
                self._announce(call, name, native, reader.start, reader.end)
            else:
                reader.frame("skipped")
                self._break(call, "syntax", at)
            return
        reader.frame("key")
        if call is not None:
            known = call.schema.names if call.schema else ()
            word = _unquoted(node.state.decoded(word), known)
            self._tag += reader.text or ""
            self._tag_word = word
            if self._salvage:
                call.loose.append(reader.text or "")
            if node.slot == "key":
                call.key = word or None

    def _announce(self, call: Call, name: str, native: str | None, start: int, end: int) -> None:
        call_id = native if native and native not in self._ids else self._new_id()
        self._ids.add(call_id)
        call.schema = self._schemas.get(name)
        call.announce(self._announced, call_id, name, start, end)
        self._announced += 1

    def _end_call(self, at: int) -> None:
        call, self._call = self._call, None
        if call is None or call.broken:
            return
        if call.elements is not None:
            call.elements.end_all(at)
        verdict = call.body.verdict if call.body else None
        if call.index is None or verdict is False:
            self._break(call, "syntax", at)
            return
        if verdict is None and call.started:
            call.give("}", at, at)
        elif verdict is None:
            saved = salvaged(call.loose, call.schema, self._salvage) if self._salvage else None
            call.give(saved or "{}", at, at)
        self.finished_calls += 1
        self.events.append(ToolCallEnd(call.index, at, at))

    def _break(self, call: Call, reason: str, at: int) -> None:
        call.broken = True
        if call.elements is not None:
            call.elements.abandon()
        for _, start, end in call.early:
            call.frame("skipped", start, end)
        self.events.append(ToolCallBroken(call.index, reason, at, at))


def _named(state: State, word: str) -> tuple[str | None, str | None]:
    """The name that a finished word spells, and the id it carries, if any."""
    word = state.decoded(word)
    if state.match is None:
        return word or None, None
    match = state.match.fullmatch(word)
    return (match["name"], match.groupdict().get("id")) if match else (None, None)


def _unquoted(word: str, known: Sequence[str]) -> str:
    """`word` without quotes around it, where only that is a known name."""
    bare = word.strip("\"'")
    return bare if word not in known and bare in known else word


def _begins(state: State, word: str, known: Sequence[str]) -> bool | None:
    """Whether `word` may still become a known one: None for yes, False for no."""
    if state.match is not None or state.decode:
        return None
    bare = word.strip("\"'")
    return None if any(name.startswith((word, bare)) for name in known) else False
