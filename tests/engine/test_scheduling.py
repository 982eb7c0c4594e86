"""Slots, batches and the scheduler over an executor that only counts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.api import Accepted, Done, Job, Piece, SamplingParams
from colibri_engine.batch import BESIDE, MAX_ROWS, MAX_WANTED
from colibri_engine.errors import EngineFailed
from colibri_engine.scheduler import Scheduler, Ticket
from colibri_engine.slots import Slots

VOCAB = 10
GREEDY = SamplingParams(temperature=0)


class Memory:
    """A slot's state that knows which token is at which position."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}

    def copy_prefix(self, other: Memory, positions: int) -> None:
        self.tokens = {at: other.tokens[at] for at in range(positions)}


class Counting:
    """An executor whose next token is the sum of all before it; it checks that every one is there."""

    context, vocab = 200, VOCAB

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []
        self.states: list[Memory] = []

    def new_state(self) -> Memory:
        self.states.append(Memory())
        return self.states[-1]

    def run(self, tokens, positions, states, wanted):
        assert 0 < len(tokens) <= MAX_ROWS
        assert len(wanted) <= MAX_WANTED
        for token, position, state in zip(tokens, positions, states, strict=True):
            state.tokens[position] = token
        self.steps.append(
            [(self.states.index(state), at) for state, at in zip(states, positions, strict=True)]
        )
        rows = []
        for row in wanted:
            total = sum(states[row].tokens[at] for at in range(positions[row] + 1))
            rows.append(np.eye(VOCAB, dtype=np.float32)[total % VOCAB])
        return rows


TOKENIZER = SimpleNamespace(
    eos=frozenset(), token_bytes=lambda token: b"%d" % token, is_control=lambda token: False
)


def reply_to(prompt: list[int], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(sum(tokens) % VOCAB)
    return tokens[len(prompt) :]


def submit(scheduler: Scheduler, prompt: list[int], count: int, **options: object) -> tuple[Ticket, list]:
    events: list = []
    job = Job(prompt, count, sampling=GREEDY, **options)
    ticket = Ticket(job, prompt, lambda news: events.extend(news if isinstance(news, list) else [news]))
    scheduler.submit(ticket)
    return ticket, events


def run_all(scheduler: Scheduler) -> None:
    for _ in range(2000):
        if scheduler.idle:
            return
        scheduler.step()
    pytest.fail("the scheduler never becomes idle")


def pieces(events: list) -> list[int]:
    return [event.token_id for event in events if isinstance(event, Piece)]


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=150)


@settings(max_examples=60)
@given(
    st.integers(1, 4), st.lists(st.tuples(PROMPTS, st.integers(0, 12), st.booleans()), max_size=8), st.data()
)
def test_every_job_gets_its_own_reply_whatever_is_reused(slots, jobs, data):
    """Prompts of two letters share many prefixes; a reply is wrong if one position of its slot is."""
    executor = Counting()
    scheduler = Scheduler(executor, TOKENIZER, slots)
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
    scheduler = Scheduler(executor, TOKENIZER, 3)
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


def test_a_lone_prompt_is_read_in_whole_steps():
    executor = Counting()
    scheduler = Scheduler(executor, TOKENIZER, 1)
    submit(scheduler, [1] * 150, 1)
    run_all(scheduler)
    assert [len(step) for step in executor.steps] == [MAX_ROWS, 150 - MAX_ROWS]


def test_a_taken_slot_holds_up_only_those_who_want_it():
    scheduler = Scheduler(Counting(), TOKENIZER, 2)
    submit(scheduler, [1], 100, slot=0)
    _, same = submit(scheduler, [2], 1, slot=0)
    _, free = submit(scheduler, [3], 1)
    scheduler.step()
    assert same == []
    assert isinstance(free[-1], Done)
    run_all(scheduler)
    assert isinstance(same[-1], Done)


def test_a_conversation_keeps_its_slot_and_others_take_the_oldest():
    slots = Slots(Memory, 2)
    first = slots.acquire([1, 2, 3])
    first.history = [1, 2, 3, 4]
    slots.release(first)
    second = slots.acquire([5, 6])
    assert second is not first
    second.history = [5, 6]
    slots.release(second)
    assert slots.acquire([1, 2, 3, 4, 5]) is first
    assert first.history == [1, 2, 3, 4]
    slots.release(first)
    assert slots.acquire([7]) is second
    assert second.history == []


def test_a_prefix_of_a_busy_slot_is_copied():
    slots = Slots(Memory, 2)
    first = slots.acquire([1, 2, 3])
    first.history, first.state.tokens = [1, 2, 3], {0: 1, 1: 2, 2: 3}
    second = slots.acquire([1, 2, 9])
    assert second.history == [1, 2]
    assert second.state.tokens == {0: 1, 1: 2}
    assert slots.acquire([1]) is None


def test_a_broken_executor_fails_all_jobs_once():
    class Broken(Counting):
        def run(self, *rows):
            raise MemoryError("no room")

    scheduler = Scheduler(Broken(), TOKENIZER, 1)
    outcomes = [submit(scheduler, [1], 1)[1] for _ in range(2)]
    with pytest.raises(MemoryError):
        scheduler.step()
    assert scheduler.idle
    for events in outcomes:
        assert [type(event) for event in events if not isinstance(event, Accepted)] == [EngineFailed]
        assert "the engine broke in a step: MemoryError: no room" in str(events[-1])
