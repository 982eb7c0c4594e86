"""Slots, batches and the scheduler over an executor that only counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.api import Accepted, Done, Echo, Progress
from colibri_engine.batch import BESIDE, MAX_ROWS
from colibri_engine.errors import EngineFailed

from .counting import Counting, pieces, reply_to, run_all, scheduler_of, submit

PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=150)


@settings(max_examples=60)
@given(
    st.integers(1, 4), st.lists(st.tuples(PROMPTS, st.integers(0, 12), st.booleans()), max_size=8), st.data()
)
def test_every_job_gets_its_own_reply_whatever_is_reused(slots, jobs, data):
    """Prompts of two letters share many prefixes; a reply is wrong if one position of its slot is."""
    executor = Counting()
    scheduler = scheduler_of(executor, slots)
    running = []
    for prompt, count, echo in jobs:
        number = data.draw(st.sampled_from([None, *range(slots)]))
        logprobs = 1 if echo else None
        running.append(
            (prompt, count, submit(scheduler, prompt, count, echo=echo, logprobs=logprobs, slot=number))
        )
        for _ in range(data.draw(st.integers(0, 4))):
            scheduler.step()
    cancelled = {index for index in range(len(running)) if data.draw(st.booleans()) and index % 3 == 0}
    for index in cancelled:
        running[index][2][0].cancelled = True
    run_all(scheduler)
    for index, (prompt, count, (_, events)) in enumerate(running):
        if index not in cancelled:
            assert pieces(events) == reply_to(prompt, count)
            assert (events[-1].reason, events[-1].completion_tokens) == ("length", count)
    assert len(executor.states) <= slots


def test_whoever_writes_gets_a_token_in_every_step():
    executor = Counting()
    scheduler = scheduler_of(executor, 3)
    _, writer = submit(scheduler, [1], 50)
    scheduler.step()
    _, reader = submit(scheduler, [1] * 150, 1)
    _, other = submit(scheduler, [0] * 150, 1)
    for step in range(1, 4):
        scheduler.step()
        assert len(pieces(writer)) == step + 1
        rows = executor.steps[-1]
        assert len(rows) == 1 + BESIDE
        assert [sum(slot == number for slot, _ in rows) for number in (1, 2)] == [BESIDE // 2] * 2
    run_all(scheduler)
    assert pieces(reader) == reply_to([1] * 150, 1)
    assert pieces(other) == reply_to([0] * 150, 1)


def test_readers_share_the_rows_of_logits():
    """Two jobs that echo long prompts do not keep a third from its only row of logits, nor one another."""
    executor = Counting()
    scheduler = scheduler_of(executor, 4)
    _, writer = submit(scheduler, [1], 30)
    scheduler.step()
    echoes = [submit(scheduler, [letter] * 150, 0, echo=True, logprobs=0)[1] for letter in (0, 1)]
    _, plain = submit(scheduler, [1] * 20, 1)
    while not plain or not isinstance(plain[-1], Done):
        scheduler.step()
        assert len(executor.steps) <= 4
    told = [sum(isinstance(event, Echo) for event in events) for events in echoes]
    assert abs(told[0] - told[1]) <= len(executor.steps)
    assert min(told) > 10
    assert len(pieces(writer)) == len(executor.steps)
    run_all(scheduler)
    for events in echoes:
        positions = [event.position for event in events if isinstance(event, Echo)]
        assert positions == list(range(150))


@settings(max_examples=30)
@given(st.integers(1, 4), st.lists(st.integers(1, 150), min_size=1, max_size=6), st.integers(0, 20))
def test_progress_rises_to_the_whole_prompt(slots, lengths, cached):
    scheduler = scheduler_of(Counting(), slots)
    submit(scheduler, [1] * (cached + 1), 0)
    run_all(scheduler)
    outcomes = [submit(scheduler, [1] * length, 2)[1] for length in lengths]
    run_all(scheduler)
    for length, events in zip(lengths, outcomes, strict=True):
        done = [event.done for event in events if isinstance(event, Progress)]
        assert done == sorted(set(done))
        assert done[0] > events[0].cached_tokens
        assert done[-1] == length
        assert {event.total for event in events if isinstance(event, Progress)} == {length}


def test_a_lone_prompt_is_read_in_whole_steps():
    executor = Counting()
    scheduler = scheduler_of(executor, 1)
    submit(scheduler, [1] * 150, 1)
    run_all(scheduler)
    assert [len(step) for step in executor.steps] == [MAX_ROWS, 150 - MAX_ROWS]


def test_a_taken_slot_holds_up_only_those_who_want_it():
    scheduler = scheduler_of(Counting(), 2)
    submit(scheduler, [1], 100, slot=0)
    _, same = submit(scheduler, [2], 1, slot=0)
    _, free = submit(scheduler, [3], 1)
    scheduler.step()
    assert same == []
    assert isinstance(free[-1], Done)
    run_all(scheduler)
    assert isinstance(same[-1], Done)


@pytest.mark.parametrize(
    "part",
    [
        "colibri_engine.scheduler.plan",
        "colibri_engine.scheduler.Running",
        "colibri_engine.slots.Slots.acquire",
        "colibri_engine.running.Running.advance",
        "tests.engine.counting.Counting.run",
    ],
)
def test_whatever_breaks_fails_all_jobs_once_and_later_ones_run(part, monkeypatch):
    executor = Counting()
    scheduler = scheduler_of(executor, 2)
    outcomes = [submit(scheduler, [1, 2], 1)[1] for _ in range(3)]

    def broken(*arguments, **options):
        raise ValueError("no sense")

    with monkeypatch.context() as patch:
        patch.setattr(part, broken)
        with pytest.raises(ValueError, match="no sense"):
            scheduler.step()
    assert scheduler.idle
    for events in outcomes:
        assert [type(event) for event in events if not isinstance(event, Accepted)] == [EngineFailed]
        assert "the engine broke in a step: ValueError: no sense" in str(events[-1])
    later = [submit(scheduler, [1, 2], 3)[1] for _ in range(2)]
    run_all(scheduler)
    for events in later:
        assert events[0].cached_tokens == 0
        assert pieces(events) == reply_to([1, 2], 3)
