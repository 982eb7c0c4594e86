"""Stop sequences: text passes until one of them comes.

The filter is the scanner over a grammar of one state whose marks are the stop sequences, so it holds back
only what may still become one.
"""

from __future__ import annotations

from collections.abc import Sequence

from colibri.automaton import Edge, Node, automaton
from colibri.scanner import Scanner
from colibri.sink import Put
from colibri.states import LOOK, Mark, State

__all__ = ["StopFilter"]


class StopFilter:
    """Passes text on until the earliest stop sequence; what comes after it is dropped.

    stops: the sequences, none empty. patient: sequences that only white space precedes do not stop; they
    and the white space around them are dropped. stopped: the sequence that was met; stopped_at: where it
    starts in the text that was fed.
    """

    def __init__(self, stops: Sequence[str], *, patient: bool = False) -> None:
        marks = tuple(Mark(at=stop, to="text") for stop in dict.fromkeys(stops))
        nodes = automaton({"text": State("text", "text", marks)}, {}, tools=False)
        self.stopped: str | None = None
        self.stopped_at = 0
        self._leading = patient
        self._ignored = False
        self._blanks: list[tuple[str, int, int]] = []
        self._passed: list[tuple[str, int, int]] = []
        self._scanner = Scanner(nodes["text"], self)

    def feed(self, text: str) -> list[tuple[str, int, int]]:
        """Take more text; gives what passes, each piece with its start and end in all text fed."""
        if text and self.stopped is None:
            self._scanner.feed(text)
        return self._taken()

    def finish(self) -> list[tuple[str, int, int]]:
        """No more text comes: what was held passes."""
        if self.stopped is None:
            self._scanner.finish("stop")
            if self._leading and not self._ignored:
                self._passed = [piece for piece in self._blanks if piece[0]]
        return self._taken()

    def _taken(self) -> list[tuple[str, int, int]]:
        passed, self._passed = self._passed, []
        return passed

    # What the scanner reports.

    def enter(self, node: Node, at: int) -> Put:
        """See `Sink`."""
        return self._pass

    def _pass(self, text: str, start: int, end: int) -> None:
        if self.stopped is not None:
            return
        if self._leading:
            blank = min(len(text) - len(text.lstrip()), max(0, LOOK - start))
            self._blanks.append((text[:blank], start, start + blank))
            rest = text[blank:]
            if not rest:
                return
            self._leading = False
            if not self._ignored:
                self._passed = [piece for piece in self._blanks if piece[0]]
            text, start = rest, start + blank
        if text:
            self._passed.append((text, start, end))

    def mark(self, edge: Edge, start: int, end: int) -> None:
        """See `Sink`."""
        if self._leading:
            self._ignored = True
        elif self.stopped is None:
            self.stopped, self.stopped_at = edge.spelled, start

    def leave(self, node: Node, at: int) -> None:
        """See `Sink`."""

    def frame(self, kind: str, start: int, end: int) -> None:
        """See `Sink`."""

    def word(self, node: Node, text: str, *, whole: bool, reasoning: bool, declared: bool) -> bool | None:
        """See `Sink`."""
        return None
