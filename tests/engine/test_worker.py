"""The worker: jobs as bytes in, events as bytes out; and as a program, with a small model."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest
from attrs import evolve

from colibri_engine.api import Accepted, Candidate, Done, Echo, Job, Piece, Progress, SamplingParams
from colibri_engine.errors import CheckpointError, ContextLengthExceeded, EngineFailed, JobError
from colibri_engine.local import open_local
from colibri_engine.process import ProcessEngine, ProcessSettings, worker_command
from colibri_engine.spec import to_json
from colibri_engine.wire import (
    Event,
    Failure,
    Ready,
    ReplyReader,
    Started,
    Submit,
    encode_cancel,
    encode_stop,
    encode_submit,
)
from colibri_engine.worker import Worker, serve

from ..server.scripted import ScriptedEngine, say
from .processes import collect, eventually, job, reply
from .tiny_checkpoints import CONTROL, write_tiny

GREEDY = SamplingParams(temperature=0)


class Harness:
    """A worker in this process, and what it wrote."""

    def __init__(self, *script: object, **options: object) -> None:
        self.engine = ScriptedEngine(say(*script), **options)
        self.worker = Worker(self.engine, self.write)
        self.reader = ReplyReader(ready=True)
        self.messages: list[object] = []

    def write(self, data: bytes) -> None:
        self.messages += self.reader.feed(data)

    def submit(self, id: int, version: int = 2, **fields: object) -> None:
        self.worker.receive(encode_submit(Submit(id, job(**fields), version)))

    def events(self, id: int) -> list[object]:
        return [message.event for message in self.messages if isinstance(message, Event) and message.id == id]

    def failures(self) -> list[tuple[int, str, str]]:
        return [(m.id, m.code, m.error.message) for m in self.messages if isinstance(m, Failure)]


FULL = (
    Progress(2, 3),
    Echo(0, b"a", 5, None),
    Echo(1, b"b", 6, -0.5, (Candidate(6, -0.5, b"b"), Candidate(7, -1.5))),
    Piece("é".encode()[:1], 7, False, -0.25, (Candidate(7, -0.25, b"\xc3"),)),
    Piece("é".encode()[1:], 8, True),
)


async def test_events_arrive_as_the_engine_gave_them():
    harness = Harness(*FULL)
    harness.worker.introduce()
    harness.submit(3, prompt="abc", echo=True, logprobs=2)
    await harness.worker.drain()
    assert isinstance(harness.messages[0], Ready)
    assert isinstance(harness.messages[2], Started)
    assert harness.events(3) == [Accepted(3), *FULL, Done("stop", 3, 2)]


async def test_the_first_version_gets_its_own_forms():
    harness = Harness(*FULL)
    harness.submit(3, version=1, prompt="abc", logprobs=2, slot=0)
    await harness.worker.drain()
    assert harness.engine.jobs[0].echo
    top = (Candidate(6, -0.5), Candidate(7, -1.5))
    assert harness.events(3) == [
        Accepted(3),
        Echo(0, b"a", None, None),
        Echo(1, b"b", None, -0.5, top),
        Piece(b"\xc3", logprob=-0.25, top=(Candidate(7, -0.25),)),
        Piece(b"\xa9"),
        Done("stop", 3, 2),
    ]


async def test_stop_ends_a_job_as_done_and_cancel_as_cancelled():
    forever = asyncio.Event()
    harness = Harness("a", "b", forever)
    harness.submit(1)
    harness.submit(2)
    await eventually(lambda: len(harness.events(1)) == len(harness.events(2)) == 3)
    harness.worker.receive(encode_stop(1) + encode_cancel(2))
    await harness.worker.drain()
    assert harness.events(1)[-1] == Done("stop", 3, 2)
    assert harness.failures() == [(2, "CANCELLED", "the engine gave the request up; send it again")]
    assert harness.engine.cancelled == 2


@pytest.mark.parametrize("end", [encode_stop, encode_cancel])
async def test_a_job_that_is_ended_before_it_began(end):
    harness = Harness("a")
    harness.worker.receive(encode_submit(Submit(1, job())) + end(1))
    await harness.worker.drain()
    assert len(harness.messages) == 1
    harness.worker.receive(end(1))
    await harness.worker.drain()
    await asyncio.sleep(0)
    assert harness.failures()[-1][:2] == (1, "NOT_FOUND")


async def test_what_fails_is_said_by_name(caplog):
    harness = Harness(JobError("slot: is\ntaken"))
    harness.submit(1)
    await harness.worker.drain()
    harness.engine.script = say(ZeroDivisionError("oops"))
    harness.submit(2)
    await harness.worker.drain()
    harness.engine.capabilities = evolve(harness.engine.capabilities, context_length=2)
    harness.submit(3)
    harness.submit(3)
    harness.worker.receive(b"SUBMIT 4 0 1 x 0.7 0.9\na\nHELLO\n")
    await harness.worker.drain()
    await asyncio.sleep(0)
    assert harness.failures() == [
        (1, "BAD_REQUEST", "slot: is taken"),
        (2, "ENGINE_FAILED", "the engine broke: ZeroDivisionError: oops"),
        (3, "DUPLICATE_ID", "the engine refused the request with DUPLICATE_ID"),
        (4, "BAD_REQUEST", "max_tokens is 'x'; it must be a whole number of at least 0"),
        (3, "CONTEXT_EXCEEDED", ContextLengthExceeded(3, 2).message),
    ]
    assert "ZeroDivisionError" in caplog.text


@asynccontextmanager
async def served(engine):
    """The server's ends of the pipes to `serve`."""
    source, ours = os.pipe()
    theirs, sink = os.pipe()
    task = asyncio.create_task(serve(engine, source, sink))
    ends = [source, ours, theirs, sink]
    try:
        yield task, ours, theirs, ends
    finally:
        for end in ends:
            os.close(end)


