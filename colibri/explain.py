"""How a reply was read, step by step and in words: for whoever wonders why it was read that way.

explanation = explain(family.grammar, Recording((Chunk(raw),), tools))
for row in explanation.rows:
    print(row.start, row.end, row.state, row.what, row.detail)
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, count

from attrs import field, frozen

from colibri.events import (
    Event,
    Finished,
    Framing,
    ReasoningDelta,
    TextDelta,
    ToolCallBroken,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from colibri.grammar import Grammar
from colibri.reasons import Reasons
from colibri.recording import Recording
from colibri.reply import Reply, fold, join
from colibri.states import State
from colibri.steps import Step

__all__ = ["Explanation", "Row", "explain"]

_NOT_CALLS = ("refused", "ignored", "broken")
_MARKS = ("marker", "forgiven")

_FRAMING = {
    "layout": "white space of the format",
    "header": "header of the format",
    "key": "an argument's name",
    "element": "text inside a nested argument",
    "skipped": "means nothing here and is not shown",
    "cut": "cut by the end of the reply and not shown",
    "forgiven": "a marker is left out here, which is forgiven; strict callers refuse it",
    "missing": "the call's last marker is missing, which is forgiven; strict callers refuse it",
}


@frozen
class Row:
    """One thing that happened to the characters start..end of the raw reply, in `state`.

    what: `mark`, `refused`, `else` or `held`, see `colibri.steps.Step`; `ignored`, a spelled mark that
    had no chance where it stands; `text`, `reasoning`, `call`, `arguments`, `called`, `broken` or
    `finished`, an event; else the kind of a `Framing`. text: the characters. detail: what it means, and
    why. Marks and events cover the reply without gaps; `refused`, `ignored` and `held` comment on them.
    """

    start: int
    end: int
    state: str
    what: str
    text: str
    detail: str


@frozen
class Explanation:
    """How a reply was read.

    rows: in the order of the text; offsets below 0 are in the prompt's end. states: those that were
    entered, each once.
    """

    rows: tuple[Row, ...]
    states: tuple[State, ...]
    events: tuple[Event, ...] = field(repr=False)
    reply: Reply

    @property
    def not_calls(self) -> tuple[Row, ...]:
        """The rows that say why something was not a call."""
        return tuple(row for row in self.rows if row.what in _NOT_CALLS)


def explain(grammar: Grammar, recording: Recording) -> Explanation:
    """How `grammar` reads a recorded reply."""
    steps: list[Step] = []
    numbers = count(1)
    events = join(recording.play(grammar, ids=lambda: f"call_{next(numbers)}", observer=steps.append))
    return _Explainer(grammar, recording, steps, events).explanation()


class _Explainer:
    def __init__(
        self, grammar: Grammar, recording: Recording, steps: Sequence[Step], events: Sequence[Event]
    ) -> None:
        self._grammar = grammar
        self._recording = recording
        self._steps = steps
        self._events = events
        self._reasons = Reasons(grammar, recording)
        named = None if recording.prime is not None else grammar.starts.get(recording.start or "")
        moves = [(step.end, step.to) for step in steps if step.what in ("mark", "else")]
        visits = [(-len(recording.prime or ""), named or grammar.begin), *moves]
        self._begins = [at for at, _ in visits]
        self._visited = [grammar.states[name] for _, name in visits]
        self._starts = [event for event in events if isinstance(event, ToolCallStart)]
        self._keys = [event for event in events if isinstance(event, Framing) and event.kind == "key"]
        self._names = {event.index: event.name for event in self._starts}
        self._arguments: dict[int | None, list[str]] = {}

    def explanation(self) -> Explanation:
        reply = fold(self._events)
        rows = [*self._of_events(reply), *self._of_steps(), *self._of_held(), *self._of_ignored()]
        rows.sort(key=lambda row: (row.start, _rank(row)))
        return Explanation(tuple(rows), tuple(dict.fromkeys(self._visited)), tuple(self._events), reply)

    def _row(self, start: int, end: int, state: State, what: str, detail: str) -> Row:
        return Row(start, end, state.name, what, self._reasons.text(start, end), detail)

    def _state(self, start: int, end: int) -> State:
        """The state that the characters start..end, or what happened behind them, belong to."""
        after = (bisect_right if end > start else bisect_left)(self._begins, start)
        return self._visited[max(after - 1, 0)]

    def _tool(self, at: int) -> str | None:
        """The tool of the call that is open at an offset."""
        after = bisect_right(self._starts, at, key=lambda event: event.start)
        return self._starts[after - 1].name if after else None

    # The scanner's steps.

    def _of_steps(self) -> Iterator[Row]:
        # A mark may be refused again, after more came or after `else`; the last word is told.
        last = {(step.start, step.mark): step for step in self._steps if step.what == "refused"}
        for step in (*(step for step in self._steps if step.what != "refused"), *last.values()):
            state = self._grammar.states[step.state]
            if step.what == "mark":
                mark = next(mark for mark in state.marks if mark.at == step.mark)
                detail = f"-> {step.to}" + "; the call is over" * mark.end
                detail += "; this forgives a mistake, strict callers refuse it" * mark.lenient
                yield self._row(step.start, step.end, state, "mark", detail)
            elif step.what == "else":
                yield self._row(step.start, step.end, state, "else", f"-> {step.to}; no mark follows")
            elif step.what == "refused":
                detail = self._reasons.refused(state, step.mark, self._tool(step.start), step.end)
                yield self._row(step.start, step.end, state, "refused", detail)

    def _of_held(self) -> Iterator[Row]:
        """What was held at the ends of chunks, one row for the same text over several chunks."""
        borders = list(accumulate(len(chunk.text) for chunk in self._recording.chunks))
        held: dict[tuple[int, str], list[int]] = {}
        for step in self._steps:
            if step.what == "held":
                held.setdefault((step.start, step.state), []).append(step.end)
        for (start, name), ends in held.items():
            state = self._grammar.states[name]
            first, last = (bisect_left(borders, end) + 1 for end in (ends[0], ends[-1]))
            chunks = f"chunk {first}" if first == last else f"chunks {first} to {last}"
            why = self._reasons.held(state, self._reasons.text(start, ends[-1]))
            yield self._row(start, ends[-1], state, "held", f"not given with {chunks}: {why}")

    # Events.

    def _of_events(self, reply: Reply) -> Iterator[Row]:
        for event in self._events:
            told = isinstance(event, Framing) and event.kind in _MARKS and event.end > event.start
            if not told:
                what, detail = self._words(event, reply)
                yield self._row(event.start, event.end, self._state(event.start, event.end), what, detail)

    def _words(self, event: Event, reply: Reply) -> tuple[str, str]:
        """What an event is called, and what it means."""
        match event:
            case TextDelta():
                return "text", "the answer"
            case ReasoningDelta():
                return "reasoning", "reasoning"
            case ToolCallStart(index=index, name=name):
                return "call", f"call {index}: {name}, {self._reasons.declared(name)}"
            case ToolCallDelta():
                return "arguments", self._argument(event)
            case ToolCallEnd(index=index):
                return "called", f"call {index}: {self._names[index]} is whole"
            case ToolCallBroken(index=index):
                state = self._state(event.start, event.end)
                arguments = "".join(self._arguments.get(index, ()))
                return "broken", self._reasons.broken(event, state, arguments)
            case Framing(kind="skipped") if not self._reasons.text(event.start, event.end).strip():
                return "skipped", "white space between markers"
            case Framing(kind=kind):
                return kind, _FRAMING.get(kind, "part of the format")
            case Finished(reason=reason):
                return "finished", self._reasons.finished(reason, len(reply.tool_calls))

    def _argument(self, event: ToolCallDelta) -> str:
        index = event.index
        self._arguments.setdefault(index, []).append(event.arguments)
        if event.end == event.start:
            return f"call {index}: gives {event.arguments}"
        after = bisect_left(self._keys, event.end, key=lambda key: key.start)
        key = self._keys[after - 1] if after else None
        name = self._reasons.text(key.start, key.end).strip() if key is not None else None
        typing = self._reasons.typing(self._state(event.start, event.end), self._names[index], name)
        return f"call {index}: {typing}; gives {event.arguments}"

    # Marks that are spelled where they mean nothing.

    def _spelled(self) -> re.Pattern[str] | None:
        """Finds what would open or close something elsewhere; without tools, of calls only what opens one."""
        marks = [mark for state in self._grammar.states.values() for mark in state.marks]
        openers = {mark.at for mark in marks if mark.tools}
        telling = {mark.at for mark in marks if any(special in mark.at for special in self._grammar.special)}
        inner = self._grammar.call_marks if not self._recording.tools else frozenset[str]()
        found = sorted(openers | (telling - inner), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, found))) if found else None

    def _of_ignored(self) -> Iterator[Row]:
        spelled = self._spelled()
        if spelled is None:
            return
        told = any(chunk.control is not None for chunk in self._recording.chunks)
        refused = {step.start for step in self._steps if step.what == "refused"}
        for event in self._events:
            if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta):
                state = self._state(event.start, event.end)
                for match in spelled.finditer(self._reasons.text(event.start, event.end)):
                    start = event.start + match.start()
                    own = any(mark.at == match[0] for mark in state.marks)
                    if start not in refused and (own or not isinstance(event, ToolCallDelta)):
                        detail = self._reasons.ignored(state, match[0], told=told)
                        yield self._row(start, start + len(match[0]), state, "ignored", detail)


def _rank(row: Row) -> int:
    """The order of rows that start at one place."""
    if row.what in ("else", "held", "refused"):
        return 1
    if row.what == "ignored":
        return 3
    return 2 if row.end > row.start else 0
