"""The admission queue on the event loop, and which slot a conversation prefers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from attrs import define

from colibri.server.admission import (
    Admission,
    Choose,
    ClientGone,
    Counters,
    QueueTimeout,
    SchedulerClosed,
    State,
    Ticket,
)

__all__ = ["Affinity", "Evicted", "Scheduler"]


class Evicted(SchedulerClosed):
    """The server ended before the holder of a slot was done."""


class Scheduler:
    """Waits on `Admission`: one future a ticket, one timer for the nearest deadline.

    `waited` is told how many seconds each admitted request waited, `held` how long it had its slot.
    """

    def __init__(
        self,
        capacity: int,
        max_queue: int,
        queue_timeout: float,
        waited: Callable[[float], None] = lambda seconds: None,
        held: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._core = Admission(capacity, max_queue, queue_timeout)
        self._waited = waited
        self._held = held
        self._futures: dict[Ticket, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._end: float | None = None
        self._limits: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def slot(self, wanted: int | None = None, choose: Choose = min) -> AsyncGenerator[Ticket, None]:
        """Hold a slot for the body; an exception in it counts as failed, a hang-up as cancelled.

        Raises:
            QueueFull: too many wait already.
            QueueTimeout: no slot came in time.
            SchedulerClosed: the server is ending; Evicted if the body was under way.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        ticket = self._core.enter(loop.time(), wanted, choose, future.cancelled)
        self._futures[ticket] = future
        self._idle.clear()
        outcome: Literal["completed", "failed", "cancelled"] = "failed"
        try:
            self._settle()
            await future
            self._waited(ticket.waited)
            async with self._until_evicted():
                yield ticket
            outcome = "completed"
        except (asyncio.CancelledError, GeneratorExit, ClientGone):
            outcome = "cancelled"
            raise
        finally:
            if ticket.state is State.ADMITTED:
                self._core.leave(ticket, outcome, loop.time())
                self._held(ticket.held)
            self._settle()
            if not self._core.counters().active:
                self._idle.set()

    @asynccontextmanager
    async def _until_evicted(self) -> AsyncGenerator[None, None]:
        limit = asyncio.timeout_at(self._end)
        try:
            async with limit:
                self._limits.add(limit)
                yield
        except TimeoutError:
            if limit.expired():
                raise Evicted from None
            raise
        finally:
            self._limits.discard(limit)

    def _settle(self) -> None:
        loop = asyncio.get_running_loop()
        for ticket in self._core.settle(loop.time()):
            future = self._futures.pop(ticket)
            if future.cancelled():
                continue
            if ticket.state is State.ADMITTED:
                future.set_result(None)
            else:
                future.set_exception(QueueTimeout() if ticket.state is State.TIMED_OUT else SchedulerClosed())
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._core.next_deadline()
        self._timer = None if deadline is None else loop.call_at(deadline, self._settle)

    def close(self) -> None:
        """Turn the waiters away and admit nobody any more; who holds a slot keeps it."""
        self._core.close()
        self._settle()

    def evict(self) -> None:
        """Break off the bodies of all who hold a slot, with `Evicted`, as soon as they wait for something."""
        self._end = asyncio.get_running_loop().time()
        limits, self._limits = self._limits, set()
        for limit in limits:
            limit.reschedule(self._end)

    async def idle(self) -> None:
        """Return once no slot is held."""
        await self._idle.wait()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def counters(self) -> Counters:
        """The numbers of this moment."""
        return self._core.counters()


@define
class _Memory:
    key: str | None = None
    prompt: str | Sequence[int] = ""


class Affinity:
    """Prefers the slot that already holds a conversation: a wish, never a reason to wait.

    The conversation's own slot if it is free, else the one with the longest common prefix, else the
    smallest. Where the engine `copies` prefixes between slots, one that holds nothing comes before those
    of other conversations, which would be lost for little.
    """

    def __init__(self, slots: int, *, copies: bool = False) -> None:
        self._slots = [_Memory() for _ in range(slots)]
        self._copies = copies

    def choose(self, key: str | None, prompt: str | Sequence[int]) -> Choose:
        """The rule for one request, for `Scheduler.slot`."""

        def pick(free: Sequence[int]) -> int:
            if len(free) == 1:
                return free[0]
            shared = {slot: _shared(self._slots[slot].prompt, prompt) for slot in free}
            own = [slot for slot in free if key is not None and self._slots[slot].key == key]
            empty = [slot for slot in free if self._copies and not self._slots[slot].prompt]
            continued = [slot for slot in free if empty and self._continues(slot, key, shared[slot])]
            return min(own or continued or empty or free, key=lambda slot: (-shared[slot], slot))

        return pick

    def _continues(self, slot: int, key: str | None, shared: int) -> bool:
        """Whether a prompt keeps most of what the slot holds, and may be of the same conversation."""
        memory = self._slots[slot]
        return 2 * shared > len(memory.prompt) and (key is None or memory.key in (None, key))

    def remember(self, slot: int, key: str | None, prompt: str | Sequence[int]) -> None:
        """`slot` now holds this prompt."""
        self._slots[slot] = _Memory(key, prompt)


def _shared(one: str | Sequence[int], other: str | Sequence[int]) -> int:
    """Length of the common prefix, by bisection."""
    if isinstance(one, str) is not isinstance(other, str):
        return 0
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
