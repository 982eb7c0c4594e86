"""KV slots: who has one, what it remembers, and which prompts can begin with that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, field

from .snapshots import Snapshot, Snapshots
from .state import State, common_prefix

__all__ = ["Slot", "Slots"]


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
    """`count` slots, whose memory is made when first needed, and up to `pins` pinned prefixes."""

    def __init__(self, make_state: Callable[[], State], count: int, pins: int = 0) -> None:
        self.count = count
        self.snapshots = Snapshots(make_state, pins)
        self._make_state = make_state
        self._slots: list[Slot] = []
        self._clock = 0

    def __iter__(self) -> Iterator[Slot]:
        """Those that have memory, in the order of their numbers."""
        return iter(self._slots)

    @property
    def busy(self) -> int:
        """How many are taken."""
        return sum(slot.busy for slot in self._slots)

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._slots.clear()
        self.snapshots.clear()

    def acquire(self, tokens: list[int], number: int | None = None, most: int | None = None) -> Slot | None:
        """Take a slot for a prompt; its history is then the longest prefix that any memory holds.

        That is the slot itself, another slot, busy or not, or a snapshot: the positions which the slot
        lacks are copied, for that takes far less time than to run them. number: the slot to take, None for
        any. most: the longest history that will do; at least one token of the prompt is left to run in any
        case. None is returned while no suitable slot is free.
        """
        slot = self.at(number) if number is not None else self._choose(tokens)
        if slot is None or slot.busy:
            return None
        donors: list[Slot | Snapshot] = [slot, *self._slots, *self.snapshots]
        lengths = [common_prefix(donor.history, tokens) for donor in donors]
        best = lengths.index(max(lengths))
        longest = min(lengths[best], len(tokens) - 1)
        own, length = lengths[0], longest if most is None else min(longest, most)
        slot.forget(own)
        if length > own:
            slot.state.copy_rows(donors[best].state, own, length)
            slot.history += tokens[own:length]
        slot.forget(length)
        self._take(slot, donors[best])
        return slot

    def release(self, slot: Slot) -> None:
        """Give a slot back; what it remembers stays."""
        slot.busy = False

    def pin(self, slot: Slot) -> None:
        """Keep what the slot remembers now, whatever becomes of the slot."""
        self.snapshots.take(slot.history, slot.state)

    def at(self, number: int) -> Slot:
        """The slot of this number."""
        while len(self._slots) <= number:
            self._slots.append(Slot(len(self._slots), self._make_state()))
        return self._slots[number]

    def _take(self, slot: Slot, donor: Slot | Snapshot) -> None:
        slot.busy = True
        self._clock += 1
        slot.used = self._clock
        if isinstance(donor, Snapshot):
            self.snapshots.touch(donor)

    def _choose(self, tokens: list[int]) -> Slot | None:
        """A free slot whose whole history the prompt continues, else a new one, else the longest unused."""
        free = [slot for slot in self._slots if not slot.busy]
        continued = [slot for slot in free if common_prefix(slot.history, tokens) == len(slot.history)]
        if continued:
            return max(continued, key=lambda slot: (len(slot.history), -slot.number))
        if len(self._slots) < self.count:
            return self.at(len(self._slots))
        return min(free, key=lambda slot: slot.used, default=None)
