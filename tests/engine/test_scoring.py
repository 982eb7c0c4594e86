"""Options scored after a prefix: exactly as an echo of the whole says, and the prefix is read once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine.api import Accepted, Capabilities, Done, Echo, Job
from colibri_engine.errors import ContextLengthExceeded, EngineFailed, JobError
from colibri_engine.local import LocalEngine
from colibri_engine.scoring import Scoring

from .test_local import Letters, collect, make_executor
from .test_worker import tiny, tiny_worker  # noqa: F401

TOKENS = st.lists(st.integers(1, 48), min_size=1, max_size=14)


class Counted:
    """An executor that counts its rows."""

    def __init__(self) -> None:
        self._executor = make_executor()
        self.rows = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def run(self, tokens, *rest):
        self.rows += len(tokens)
        return self._executor.run(tokens, *rest)


async def echoed(prefix: list[int], option: list[int]) -> list[float]:
    """What an engine that remembers nothing says of the option."""
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    events = await collect(engine, Job([*prefix, *option], 0, logprobs=0, echo=True))
    await engine.close()
    return [event.logprob for event in events if isinstance(event, Echo)][len(prefix) :]


@settings(max_examples=25)
@given(
    TOKENS, st.lists(st.lists(st.integers(1, 48), max_size=5), max_size=5), st.integers(1, 3), st.booleans()
)
def test_scores_are_those_of_an_echo_and_each_option_costs_its_own_tokens(prefix, options, slots, pin):
    async def check() -> None:
        executor = Counted()
        engine = LocalEngine(executor, Letters(), slots=slots, pins=1)
        scores = await engine.score(prefix, options, slot=0 if slots == 2 else None, pin=pin)
        assert executor.rows <= len(prefix) + sum(len(option) + 1 for option in options)
        await engine.close()
        for option, found in zip(options, scores, strict=True):
            assert list(found.token_ids) == option
            assert list(found.logprobs) == await echoed(prefix, option)
            assert found.total == pytest.approx(sum(found.logprobs))

    asyncio.run(check())


async def test_texts_and_slots():
    engine = LocalEngine(make_executor(), Letters(), slots=3)
    await collect(engine, Job("ZZZZ", 0, slot=1))
    scores = await engine.score("CADAE", ["BC", "", "D"], slot=0)
    assert [found.logprobs for found in scores] == [
        tuple(await echoed([3, 1, 4, 1, 5], option)) for option in ([2, 3], [], [4])
    ]
    assert (scores[1].token_ids, scores[1].total) == ((), 0.0)
    assert (await collect(engine, Job("ZZZZA", 0, slot=1)))[0] == Accepted(5, 4)
    await engine.close()


async def test_a_worker_scores_the_same(tiny):  # noqa: F811
    prefix, options = [3, 1, 4, 1, 5], [[9, 2], [6], [5, 3, 5]]
    async with tiny_worker(tiny, slots=2) as engine:
        ids = await engine.score(prefix, options)
        text = await engine.score("CADAE", ["IB", "F", "ECE"])
    assert ids == text
    assert [found.token_ids for found in ids] == [tuple(option) for option in options]


@pytest.mark.parametrize(
    ("prefix", "options", "error", "message"),
    [
        ([1], ["A"], JobError, "all be texts or all be token ids"),
        ("A", [[1]], JobError, "all be texts or all be token ids"),
        ([], [[1]], JobError, "the prompt has no tokens"),
        ([1], [[2], [50]], JobError, "token id 50"),
        ([1] * 40, [[2], [2] * 9], ContextLengthExceeded, "49 tokens"),
    ],
)
async def test_what_cannot_be_scored_is_named(prefix, options, error, message):
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    with pytest.raises(error, match=message):
        await engine.score(prefix, options)
    assert await engine.score([1], [[2]])
    await engine.close()


class Merging(Scoring):
    """An engine to which an option adds no token, or that keeps back what it should tell."""

    capabilities = Capabilities(100, max_logprobs=1, echo=True)

    def __init__(self, *echoes: Echo, reason: str = "length") -> None:
        self.echoes = echoes
        self.reason = reason

    async def generate(self, job: Job):
        yield Accepted(1 + len(self.echoes) * (len(job.prompt) - 1))
        for echo in self.echoes:
            yield echo
        yield Done(self.reason, 1, 0)


@pytest.mark.parametrize(
    ("engine", "error", "message"),
    [
        (Merging(), JobError, "'b' melts into the prefix's last token"),
        (Merging(Echo(1, b"b", 2, None)), EngineFailed, "kept the log probability"),
        (Merging(reason="cancelled"), EngineFailed, "gave an option up"),
    ],
)
async def test_engines_that_do_not_tell(engine, error, message):
    with pytest.raises(error, match=message):
        await engine.score("a", ["b"])


async def test_an_engine_without_echo():
    engine = Merging()
    engine.capabilities = Capabilities(100)
    with pytest.raises(JobError, match="does not tell the log probabilities of a prompt"):
        await engine.score("a", ["b"])