async def test_the_end_of_the_input_lets_jobs_finish():
    engine = ScriptedEngine(say("a", 0.02, "b"))
    async with served(engine) as (task, ours, theirs, ends):
        os.write(ours, encode_submit(Submit(1, job())))
        os.close(ours)
        ends.remove(ours)
        await task
        messages = list(ReplyReader().feed(os.read(theirs, 1 << 16)))
        assert messages[-1] == Event(1, Done("stop", 3, 2))
    assert engine.closed
    assert engine.finished == 1


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("steps", [["a", 100.0], ["a"] + [0.001, "b"] * 10_000], ids=["silent", "talking"])
async def test_a_reader_that_is_gone_ends_the_jobs(steps, ended):
    engine = ScriptedEngine(say(*steps))
    async with served(engine) as (task, ours, theirs, ends):
        os.write(ours, encode_submit(Submit(1, job(max_tokens=20_000))))
        if ended:
            os.close(ours)
            ends.remove(ours)
        await eventually(lambda: engine.running)
        os.close(theirs)
        ends.remove(theirs)
        await asyncio.wait_for(task, 10)
    assert engine.closed
    assert engine.cancelled == 1


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    return path, write_tiny(path)


@asynccontextmanager
async def tiny_worker(tiny, **options):
    command = worker_command(*tiny, threads=1, **options)
    async with await ProcessEngine.start(command, ProcessSettings(drain_seconds=5.0)) as engine:
        async with asyncio.timeout(60):
            yield engine
        pid = engine.pid
    assert not os.path.exists(f"/proc/{pid}")


JOBS = [
    Job("ABC", 12, sampling=GREEDY),
    Job((3, 1, 4, 1, 5), 12, sampling=SamplingParams(0.9, 0.95, top_k=20, min_p=0.01, seed=5)),
    Job("ABCDE", 0, logprobs=3, echo=True),
    Job("HELLO", 8, logprobs=2, sampling=SamplingParams(1.2, 1.0, seed=-3, logit_bias={7: 2.5, 9: -100.0})),
    Job(f"AB{CONTROL}C", 6, trusted=[(2, 9)], sampling=GREEDY, logprobs=0),
    Job(f"AB{CONTROL}C", 6, trusted=[], sampling=GREEDY, logprobs=0),
    Job("XYZ", 40, sampling=SamplingParams(1.5, 1.0, seed=1), stop_token_ids=[4, 9, 11]),
    Job("XYZ", 9, sampling=SamplingParams(1, 1, seed=2, presence_penalty=0.3, repetition_penalty=1.2)),
    Job("ABC", 9, sampling=SamplingParams(1, 1, seed=3), grammar=("regex", "(HE|LO){2}J?")),
    Job("ABCDEF", 2, sampling=GREEDY, logprobs=1, echo=True, echo_from=4, pin=True),
]


def essence(events):
    """Events without what depends on the time."""
    timeless = {"prefill_seconds": 0.0, "decode_seconds": 0.0, "cached_tokens": 0}
    kept = [event for event in events if not isinstance(event, Progress)]
    kept[0] = Accepted(kept[0].prompt_tokens)
    return [evolve(event, **timeless) if isinstance(event, Done) else event for event in kept]


