"""Pinned prefixes: copies of what a slot held, which stay when the slot moves on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define

from .state import State

__all__ = ["Snapshot", "Snapshots"]


@define(eq=False)
class Snapshot:
    """The tokens whose positions `state` holds. used: a counter's value when it was last of use."""

    history: list[int]
    state: State
    used: int = 0


class Snapshots:
    """At most `limit` snapshots, one beginning with another or not; the longest unused one makes room."""

    def __init__(self, make_state: Callable[[], State], limit: int) -> None:
        self.limit = limit
        self._make_state = make_state
        self._kept: list[Snapshot] = []
        self._clock = 0

    def __iter__(self) -> Iterator[Snapshot]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def tokens(self) -> int:
        """Positions that all of them hold."""
        return sum(len(snapshot.history) for snapshot in self._kept)

    def take(self, tokens: list[int], state: State) -> None:
        """Keep the positions of these tokens, with which the state begins; nothing if the limit is 0."""
        known = next((snapshot for snapshot in self._kept if snapshot.history == tokens), None)
        if known is not None:
            self.touch(known)
        elif self.limit:
            while len(self._kept) >= self.limit:
                self._kept.remove(min(self._kept, key=lambda snapshot: snapshot.used))
            snapshot = Snapshot(list(tokens), self._make_state())
            snapshot.state.copy_rows(state, 0, len(tokens))
            self._kept.append(snapshot)
            self.touch(snapshot)

    def touch(self, snapshot: Snapshot) -> None:
        """It was of use."""
        self._clock += 1
        snapshot.used = self._clock

    def clear(self) -> None:
        """Give the memory back."""
        self._kept.clear()
