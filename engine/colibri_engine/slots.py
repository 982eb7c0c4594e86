"""KV slots: who has one, what it remembers, and which prompts can begin with that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

from attrs import define, field

__all__ = ["Slot", "Slots", "State"]


class State(Protocol):
    """The memory of one slot; see `_exec.State`."""

    def copy_prefix(self, other: Self, positions: int) -> None:
        """Take over the first `positions` positions of another slot."""
        ...


@define(eq=False)
class Slot:
    """One conversation's place in the engine.

    history: the tokens whose positions `state` holds. used: a counter's value when it was last taken.
    """

    number: int
    state: State
    history: list[int] = field(factory=list)
    busy: bool = False
    used: int = 0

    def forget(self, length: int = 0) -> None:
        """Keep only the first `length` positions."""
        del self.history[length:]


class Slots:
    """`count` slots, whose memory is made when first needed."""

    def __init__(self, make_state: Callable[[], State], count: int) -> None:
        self.count = count
        self._make_state = make_state
        self._slots: list[Slot] = []
        self._clock = 0

    @property
    def busy(self) -> int:
        """How many are taken."""
        return sum(slot.busy for slot in self._slots)

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._slots.clear()

    def acquire(self, tokens: list[int], number: int | None = None, *, fresh: bool = False) -> Slot | None:
        """Take a slot for a prompt; its history is then the longest prefix that any slot remembers.

        number: the slot to take, None for any. fresh: let its history be empty. At least one token of
        the prompt is left to run. None is returned while no suitable slot is free.
        """
        while len(self._slots) <= (number or 0):
            self._add()
        slot = self._slots[number] if number is not None else self._choose(tokens)
        if slot is None or slot.busy:
            return None
        donor = max(self._slots, key=lambda other: (_common(other.history, tokens), other is slot))
        length = 0 if fresh else min(_common(donor.history, tokens), len(tokens) - 1)
        if donor is not slot:
            slot.state.copy_prefix(donor.state, length)
            slot.history = donor.history[:length]
        slot.forget(length)
        slot.busy = True
        self._clock += 1
        slot.used = self._clock
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; what it remembers stays."""
        slot.busy = False

    def _add(self) -> Slot:
        slot = Slot(len(self._slots), self._make_state())
        self._slots.append(slot)
        return slot

    def _choose(self, tokens: list[int]) -> Slot | None:
        """A free slot whose whole history the prompt continues, else a new one, else the longest unused."""
        free = [slot for slot in self._slots if not slot.busy]
        continued = [slot for slot in free if _common(slot.history, tokens) == len(slot.history)]
        if continued:
            return max(continued, key=lambda slot: (len(slot.history), -slot.number))
        if len(self._slots) < self.count:
            return self._add()
        return min(free, key=lambda slot: slot.used, default=None)


def _common(first: list[int], second: list[int]) -> int:
    """The length of the longest common prefix, by halving."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
