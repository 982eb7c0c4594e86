"""Who gets a KV slot and when: a bounded first-in first-out queue as a pure state machine.

No clock and no waiting in here: every call is told the time, and `settle` says whose state changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Literal, TypeAlias

from attrs import define, frozen

__all__ = [
    "Admission",
    "Choose",
    "Counters",
    "QueueFull",
    "QueueTimeout",
    "SchedulerClosed",
    "State",
    "Ticket",
]

Choose: TypeAlias = Callable[[Sequence[int]], int]
"""Picks one of the free slots, given in rising order."""


class ClientGone(ConnectionError):
    """The client hung up, or takes nothing, while it is being served."""


class QueueFull(Exception):
    """No slot can be had at once and the waiting queue is at its limit."""


class QueueTimeout(Exception):
    """The request waited its whole time and no slot came."""


class SchedulerClosed(Exception):
    """The server is ending and admits nobody."""


class State(Enum):
    """Where a ticket stands; all but the first two are final."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    LEFT = "left"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    CLOSED = "closed"


@define(eq=False)
class Ticket:
    """One request's place: `wanted` pins a slot, None takes any; `gone` tells that the client hung up."""

    wanted: int | None
    choose: Choose
    gone: Callable[[], bool]
    entered: float
    deadline: float
    state: State = State.WAITING
    slot: int = -1
    admitted: float = 0.0
    left: float = 0.0

    @property
    def waited(self) -> float:
        """Seconds from entering to admission."""
        return max(0.0, self.admitted - self.entered)

    @property
    def held(self) -> float:
        """Seconds from admission to leaving."""
        return max(0.0, self.left - self.admitted)


@frozen
class Counters:
    """A snapshot of the queue."""

    active: int
    queued: int
    capacity: int
    max_queue: int
    queue_timeout_seconds: float
    admitted: int
    completed: int
    failed: int
    rejected: int
    timed_out: int
    cancelled: int


class Admission:
    """The queue in front of `capacity` slots.

    A free slot may be taken by whoever asks unless an earlier waiter has reserved it: one that wants any
    slot reserves all of them, a pinned one reserves its own. `max_queue` bounds the waiters, not those
    who can go straight in. Deadlines come before slots, hang-ups before deadlines.
    """

    def __init__(self, capacity: int, max_queue: int, queue_timeout: float) -> None:
        self.capacity = capacity
        self.max_queue = max_queue
        self.queue_timeout = queue_timeout
        self.closed = False
        self._free = set(range(capacity))
        self._waiting: list[Ticket] = []
        self._counts = dict.fromkeys(
            ("admitted", "completed", "failed", "rejected", "timed_out", "cancelled"), 0
        )

    def enter(
        self,
        now: float,
        wanted: int | None = None,
        choose: Choose = min,
        gone: Callable[[], bool] = lambda: False,
    ) -> Ticket:
        """Take a place in the queue; call `settle` next.

        Raises:
            SchedulerClosed: nobody is admitted any more.
            QueueFull: no slot is free for this request and no more may wait.
        """
        if self.closed:
            raise SchedulerClosed
        if not self._open_to(wanted, self._reserved(self._waiting)) and len(self._waiting) >= self.max_queue:
            self._counts["rejected"] += 1
            raise QueueFull
        ticket = Ticket(wanted, choose, gone, now, now + self.queue_timeout)
        self._waiting.append(ticket)
        return ticket

    def settle(self, now: float) -> list[Ticket]:
        """Decide every waiter that can be decided now, in order; returns those that left the queue."""
        changed: list[Ticket] = []
        still: list[Ticket] = []
        reserved: set[int] = set()
        for ticket in self._waiting:
            if self._decide(ticket, now, reserved):
                changed.append(ticket)
            else:
                still.append(ticket)
                reserved |= self._reserved([ticket])
        self._waiting = still
        return changed

    def _decide(self, ticket: Ticket, now: float, reserved: set[int]) -> bool:
        if self.closed:
            ticket.state = State.CLOSED
        elif ticket.gone():
            ticket.state = State.CANCELLED
            self._counts["cancelled"] += 1
        elif now >= ticket.deadline:
            ticket.state = State.TIMED_OUT
            self._counts["timed_out"] += 1
        elif slots := self._open_to(ticket.wanted, reserved):
            ticket.slot = ticket.choose(slots)
            ticket.state, ticket.admitted = State.ADMITTED, now
            self._free.remove(ticket.slot)
            self._counts["admitted"] += 1
        else:
            return False
        return True

    def _open_to(self, wanted: int | None, reserved: set[int]) -> list[int]:
        return sorted(slot for slot in self._free - reserved if wanted is None or slot == wanted)

    def _reserved(self, waiters: Sequence[Ticket]) -> set[int]:
        if any(ticket.wanted is None for ticket in waiters):
            return set(range(self.capacity))
        return {ticket.wanted for ticket in waiters if ticket.wanted is not None}

    def leave(self, ticket: Ticket, outcome: Literal["completed", "failed", "cancelled"], now: float) -> None:
        """Give an admitted ticket's slot back; call `settle` next."""
        if ticket.state is not State.ADMITTED:
            raise ValueError(f"a ticket that is {ticket.state.value} cannot leave")
        ticket.state, ticket.left = State.LEFT, now
        self._free.add(ticket.slot)
        self._counts[outcome] += 1

    def close(self) -> None:
        """Admit nobody any more; call `settle` next to turn the waiters away."""
        self.closed = True

    def next_deadline(self) -> float | None:
        """When the first waiter runs out of time."""
        return min((ticket.deadline for ticket in self._waiting), default=None)

    def counters(self) -> Counters:
        """The numbers of this moment."""
        return Counters(
            active=self.capacity - len(self._free),
            queued=len(self._waiting),
            capacity=self.capacity,
            max_queue=self.max_queue,
            queue_timeout_seconds=self.queue_timeout,
            **self._counts,
        )
