"""The queue on the event loop, and slot preference."""

from __future__ import annotations

import asyncio

import pytest

from colibri.server.admission import QueueFull, QueueTimeout, SchedulerClosed
from colibri.server.scheduler import Affinity, Evicted, Scheduler


async def hold(scheduler, entered, leave, **wishes):
    async with scheduler.slot(**wishes) as ticket:
        entered.append(ticket.slot)
        await leave.wait()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_first_in_first_out():
    scheduler, entered = Scheduler(1, 8, 60), []
    doors = [asyncio.Event() for _ in range(3)]
    order = []

    async def visit(index):
        async with scheduler.slot():
            order.append(index)
            await doors[index].wait()

    tasks = [asyncio.create_task(visit(index)) for index in range(3)]
    for door in doors:
        await settled()
        door.set()
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2]
    assert entered == []
    assert scheduler.counters().completed == 3


async def test_timeout_is_told_without_anyone_leaving():
    scheduler, leave = Scheduler(1, 8, 0.02), asyncio.Event()
    task = asyncio.create_task(hold(scheduler, [], leave))
    await settled()
    with pytest.raises(QueueTimeout):
        async with scheduler.slot():
            pass
    leave.set()
    await task
    assert scheduler.counters().timed_out == 1


async def test_queue_full():
    scheduler, leave = Scheduler(1, 0, 60), asyncio.Event()
    task = asyncio.create_task(hold(scheduler, [], leave))
    await settled()
    with pytest.raises(QueueFull):
        async with scheduler.slot():
            pass
    leave.set()
    await task


async def test_cancelled_while_waiting_is_not_admitted_even_when_the_slot_comes_free():
    scheduler, leave, entered = Scheduler(1, 8, 60), asyncio.Event(), []
    first = asyncio.create_task(hold(scheduler, entered, leave))
    second = asyncio.create_task(hold(scheduler, entered, leave))
    third = asyncio.create_task(hold(scheduler, entered, leave))
    await settled()
    leave.set()
    second.cancel()
    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second
    counts = scheduler.counters()
    assert (counts.admitted, counts.cancelled, counts.active, counts.queued) == (2, 1, 0, 0)


async def test_outcomes_are_counted():
    scheduler = Scheduler(1, 8, 60)
    with pytest.raises(RuntimeError):
        async with scheduler.slot():
            raise RuntimeError
    task = asyncio.create_task(hold(scheduler, [], asyncio.Event()))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    counts = scheduler.counters()
    assert (counts.failed, counts.cancelled, counts.completed, counts.active) == (1, 1, 0, 0)


async def test_closing_turns_waiters_away_and_waits_for_the_rest():
    scheduler, leave = Scheduler(1, 8, 60), asyncio.Event()
    first = asyncio.create_task(hold(scheduler, [], leave))
    waiter = asyncio.create_task(hold(scheduler, [], leave))
    await settled()
    scheduler.close()
    with pytest.raises(SchedulerClosed):
        await waiter
    with pytest.raises(SchedulerClosed):
        async with scheduler.slot():
            pass
    idle = asyncio.create_task(scheduler.idle())
    await settled()
    assert not idle.done()
    leave.set()
    await asyncio.gather(first, idle)


async def test_eviction_breaks_off_who_holds_a_slot_now_or_a_moment_later():
    scheduler, never = Scheduler(2, 8, 60), asyncio.Event()
    early = asyncio.create_task(hold(scheduler, [], never))
    await settled()
    late = asyncio.create_task(hold(scheduler, [], never))
    await asyncio.sleep(0)
    scheduler.close()
    scheduler.evict()
    scheduler.evict()
    told = await asyncio.gather(early, late, return_exceptions=True)
    assert [type(each) for each in told] == [Evicted, Evicted]
    await scheduler.idle()
    assert scheduler.counters().failed == 2


@pytest.mark.parametrize("copies", [False, True])
def test_which_slot_is_preferred(copies):
    affinity = Affinity(3, copies=copies)
    affinity.remember(1, "a", "system: one")
    affinity.remember(2, "b", "system: two")
    assert affinity.choose("b", "something else")([0, 1, 2]) == 2
    assert affinity.choose("b", "system: one more")([0, 1]) == (0 if copies else 1)
    assert affinity.choose("a", "system: two")([1, 2]) == 1
    assert affinity.choose(None, "system: one more")([0, 1, 2]) == 1
    assert affinity.choose("c", "system: one more")([0, 1, 2]) == (0 if copies else 1)
    assert affinity.choose("c", "system: two more")([1, 2]) == 2
    assert affinity.choose(None, "else")([0, 1, 2]) == 0
    assert affinity.choose("b", "system: two")([0]) == 0


def test_token_prompts_compare_with_token_prompts():
    affinity = Affinity(3)
    affinity.remember(1, None, [1, 2, 3])
    affinity.remember(2, None, "1 2 3")
    assert affinity.choose(None, [1, 2, 9])([0, 1, 2]) == 1
    assert affinity.choose(None, "1 2 9")([0, 1, 2]) == 2
