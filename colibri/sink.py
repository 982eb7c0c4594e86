"""What a scanner reports to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from colibri.automaton import Edge, Node

__all__ = ["Put", "Silence", "Sink"]

Put: TypeAlias = Callable[[str, int, int], None]
"""Takes text of one state: the text, and its start and end in characters of the raw reply."""


class Sink(Protocol):
    """What the scanner reports to, mark by mark, in the order of the text."""

    def enter(self, node: Node, at: int) -> Put:
        """A state begins at raw offset `at`; gives the taker of its text."""
        ...

    def leave(self, node: Node, at: int) -> None:
        """A state's text is over."""
        ...

    def frame(self, kind: str, start: int, end: int) -> None:
        """Layout, a header, or a mark that the end of the reply cut."""
        ...

    def mark(self, edge: Edge, start: int, end: int) -> None:
        """A mark that counts; the state it leads to is entered next."""
        ...

    def word(self, node: Node, text: str, *, whole: bool, reasoning: bool, declared: bool) -> bool | None:
        """Whether `text` may be the name or key of state `node`; None when it may still become one.

        whole: nothing can be added to it. reasoning: it stands inside open reasoning. declared: only a
        declared name will do.
        """
        ...


class Silence:
    """A sink that wants to know nothing."""

    def enter(self, node: Node, at: int) -> Put:
        """See `Sink`."""
        return self.frame_text

    def frame_text(self, text: str, start: int, end: int) -> None:
        """Drop the text."""

    def leave(self, node: Node, at: int) -> None:
        """See `Sink`."""

    def frame(self, kind: str, start: int, end: int) -> None:
        """See `Sink`."""

    def mark(self, edge: Edge, start: int, end: int) -> None:
        """See `Sink`."""

    def word(self, node: Node, text: str, *, whole: bool, reasoning: bool, declared: bool) -> bool | None:
        """See `Sink`."""
        return None
