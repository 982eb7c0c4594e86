"""An executor that only counts, for tests of slots and scheduling."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from colibri_engine.api import Job, Piece, SamplingParams
from colibri_engine.batch import MAX_ROWS, MAX_WANTED
from colibri_engine.scheduler import Scheduler, Ticket
from colibri_engine.slots import Slots

VOCAB = 10
GREEDY = SamplingParams(temperature=0)
TOKENIZER = SimpleNamespace(
    eos=frozenset(), token_bytes=lambda token: b"%d" % token, is_control=lambda token: False
)


class Memory:
    """A slot's state that knows which token is at which position, and how many were copied to it."""

    def __init__(self) -> None:
        self.tokens: dict[int, int] = {}
        self.copied = 0

    def copy_rows(self, other: Memory, start: int, end: int) -> None:
        self.tokens |= {at: other.tokens[at] for at in range(start, end)}
        self.copied += end - start


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


def scheduler_of(executor: Counting, slots: int, pins: int = 0) -> Scheduler:
    return Scheduler(executor, TOKENIZER, Slots(executor.new_state, slots, pins))


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
