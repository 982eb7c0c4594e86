"""Pinned prompts: kept whatever becomes of their slot, the longest wins, and there are never too many."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from colibri_engine.api import Accepted, Job
from colibri_engine.errors import JobError, SpecError
from colibri_engine.local import LocalEngine, open_local
from colibri_engine.snapshots import Snapshots

from .counting import GREEDY, Counting, Memory, pieces, reply_to, run_all, scheduler_of, submit
from .test_local import Letters, collect, ids, make_executor
from .tiny_checkpoints import write_tiny


def state_of(tokens: list[int]) -> Memory:
    state = Memory()
    state.tokens = dict(enumerate(tokens))
    return state


def kept(snapshots: Snapshots) -> list[list[int]]:
    return sorted(snapshot.history for snapshot in snapshots)


def test_the_longest_unused_snapshot_makes_room():
    snapshots = Snapshots(Memory, 2)
    for tokens in ([1], [2], [1], [3]):
        snapshots.take(tokens, state_of(tokens))
    assert kept(snapshots) == [[1], [3]]
    assert snapshots.tokens == 2
    snapshots.touch(next(iter(snapshots)))
    snapshots.take([4], state_of([4]))
    assert kept(snapshots) == [[1], [4]]


def test_without_pins_nothing_is_kept():
    snapshots = Snapshots(Memory, 0)
    snapshots.take([1], state_of([1]))
    assert len(snapshots) == 0


def test_memory_is_bounded_and_given_back():
    alive = weakref.WeakSet()

    def make_state() -> Memory:
        state = Memory()
        alive.add(state)
        return state

    snapshots = Snapshots(make_state, 2)
    for number in range(10):
        snapshots.take([number], state_of([number]))
        gc.collect()
        assert len(alive) <= 2
    snapshots.clear()
    gc.collect()
    assert len(alive) == 0


def test_a_pinned_prompt_outlives_its_slot_and_costs_a_copy_only():
    executor = Counting()
    scheduler = scheduler_of(executor, 1, pins=4)
    prompt = [1, 2, 3, 4] * 10
    submit(scheduler, prompt, 0, pin=True)
    run_all(scheduler)
    for other in ([9] * 50, [8] * 50):
        submit(scheduler, other, 3)
        run_all(scheduler)
    executor.steps.clear()
    _, events = submit(scheduler, [*prompt, 7], 2)
    run_all(scheduler)
    assert events[0] == Accepted(41, 40)
    assert sum(map(len, executor.steps)) == 2
    assert pieces(events) == reply_to([*prompt, 7], 2)
    assert scheduler.gauges["pins"] == 1
    assert scheduler.gauges["pinned_tokens"] == 40


def test_pins_nest_and_the_deepest_wins():
    scheduler = scheduler_of(Counting(), 1, pins=4)
    for length in (10, 30, 20):
        submit(scheduler, [1] * length, 0, pin=True)
        run_all(scheduler)
    submit(scheduler, [9], 0)
    run_all(scheduler)
    for tokens, cached in (([1] * 25 + [2], 25), ([1] * 10 + [3], 10), ([1] * 30, 29), ([1] * 50, 30)):
        _, events = submit(scheduler, tokens, 0)
        run_all(scheduler)
        assert events[0].cached_tokens == cached
        submit(scheduler, [9], 0)
        run_all(scheduler)


def test_no_memory_for_a_pin_costs_the_pin_only(caplog):
    executor = Counting()
    scheduler = scheduler_of(executor, 1, pins=1)
    _, events = submit(scheduler, [1, 2], 3, pin=True)
    make_state = executor.new_state

    def refuse() -> Memory:
        if executor.states:
            raise MemoryError("the system gives no 4096 bytes of memory")
        return make_state()

    scheduler._slots.snapshots._make_state = refuse
    run_all(scheduler)
    assert pieces(events) == reply_to([1, 2], 3)
    assert "a prompt could not be pinned: the system gives no 4096 bytes" in caplog.text


def test_no_memory_for_a_slot_refuses_its_jobs_only():
    executor = Counting()
    scheduler = scheduler_of(executor, 2)
    _, first = submit(scheduler, [1, 2], 3)
    scheduler.step()

    def refuse() -> Memory:
        raise MemoryError("the system gives no 4096 bytes of memory")

    scheduler._slots._make_state = refuse
    _, second = submit(scheduler, [5], 3)
    run_all(scheduler)
    assert pieces(first) == reply_to([1, 2], 3)
    assert [error.message for error in second] == [
        "there is no memory for one more slot: the system gives no 4096 bytes of memory"
    ]


async def test_replies_after_a_pinned_prompt_are_the_same():
    engine = LocalEngine(make_executor(), Letters(), slots=1, pins=2)
    prompt = np.random.default_rng(0).integers(1, 49, 30).tolist()
    await collect(engine, Job(prompt, 0, pin=True))
    await collect(engine, Job([7] * 20, 5, sampling=GREEDY))
    events = await collect(engine, Job([*prompt, 5], 8, sampling=GREEDY, logprobs=3))
    assert events[0] == Accepted(31, 30)
    fresh = LocalEngine(make_executor(), Letters(), slots=1)
    alone = await collect(fresh, Job([*prompt, 5], 8, sampling=GREEDY, logprobs=3))
    assert events[2:-1] == alone[2:-1]
    assert ids(events)
    with pytest.raises(JobError, match="pin: this engine keeps no pinned prompts"):
        await collect(fresh, Job(prompt, 0, pin=True))
    await engine.close()
    await fresh.close()


@pytest.mark.parametrize(("word", "pins"), [(None, 4), ("0", 0), ("7", 7), ("65", None), ("many", None)])
async def test_the_environment_says_how_many_pins_there_are(tmp_path, monkeypatch, word, pins):
    path = tmp_path / "tiny.gguf"
    spec = write_tiny(path)
    monkeypatch.delenv("COLI_PIN_SLOTS", raising=False)
    if word is not None:
        monkeypatch.setenv("COLI_PIN_SLOTS", word)
    if pins is None:
        with pytest.raises(SpecError, match=f"COLI_PIN_SLOTS is '{word}'; it must be a number from 0 to 64"):
            open_local(path, spec)
        return
    engine = open_local(path, spec)
    assert engine.capabilities.pins == pins
    await engine.close()
