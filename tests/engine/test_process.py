"""A program as an engine: what it says, what it does wrong, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections import Counter
from contextlib import aclosing, suppress
from random import Random

import pytest

from colibri_engine import child, process
from colibri_engine.api import Accepted, Done, Job, Piece, SamplingParams
from colibri_engine.errors import CheckpointError, ContextLengthExceeded, EngineFailed, JobError
from colibri_engine.process import Command, ProcessEngine, ProcessSettings

from .processes import FAKE, PLAIN, collect, eventually, fake, fake_argv, job, reply, with_argument

DEAF = r"print('\x01\x01READY\x01\x01\nSTAT', flush=True); import time; time.sleep(60)"
"""A program that is ready and then reads nothing."""


@pytest.mark.parametrize("version", ["1", "2"])
async def test_a_reply_from_its_beginning_to_its_end(version):
    async with fake("--version", version) as engine:
        events = await collect(engine, job("abc", 5))
        assert events[0] == Accepted(3)
        assert b"".join(event.data for event in events[1:-1]) == b"cbacb"
        assert [event.token_id for event in events[1:-1]] == [*b"cbacb"] if version == "2" else [None] * 5
        done = events[-1]
        assert (done.reason, done.prompt_tokens, done.completion_tokens) == ("length", 3, 5)
        text = "héllo\nDONE 2 STAT 0 0 0 0 0 0\n🙂"
        assert (await reply(engine, job(text, len(text.encode()))))[::-1] == text.encode()


async def test_capabilities_come_from_the_program():
    async with fake("--version", "2", "--slots", "3") as engine:
        able = engine.capabilities
        assert (able.context_length, able.slots, able.tokenize) == (512, 3, False)
        assert able.sampling == {"temperature", "top_p", "seed"}
    async with fake("--version", "1", slots=5) as engine:
        assert engine.capabilities.slots == 5
        assert engine.capabilities.sampling == {"temperature", "top_p"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling": SamplingParams(0, 1, seed=3)}, "sampling.seed"),
        ({"stop_token_ids": [3]}, "stop_token_ids"),
        ({"prompt": [1, 2]}, "token ids"),
        ({"logprobs": 3}, "logprobs is 3"),
        ({"echo": True}, "echo"),
        ({"slot": 2}, "slot is 2"),
        ({"grammar": ("regex", "a")}, "grammar"),
        ({"prompt": "\ud800"}, "half a surrogate pair"),
    ],
)
async def test_what_a_program_cannot_do_is_refused(change, message):
    async with fake("--version", "1") as engine:
        with pytest.raises(JobError, match=message):
            await collect(engine, Job(**{"prompt": "a", "max_tokens": 1, "sampling": PLAIN} | change))
        assert await reply(engine, job("ab", 2)) == b"ba"


async def test_a_prompt_that_does_not_fit_is_refused():
    async with fake() as engine:
        with pytest.raises(ContextLengthExceeded) as caught:
            await collect(engine, job("a" * 600))
        assert (caught.value.used, caught.value.limit) == (600, 512)
        with pytest.raises(JobError, match="no tokens"):
            await collect(engine, job(""))


@pytest.mark.parametrize("version", ["1", "2"])
async def test_many_jobs_share_the_slots(version):
    """A program of the first version refuses a busy slot, so its jobs wait here."""
    async with fake("--version", version, "--slots", "3", slots=3) as engine:
        texts = [f"prompt {number}" for number in range(12)]
        replies = await asyncio.gather(*(reply(engine, job(text, len(text))) for text in texts))
        assert replies == [text.encode()[::-1] for text in texts]
        stats = await engine.stats()
        assert stats["jobs"] == 12
        assert stats["running"] == stats["waiting"] == 0
        assert stats["generated_tokens"] == sum(map(len, texts))


async def test_closing_a_generator_cancels_the_job():
    async with fake("--version", "1", slots=1) as engine:
        stream = engine.generate(job("abc", 500))
        while not isinstance(await anext(stream), Piece):
            pass
        await stream.aclose()
        assert await reply(engine, job("xy", 2)) == b"yx"


async def test_cancelling_a_task_cancels_its_job():
    async with fake("--version", "1", slots=1) as engine:
        tasks = [asyncio.create_task(collect(engine, job("abc", 500))) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError)
        assert await reply(engine, job("xy", 2)) == b"yx"


async def test_closing_the_engine_ends_its_jobs():
    async with fake("--delay", "0.01") as engine:
        running = engine.generate(job("abc", 500))
        assert await anext(running) == Accepted(3)
        await asyncio.gather(engine.close(), engine.close())
        with pytest.raises(EngineFailed, match="closed"):
            async for _ in running:
                pass
        with pytest.raises(EngineFailed, match="closed"):
            await collect(engine, job())


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("silent-exit", EngineFailed, "exited with status 3 before it was ready"),
        ("load-nomem", EngineFailed, "not enough memory for the model: the model is nomem"),
        ("load-io", CheckpointError, "the model is io"),
        ("load-format", CheckpointError, "the model is format"),
        ("load-unsupported", CheckpointError, "the model is unsupported"),
        ("wrong-ready", EngineFailed, "not ready within 0.5 seconds"),
    ],
)
async def test_a_program_that_does_not_become_ready(fault, kind, message):
    with pytest.raises(kind, match=message):
        async with fake(fault, load_seconds=0.5 if fault == "wrong-ready" else 30.0):
            pass


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/"], ["a\0b"]])
async def test_a_program_that_cannot_be_started(argv):
    with pytest.raises(EngineFailed, match="cannot be started"):
        await ProcessEngine.start(Command(argv))


async def test_its_last_words_explain_why_it_did_not_start():
    script = "import sys; print('warming up'); print('no such\\x07 GPU', file=sys.stderr); sys.exit(9)"
    with pytest.raises(EngineFailed, match=r"exited with status 9 .* last words were: no such"):
        await ProcessEngine.start(Command([sys.executable, "-I", "-c", script]))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("second-accept", "accepted the request twice"),
        ("bad-frame", "senseless DATA line"),
        ("wrong-count", "output cannot be read: the 1 bytes after a DATA line are not closed"),
        ("exits-in-prefill", "exited with status 6 before the request was done"),
        ("exits-in-decode", "exited with status 7 before the request was done"),
        ("closes-output", "before the request was done"),
    ],
)
async def test_what_a_program_does_wrong_fails_the_job_by_name(fault, message, monkeypatch):
    monkeypatch.setattr(child, "_FLUSH_SECONDS", 0.1)
    async with fake(fault) as engine:
        with pytest.raises(EngineFailed, match=message):
            await collect(engine, job())
        events = engine.generate(job())
        assert isinstance(await anext(events), Accepted)
        await events.aclose()


async def test_a_bad_frame_fails_only_its_own_job():
    async with fake("bad-frame") as engine:
        other = asyncio.create_task(reply(engine, job("xyz", 1)))
        with pytest.raises(EngineFailed, match="senseless"):
            await collect(engine, job("abc", 500))
        assert await other == b"z"
        await eventually(lambda: not engine._session.exchanges)


@pytest.mark.parametrize("fault", ["garbage", "no-accept", "wrong-tokens"])
async def test_what_does_no_harm_is_passed_over(fault):
    async with fake(fault) as engine:
        events = await collect(engine, job())
        assert isinstance(events[0], Accepted)
        assert b"".join(event.data for event in events[1:-1]) == b"cbacb"
        assert isinstance(events[-1], Done)


async def kill(engine) -> None:
    os.kill(engine.pid, signal.SIGKILL)


@pytest.mark.parametrize("phase", ["idle", "prefill", "decode", "waiting"])
async def test_kill_in_every_phase(phase):
    """Every request in flight gets a named error, the next one a reply, and the killed program is reaped."""
    async with fake("--version", "1", "--delay", "0.02") as engine:
        killed = engine.pid
        streams = [engine.generate(job("abc", 400)) for _ in range({"idle": 0, "waiting": 4}.get(phase, 2))]
        tasks = [asyncio.create_task(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        if phase in ("prefill", "decode"):
            assert await asyncio.gather(*tasks) == [Accepted(3)] * 2
        if phase == "decode":
            assert isinstance(await anext(streams[0]), Piece)
        await kill(engine)

        async def rest(number):
            await tasks[number]
            return [event async for event in streams[number]]

        for outcome in await asyncio.gather(*map(rest, range(len(streams))), return_exceptions=True):
            assert isinstance(outcome, EngineFailed)
            assert "killed by signal 9 (SIGKILL)" in outcome.message
        await eventually(lambda: engine.pid != killed)
        assert await reply(engine, job("xy", 2)) == b"yx"
        assert (await engine.stats())["restarts"] == 1
        assert not os.path.exists(f"/proc/{killed}")


async def test_a_storm(monkeypatch):
    """Kills, cancellations and closed generators under load: every request ends with its reply or a name."""
    monkeypatch.setattr(process, "_LONGEST_PAUSE", 0.02)
    random = Random(5)
    outcomes = Counter[str]()

    async def request(engine, number):
        text, limit = f"request {number}", random.randrange(1, 60)
        leave = random.randrange(60) if random.random() < 0.3 else None
        got = b""
        try:
            async with aclosing(engine.generate(job(text, limit))) as events:
                async for event in events:
                    if isinstance(event, Piece):
                        got += event.data
                    if len(got) == leave:
                        break
        except EngineFailed as error:
            outcomes["refused"] += "SIGKILL" in error.message
            return
        want = (text.encode()[::-1] * limit)[:limit]
        assert got == (want if leave is None else want[:leave])
        outcomes["answered"] += 1

    async def client(engine, first):
        for number in range(first, first + 25):
            await request(engine, number)

    async with fake("--version", "2", "--slots", "4", "--delay", "0.0005") as engine:
        clients = asyncio.gather(*(client(engine, 100 * each) for each in range(6)))
        for _ in range(8):
            await asyncio.sleep(random.uniform(0.02, 0.1))
            with suppress(ProcessLookupError):
                await kill(engine)
        await clients
        assert outcomes.total() == 150
        assert outcomes["answered"] > 50
        assert outcomes["refused"] > 0
        await eventually(lambda: not engine._session.exchanges)
        assert await reply(engine, job("xy", 2)) == b"yx"


async def test_kill_while_it_starts(tmp_path):
    starting = asyncio.create_task(ProcessEngine.start(Command(fake_argv("wrong-ready", tmp_path))))
    await eventually(lambda: with_argument(tmp_path))
    os.kill(*with_argument(tmp_path), signal.SIGKILL)
    with pytest.raises(EngineFailed, match=r"killed by signal 9 .* before it was ready"):
        await starting
    assert not with_argument(tmp_path)


async def test_giving_up_a_start_ends_the_program(tmp_path):
    starting = asyncio.create_task(ProcessEngine.start(Command(fake_argv("wrong-ready", tmp_path))))
    await eventually(lambda: with_argument(tmp_path))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not with_argument(tmp_path)


async def test_a_program_that_cannot_be_started_again(tmp_path, monkeypatch, caplog):
    """Its jobs are refused by name until it can, after ever longer pauses."""
    monkeypatch.setattr(process, "_FIRST_PAUSE", 0.01)
    program = tmp_path / "engine"
    program.write_text(f"#!{sys.executable} -I\n" + FAKE.read_text())
    program.chmod(0o755)
    engine = await ProcessEngine.start(Command([str(program)]))
    async with engine:
        program.rename(tmp_path / "gone")
        await kill(engine)
        await eventually(lambda: engine._down is not None)
        with pytest.raises(EngineFailed, match="down and is started again; last time: the engine"):
            await collect(engine, job())
        await eventually(lambda: engine._pause >= 0.08)
        (tmp_path / "gone").rename(program)
        await eventually(lambda: engine._down is None)
        assert await reply(engine, job("xy", 2)) == b"yx"
    assert "could not be started again" in caplog.text


async def test_closing_while_it_is_started_again():
    async with fake() as engine:
        engine._pause = 5.0
        await kill(engine)
        await eventually(lambda: engine._restarting is not None)
        waiting = asyncio.create_task(collect(engine, job()))
        await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(EngineFailed, match="closed"):
            await waiting


@pytest.mark.parametrize("fault", ["no-drain", "no-exit"])
async def test_how_it_ends(fault):
    """One that does not end at the end of its input is ended."""
    async with fake(fault, drain_seconds=0.2) as engine:
        pid = engine.pid
        await engine.close()
        assert not os.path.exists(f"/proc/{pid}")


async def test_one_that_ignores_signals_is_killed(monkeypatch):
    monkeypatch.setattr(child, "_TERMINATE_SECONDS", 0.1)
    script = f"import signal; signal.signal(15, signal.SIG_IGN); {DEAF}"
    engine = await ProcessEngine.start(
        Command([sys.executable, "-I", "-c", script]), ProcessSettings(drain_seconds=0.1)
    )
    pid = engine.pid
    await engine.close()
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_program_that_reads_nothing_holds_up_only_its_own_jobs():
    """The pipe is full: jobs wait, can be given up, and are failed when it is killed."""
    engine = await ProcessEngine.start(
        Command([sys.executable, "-I", "-c", DEAF]), ProcessSettings(slots=16, drain_seconds=0.0)
    )
    tasks = [asyncio.create_task(collect(engine, job("x" * 1_000_000))) for _ in range(4)]
    await asyncio.sleep(0.05)
    assert len(engine._session.exchanges) < 4
    tasks.pop().cancel()
    await kill(engine)
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, EngineFailed)
    await engine.close()


async def test_its_standard_error_goes_to_the_log(caplog):
    caplog.set_level(logging.INFO, "colibri_engine.process")
    script = "import sys; print('a warning', file=sys.stderr); sys.stderr.write('x' * 1000); "
    script += "print('\\x01\\x01READY\\x01\\x01\\nSTAT', flush=True); sys.stdin.read()"
    async with await ProcessEngine.start(Command([sys.executable, "-I", "-c", script], name="quiet")):
        pass
    assert caplog.messages == ["quiet: a warning", f"quiet: {'x' * 300}"]


async def test_what_it_has_started_does_not_keep_it_alive(tmp_path):
    """A shell script's child holds the output open; it ends with the script."""
    script = tmp_path / "engine.sh"
    script.write_text(f"#!/bin/sh\n{' '.join(fake_argv('no-exit', tmp_path))} &\n{' '.join(fake_argv())}\n")
    script.chmod(0o755)
    async with await ProcessEngine.start(
        Command([str(script)]), ProcessSettings(drain_seconds=5.0)
    ) as engine:
        assert await reply(engine, job("xy", 2)) == b"yx"
    await eventually(lambda: not with_argument(tmp_path))


async def test_no_tokenizer_is_known():
    async with fake() as engine:
        with pytest.raises(JobError, match="cannot tokenize"):
            await engine.tokenize("a")
        with pytest.raises(JobError, match="cannot tokenize"):
            await engine.detokenize([1])
