"""Exactness as a law: whatever else runs, a job says what it says alone, to the last bit."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine._exec import Executor
from colibri_engine.api import Done, Echo, Job, Piece, SamplingParams
from colibri_engine.scheduler import Scheduler, Ticket
from colibri_engine.slots import Slots

from .counting import run_all
from .models import random_network
from .test_local import Letters

CONTEXT = 48
TEXT = np.random.default_rng(5).integers(1, 49, (2, CONTEXT)).tolist()


@cache
def executor_of(moe: bool, threads: int) -> Executor:
    spec, source = random_network(np.random.default_rng(1), dtypes="BF16", moe=moe)
    return Executor(spec, source, context=CONTEXT, threads=threads, max_rows=128, max_wanted=32)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Prompts that share prefixes and part somewhere, read and answered in all ways."""
    text, shared = TEXT[draw(st.integers(0, 1))], draw(st.integers(1, 40))
    prompt = text[:shared] + draw(st.lists(st.integers(1, 48), max_size=CONTEXT - shared))
    echo = draw(st.booleans())
    return Job(
        tuple(prompt),
        draw(st.integers(0, 12)),
        sampling=SamplingParams(
            temperature=draw(st.sampled_from([0, 1.5])), top_p=0.95, seed=draw(st.integers(0, 9))
        ),
        logprobs=32,
        echo=echo,
        echo_from=draw(st.integers(0, len(prompt))) if echo else 0,
        slot=draw(st.sampled_from([None, None, 0, 1])),
        pin=draw(st.booleans()),
    )


class Run:
    """A scheduler with fresh memory, and what its jobs said."""

    def __init__(self, executor: Executor, slots: int) -> None:
        self.executor = executor
        self.scheduler = Scheduler(executor, Letters(), Slots(executor.new_state, slots, 2))

    def submit(self, job: Job) -> tuple[Ticket, list]:
        events: list = []
        ticket = Ticket(job, list(job.prompt), events.extend)
        self.scheduler.submit(ticket)
        return ticket, events

    def step(self, interrupted: bool) -> None:
        self.executor.cancel(interrupted)
        self.scheduler.step()
        self.executor.cancel(False)


def essence(events: list) -> list:
    told = [event for event in events if isinstance(event, Echo | Piece)]
    return [*told, (events[-1].reason, events[-1].completion_tokens)]


def alone(moe: bool, job: Job) -> list:
    """What the job says when nothing else runs and nothing is remembered."""
    run = Run(executor_of(moe, 1), 2)
    _, events = run.submit(job)
    run_all(run.scheduler)
    return essence(events)


@settings(max_examples=60)
@given(st.booleans(), st.integers(2, 4), st.lists(jobs(), min_size=1, max_size=9), st.data())
def test_no_schedule_changes_a_bit(moe, slots, given_jobs, data):
    run = Run(executor_of(moe, 2), slots)
    running = []
    for job in given_jobs:
        running.append((job, *run.submit(job)))
        for _ in range(data.draw(st.integers(0, 4))):
            run.step(data.draw(st.integers(0, 5)) == 0)
        if data.draw(st.integers(0, 4)) == 0:
            data.draw(st.sampled_from(running))[1].cancelled = True
    run_all(run.scheduler)
    for job, ticket, events in running:
        if ticket.cancelled and (not events or events[-1].reason == "cancelled"):
            told = essence(events)[:-1] if events else []
            assert told == alone(moe, job)[: len(told)]
        else:
            assert isinstance(events[-1], Done)
            assert essence(events) == alone(moe, job)