async def test_a_worker_gives_exactly_what_the_engine_in_this_process_gives(tiny):
    local = open_local(*tiny, threads=1, slots=3)
    want = [essence(await collect(local, each)) for each in JOBS]
    async with tiny_worker(tiny, slots=3, context=2048) as engine:
        able = evolve(local.capabilities, context_length=2048, tokenize=False)
        assert engine.capabilities == able
        got = await asyncio.gather(*(collect(engine, each) for each in JOBS))
        assert [essence(events) for events in got] == want
        with pytest.raises(ContextLengthExceeded):
            await collect(engine, Job([1] * 2049, 1))
        with pytest.raises(JobError, match="token id 50; ids of this model are below 50"):
            await collect(engine, Job([50], 1))
        again = await collect(engine, Job("ABCDEFGH", 1, sampling=GREEDY))
        assert again[0].cached_tokens > 0
        assert any(isinstance(event, Progress) for event in again)
        assert again[-1].prefill_seconds > 0
    await local.close()


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_a_killed_worker_is_replaced(tiny, phase):
    endless = evolve(GREEDY, logit_bias={49: -1000.0})
    async with tiny_worker(tiny, slots=2) as engine:
        killed = engine.pid
        streams = [engine.generate(Job([5] * 2000, 2000, sampling=endless, slot=slot)) for slot in (0, 1)]
        for stream in streams:
            assert isinstance(await anext(stream), Accepted)
        if phase == "decode":
            while not isinstance(await anext(streams[0]), Piece):
                pass
        os.kill(killed, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(EngineFailed, match="SIGKILL"):
                async for _ in stream:
                    pass
        assert len(await reply(engine, Job("ABC", 4, sampling=endless))) == 4
        assert engine.pid != killed


async def test_closing_a_generator_frees_the_workers_slot(tiny):
    endless = evolve(GREEDY, logit_bias={49: -1000.0})
    async with tiny_worker(tiny) as engine:
        for _ in range(3):
            stream = engine.generate(Job([5] * 10, 4000, sampling=endless))
            while not isinstance(await anext(stream), Piece):
                pass
            await stream.aclose()
        assert len(await reply(engine, Job("ABC", 4, sampling=endless))) == 4


def opened_by_its_reader(pipe):
    """A named pipe to write to, once somebody reads it."""
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            time.sleep(0.01)


@pytest.mark.parametrize("phase", ["loading", "idle", "prefill", "decode"])
def test_a_worker_ends_when_its_server_is_gone(tiny, tmp_path, phase):
    checkpoint, spec = tiny
    os.mkfifo(pipe := tmp_path / "spec.json")
    command = [sys.executable, "-m", "colibri_engine.worker", checkpoint, "--spec", pipe, "--threads", "1"]
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    worker = subprocess.Popen([*map(str, command)], bufsize=0, **ends)

    def until(kind):
        while not worker.stdout.readline().startswith(kind):
            pass

    with worker, os.fdopen(opened_by_its_reader(pipe), "wb") as description:
        try:
            if phase != "loading":
                description.write(to_json(spec).encode())
                description.close()
                until(b"STAT")
            if phase in ("prefill", "decode"):
                length = 4000 if phase == "prefill" else 10
                endless = Job([5] * length, 4000, sampling=evolve(GREEDY, logit_bias={49: -1000.0}))
                worker.stdin.write(encode_submit(Submit(1, endless)))
                until(b"ACCEPT" if phase == "prefill" else b"DATA")
            worker.stdin.close()
            worker.stdout.close()
            worker.wait(timeout=20)
        finally:
            worker.kill()


def run_worker(*arguments, stdin=b""):
    return subprocess.run(
        [sys.executable, "-m", "colibri_engine.worker", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
    )


def test_a_description_in_a_file_and_jobs_on_standard_input(tiny, tmp_path):
    path, spec = tiny
    (tmp_path / "spec.json").write_text(to_json(spec))
    submit = encode_submit(Submit(1, Job("ABC", 3, sampling=evolve(GREEDY, logit_bias={49: -1000.0}))))
    run = run_worker(path, "--spec", tmp_path / "spec.json", "--threads", 1, stdin=submit)
    assert (run.returncode, run.stderr) == (0, b"")
    messages = list(ReplyReader().feed(run.stdout))
    assert messages[-1].event.reason == "length"
    run = run_worker(path, "--threads", 1, stdin=to_json(spec).encode() + b"\nSUBMIT 1 0 x\n")
    assert run.returncode == 1
    assert b"the input cannot be read: a SUBMIT line does not say how many bytes follow it" in run.stderr


def test_why_a_model_cannot_be_loaded(tiny, tmp_path):
    path, spec = tiny
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(path.read_bytes()[:1000])
    cases = [
        ((tmp_path / "none.gguf",), to_json(spec), b"LOAD_FAIL kind=format", b"none.gguf cannot be read"),
        ((damaged,), to_json(spec), b"LOAD_FAIL kind=format", b"damaged.gguf"),
        ((path,), "{}", b"LOAD_FAIL kind=unsupported", b"spec"),
        ((path, "--slots", 17), to_json(spec), b"LOAD_FAIL kind=unsupported", b"slots is 17"),
        ((path, "--spec", tmp_path), "", b"LOAD_FAIL kind=io", b"directory"),
    ]
    for arguments, stdin, start, words in cases:
        run = run_worker(*arguments, stdin=stdin.encode())
        assert (run.returncode, run.stderr) == (1, b"")
        assert run.stdout.startswith(start)
        assert words in run.stdout


async def test_a_damaged_checkpoint_is_named(tiny, tmp_path):
    with pytest.raises(CheckpointError, match=r"none\.gguf cannot be read"):
        async with tiny_worker((tmp_path / "none.gguf", tiny[1])):
            pass
