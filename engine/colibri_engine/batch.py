"""Which rows run together in one step: a token of everyone who writes, and a share of what is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from attrs import define, field

from .running import Running
from .state import State

__all__ = ["BESIDE", "MAX_ROWS", "MAX_WANTED", "Step", "plan"]

MAX_ROWS: Final = 128
"""Rows of a step: enough that reading the weights costs little beside computing with them."""

BESIDE: Final = 48
"""Prompt rows of a step in which others write, who wait that long for their next token."""

MAX_WANTED: Final = 32
"""Logit rows of a step."""


@define
class Step:
    """Rows for the executor. parts: for each job its number of rows and of wanted ones, in order."""

    tokens: list[int] = field(factory=list)
    positions: list[int] = field(factory=list)
    states: list[State] = field(factory=list)
    wanted: list[int] = field(factory=list)
    parts: list[tuple[Running, int, int]] = field(factory=list)

    def add(self, running: Running, limit: int, limit_wanted: int) -> None:
        """Take up to `limit` pending rows of a job, of which up to `limit_wanted` need their logits."""
        start, rows, wanted = len(running.slot.history), 0, 0
        while rows < min(limit, running.pending):
            if running.wants(rows):
                if wanted == limit_wanted:
                    break
                self.wanted.append(len(self.tokens))
                wanted += 1
            self.tokens.append(running.tokens[start + rows])
            self.positions.append(start + rows)
            self.states.append(running.slot.state)
            rows += 1
        if rows:
            self.parts.append((running, rows, wanted))

    def deliver(
        self, logits: Sequence[memoryview[float]]
    ) -> Iterable[tuple[Running, int, Sequence[memoryview[float]]]]:
        """Each job with its number of rows and its logits."""
        at = 0
        for running, rows, wanted in self.parts:
            yield running, rows, logits[at : at + wanted]
            at += wanted


def plan(running: Sequence[Running]) -> Step:
    """One step. Jobs that read their prompt share its rows, and its rows of logits, evenly."""
    step = Step()
    for job in running:
        if not job.prefilling:
            step.add(job, 1, 1)
    readers = [job for job in running if job.prefilling]
    budget = min(BESIDE, MAX_ROWS - len(step.tokens)) if step.tokens else MAX_ROWS
    for index, job in enumerate(readers):
        before = len(step.tokens)
        sharers = len(readers) - index
        step.add(job, -(-budget // sharers), -(-(MAX_WANTED - len(step.wanted)) // sharers))
        budget -= len(step.tokens) - before
    return step
