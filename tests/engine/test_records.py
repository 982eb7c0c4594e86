"""What a program reports of tokens, and what it leaves out, repeats or garbles."""

from __future__ import annotations

import asyncio
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.api import Done, Echo, Piece
from colibri_engine.echoes import EchoOrder
from colibri_engine.errors import EngineFailed, RecordsFailed

from .frames_of_tokens import ACCEPT, DONE, GOOD, INCOMPLETE, MALFORMED, ORDERS, echo, scripted, spelled
from .processes import collect, eventually, job


async def test_a_malformed_frame_fails_only_its_own_job_when_that_ends(tmp_path):
    async with asyncio.timeout(60), scripted(tmp_path) as (engine, read):
        for frame, code in MALFORMED:
            # The last None holds the end back until a second STOP, which must not come.
            prompt = spelled(ACCEPT, GOOD, frame, GOOD, frame, None, GOOD, None, DONE)
            before = len(read())
            failing = asyncio.create_task(collect(engine, job(prompt, 9, logprobs=1, echo=True)))
            await eventually(lambda before=before: "STOP" in " ".join(read()[before:]))
            events = await collect(engine, job(spelled(ACCEPT, GOOD, DONE), 9, logprobs=1))
            assert [event.data for event in events if isinstance(event, Piece)] == [b"hi"]
            assert not failing.done(), frame
            told = [line for line in read()[before:] if line.startswith(("STOP", "CANCEL"))]
            assert len(told) == 1, frame
            engine._session._child.write(f"{told[0]}\n".encode())
            with pytest.raises(EngineFailed, match="senseless") as caught:
                await failing
            assert caught.value.code == code, frame


async def test_one_who_leaves_does_not_wait_for_the_end(tmp_path):
    async with asyncio.timeout(30), scripted(tmp_path) as (engine, read):
        frame = MALFORMED[0][0]
        leaving = asyncio.create_task(collect(engine, job(spelled(ACCEPT, frame, None, None, DONE), 9)))
        await eventually(lambda: "STOP 1" in read())
        leaving.cancel()
        await asyncio.wait([leaving])
        await eventually(lambda: not engine._session.exchanges)
        assert [line for line in read() if line.startswith("CANCEL")] == ["CANCEL 1"]


async def test_a_value_that_is_no_number_is_not_a_missing_one(tmp_path):
    async with scripted(tmp_path) as (engine, _):
        frames = (ACCEPT, "DATA ID 1 nan 0\na", "DATA ID 1 -inf 0\nb", "DATA ID 1\nc", DONE)
        first, second, third = (await collect(engine, job(spelled(*frames), 9, logprobs=1)))[1:-1]
        assert isnan(first.logprob)
        assert second.logprob == -float("inf")
        assert third.logprob is None


@pytest.mark.parametrize(("positions", "code"), ORDERS.items())
async def test_scores_are_of_all_positions_or_of_none(positions, code, tmp_path):
    async with scripted(tmp_path) as (engine, _):
        prefix, option = spelled("ACCEPT ID 1", "DONE ID STAT 0 0 0 0 1 0"), 4
        frames = [echo(0), *(echo(1 + position) for position in positions)]
        with pytest.raises(RecordsFailed) as caught:
            await engine.score(prefix, [spelled(f"ACCEPT ID {option}", *frames, DONE)])
        assert caught.value.code == code


async def test_scores_are_in_the_order_of_positions(tmp_path):
    async with scripted(tmp_path) as (engine, _):
        prefix = spelled("ACCEPT ID 1", "DONE ID STAT 0 0 0 0 1 0")
        frames = [echo(position) for position in (2, 0, 3, 1)]
        (score,) = await engine.score(prefix, [spelled("ACCEPT ID 4", *frames, DONE)])
        assert score.logprobs == (-1.0, -2.0, -3.0)


def ordered(positions, first=0):
    order, records = EchoOrder(first), []
    for position in positions:
        records += order.take(Echo(position, b"a", None, -1.0))
    return order, [record.position for record in records]


@given(st.integers(0, 3), st.integers(1, 8).flatmap(lambda count: st.permutations(range(count))))
def test_any_order_is_put_right(first, positions):
    order, records = ordered([first + position for position in positions], first)
    assert records == [*range(first, first + len(positions))]
    order.close(first + len(positions))
    order.close(0)


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(1, 5))
def test_any_other_positions_are_a_fault(positions, count):
    if sorted(positions) == [*range(count)]:
        return
    with pytest.raises(RecordsFailed):
        ordered(positions)[0].close(count)


def test_what_comes_after_the_reply_began_is_too_late():
    order, _ = ordered([0])
    order.close(0)
    with pytest.raises(RecordsFailed, match="too late") as caught:
        order.take(Echo(1, b"a", None, -1.0))
    assert caught.value.code == INCOMPLETE


async def test_more_candidates_than_asked_for_are_told(tmp_path):
    async with scripted(tmp_path) as (engine, _):
        frame = "DATA ID 1 -0.5 2 7 -0.5 7 -0.5\na"
        _, piece, done = await collect(engine, job(spelled(ACCEPT, frame, DONE), 9, logprobs=1))
        assert [candidate.token_id for candidate in piece.top] == [7, 7]
        assert isinstance(done, Done)
