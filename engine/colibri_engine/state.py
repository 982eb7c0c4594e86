"""What a slot remembers of its tokens, as the parts of the engine that run nothing see it."""

from __future__ import annotations

from typing import Protocol, Self

__all__ = ["State", "common_prefix"]


class State(Protocol):
    """The memory of up to `context` positions; `_exec.State` is one.

    What it holds at a position depends on the tokens up to there and on nothing else, to the last bit, so
    positions can be copied from any state that holds the same tokens.
    """

    def copy_rows(self, other: Self, start: int, end: int) -> None:
        """Take over the positions [start, end) of another state."""
        ...

    def blocks(self, positions: int) -> list[memoryview]:
        """The memory of the first `positions` positions, writable, as long as the state lives."""
        ...


def common_prefix(first: list[int], second: list[int]) -> int:
    """The length of the longest common prefix, by halving."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
