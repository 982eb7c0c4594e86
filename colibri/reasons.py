"""Why a reply was read as it was, in words. `colibri.explain` says where these words belong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from colibri.events import ToolCallBroken
from colibri.grammar import Grammar
from colibri.recording import Recording
from colibri.schema import Schema
from colibri.states import LOOK, Mark, State

__all__ = ["Reasons", "shown"]

_BLANK = " \t\r\n"
_SHOWN = 48


def shown(text: str, limit: int = _SHOWN) -> str:
    """`text` quoted on one line, its middle left out when it is longer than `limit`."""
    if len(text) > limit:
        half = limit // 2
        return f"{text[:half]!r} … {text[-half:]!r}"
    return repr(text)


def _beginning(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]!r} …"


class Reasons:
    """Reasons about one recorded reply read with `grammar`."""

    def __init__(self, grammar: Grammar, recording: Recording) -> None:
        self._grammar = grammar
        self._recording = recording
        self._prime = len(recording.prime or "")
        self._source = (recording.prime or "") + recording.raw
        self._openers = {mark.at for state in grammar.states.values() for mark in state.marks if mark.tools}
        self._schemas = {tool.name: Schema(tool.parameters, tool.parameters) for tool in recording.tools}

    def text(self, start: int, end: int) -> str:
        """The characters start..end; offsets below 0 are in the prompt's end."""
        return self._source[start + self._prime : end + self._prime]

    def declared(self, tool: str) -> str:
        """Whether a tool is declared, and what follows from that."""
        if tool in self._schemas:
            return "declared"
        return "not declared: passed on all the same, its arguments taken for strings"

    def typing(self, state: State, tool: str | None, key: str | None) -> str:
        """Where the type of an argument comes from, and which it is."""
        if state.slot in ("args", "call"):
            return "JSON as it is spelled"
        if state.wire is not None:
            return {"string": "a string", "json": "JSON", "literal": "a literal"}[
                state.wire
            ] + " by its markers"
        schema = self._schemas.get(tool or "")
        member = schema.member(key) if schema is not None and key is not None else None
        if member is None:
            return "not declared, so a string"
        kinds = sorted(member.kinds or ())
        return f"{' or '.join(kinds)} by its schema" if kinds else "of any type by its schema"

    # Marks.

    def refused(self, state: State, mark: str, tool: str | None, end: int) -> str:
        """Why `mark`, which ends at raw offset `end`, did not count; `tool` is the tool of the open call."""
        target = self._state(self._mark(state, mark).to)
        rest = self.text(end, end + LOOK)
        return f"{mark!r} is text: {self._illegal(target, rest, self._reasons(state), tool)}"

    def _illegal(self, target: State, rest: str, reasoning: bool, tool: str | None) -> str:
        if target.slot in ("name", "key"):
            return self._no_word(target, rest, reasoning, tool)
        begun = rest.lstrip(_BLANK)
        if not begun:
            return (
                "the reply ends there"
                if len(rest) < LOOK
                else f"only white space follows for {LOOK} characters"
            )
        if target.slot in ("args", "call"):
            return f"a JSON object must follow, not {_beginning(begun)}"
        for mark in sorted(target.marks, key=lambda mark: -len(mark.at)):
            if begun.startswith(mark.at):
                behind = begun[len(mark.at) :]
                inner = self._illegal(self._state(mark.to), behind, reasoning, tool)
                return f"{mark.at!r} follows, but behind it {inner}"
            if mark.at.startswith(begun):
                return f"the reply ends inside {mark.at!r}"
        expected = _either(repr(mark.at) for mark in target.marks)
        return f"{expected} must follow, not {_beginning(begun)}"

    def _no_word(self, target: State, rest: str, reasoning: bool, tool: str | None) -> str:
        """Why no name, or key, that counts begins `rest`."""
        at = min((at for mark in target.marks if (at := rest.find(mark.at)) >= 0), default=-1)
        what = "a tool's name" if target.slot == "name" else "a parameter's name"
        word = (rest if at < 0 else rest[:at]).strip()
        if target.slot == "name":
            known: Sequence[str] = tuple(self._schemas)
            listed = f"of the declared tools ({', '.join(known) or 'none'})"
        else:
            schema = self._schemas.get(tool or "")
            known = schema.names if schema is not None else ()
            listed = f"of the parameters of {tool} ({', '.join(known) or 'none'})"
        if at < 0 and len(word.split()) < 2:
            return f"the reply ends before {what} is whole" if len(rest) < LOOK else f"{what} has no end"
        if target.slot == "key":
            return f"{shown(word)} is none {listed}"
        if reasoning:
            return f"{shown(word)} is none {listed}, and inside reasoning only these make a call"
        if at < 0:
            closers = _either(repr(mark.at) for mark in target.marks)
            return f"{shown(word)} is no tool's name with {closers} behind it"
        return f"{shown(word)} cannot be a tool's name"

    def ignored(self, state: State, mark: str, *, told: bool) -> str:
        """Why a spelled mark had no chance where it stands; `told`: the engine tells control tokens apart."""
        if told and any(special in mark for special in self._grammar.special):
            return f"{mark!r} is text: the engine says that this is ordinary text, not the control token"
        own = next((own for own in state.marks if own.at == mark), None)
        if not self._schemas and mark in self._openers:
            return f"{mark!r} is text: the request declares no tools, so nothing is a call"
        if own is not None:
            return f"{mark!r} is text: it stands inside a string or brackets"
        homes = [other.name for other in self._grammar.states.values() if _has(other, mark)]
        return f"{mark!r} is text: it means nothing in state {state.name}, only in {_either(homes)}"

    def held(self, state: State, text: str) -> str:
        """Why `text` could not be given yet."""
        for mark in sorted(state.marks, key=lambda mark: -len(mark.at)):
            for lead in _leads(state, mark, text):
                begun = text[len(lead) :]
                if begun.startswith(mark.at):
                    return f"what follows tells whether {mark.at!r} counts"
                if begun and mark.at.startswith(begun):
                    return f"{mark.at!r} may be coming"
        if not text.strip(_BLANK):
            return "a mark may come, with this white space before it"
        return "more must come to tell what it is"

    # Calls.

    def broken(self, event: ToolCallBroken, state: State, arguments: str) -> str:
        """Why a call was given up; `arguments` is what came of its JSON text."""
        call = "a call without a readable name" if event.index is None else f"call {event.index}"
        if event.reason == "cut":
            return f"{call}: the token limit cut it, and it is never completed by guessing"
        if event.reason == "unclosed":
            if event.end < len(self._recording.raw):
                return f"{call}: other text begins before its closing marker"
            marks = [mark.at for mark in state.marks] or ["its closing marker"]
            return f"{call}: the reply ends in state {state.name}, before {_either(map(repr, marks))}"
        if event.index is None:
            return f"{call}: {_nameless(state)}"
        return f"{call}: its arguments are not one whole JSON object{_fault(arguments)}"

    def finished(self, reason: str, calls: int) -> str:
        """What ended the reply and what a client is told."""
        if reason == "length":
            return "finish_reason length: the token limit ended the reply"
        if calls:
            whole = "1 whole call" if calls == 1 else f"{calls} whole calls"
            return f"finish_reason tool_calls: the reply ended by itself with {whole}"
        return "finish_reason stop: the reply ended by itself without a whole call"

    # The grammar's words.

    def _state(self, name: str) -> State:
        return self._grammar.states[name]

    def _mark(self, state: State, literal: str) -> Mark:
        return next(mark for mark in state.marks if mark.at == literal)

    def _reasons(self, state: State) -> bool:
        """Whether text in this state is, or becomes, reasoning."""
        leads_on = state.otherwise is not None and self._state(state.otherwise).slot == "reasoning"
        return state.slot == "reasoning" or leads_on


def _has(state: State, literal: str) -> bool:
    return any(mark.at == literal for mark in state.marks)


def _either(words: Iterable[str]) -> str:
    *some, last = dict.fromkeys(words)
    return f"{', '.join(some)} or {last}" if some else last


def _leads(state: State, mark: Mark, text: str) -> list[str]:
    """What may stand at the beginning of `text` as layout before `mark`."""
    if state.otherwise is not None:
        return [text[: len(text) - len(text.lstrip(_BLANK))]]
    layouts = (mark.before[at:] for at in range(len(mark.before) + 1))
    return [layout for layout in layouts if text.startswith(layout)]


def _nameless(state: State) -> str:
    if state.slot == "call":
        return "the JSON object has no string `name`"
    if state.match is not None:
        return f"the name does not have the form {state.match.pattern!r}"
    return "the name is empty or too long"


def _fault(arguments: str) -> str:
    try:
        json.loads(arguments)
    except json.JSONDecodeError as error:
        return f" ({error.msg}, character {error.pos})"
    except (ValueError, RecursionError):
        return " (they nest too deep or hold a number of too many digits)"
    return ""
