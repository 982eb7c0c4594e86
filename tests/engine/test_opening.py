"""Engines in processes of their own, opened by checkpoint and family or by a command."""

from __future__ import annotations

import os

import pytest
from attrs import evolve

import colibri
from colibri.engines import open_command, open_engine, open_process
from colibri.errors import CheckpointUnknown
from colibri_engine.api import Accepted, Job, Piece, SamplingParams
from colibri_engine.errors import CheckpointError, SpecError
from colibri_engine.process import worker_command
from colibri_engine.spec import to_json

from .processes import collect, fake_argv, job, reply
from .tiny_checkpoints import CONTROL, write_tiny

GREEDY = SamplingParams(temperature=0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    spec = write_tiny(path)
    return path, evolve(colibri.load()["smollm2"], network=lambda config, tensors: spec)


async def test_a_process_is_what_the_engine_in_this_process_is(tiny):
    here = open_engine(*tiny, context=64, slots=2)
    there = await open_process(*tiny, context=64, slots=2)
    assert here.capabilities == there.capabilities
    text = f"ABC{CONTROL}"
    for trusted in (None, ()):
        assert await here.tokenize(text, trusted) == await there.tokenize(text, trusted)
    assert await here.detokenize([1, 49]) == await there.detokenize([1, 49])
    replies = [await collect(engine, Job(text, 5, sampling=GREEDY)) for engine in (here, there)]
    pieces = [[event for event in events if isinstance(event, Piece)] for events in replies]
    assert pieces[0] == pieces[1]
    assert {"slots", "context_length", "generated_tokens"} <= (await here.stats()).keys() & (
        await there.stats()
    ).keys()
    await here.close()
    await there.close()


async def test_slots_outlive_the_process(tiny, tmp_path):
    async with await open_process(*tiny, threads=1, kv_folder=tmp_path / "kv") as engine:
        await collect(engine, Job("ABCDEF", 0))
    engine = open_engine(*tiny, threads=1, kv_folder=tmp_path / "kv")
    events = await collect(engine, Job("ABCDEFG", 1, sampling=GREEDY))
    assert events[0] == Accepted(7, 6)
    await engine.close()


async def test_a_family_without_a_network(tiny):
    with pytest.raises(CheckpointUnknown, match="brings no network"):
        await open_process(tiny[0], evolve(tiny[1], network=None))


async def test_what_the_engine_refuses_is_named_by_both(tiny):
    with pytest.raises(SpecError, match="context is 5000"):
        open_engine(*tiny, context=5000)
    with pytest.raises(SpecError, match="context is 5000"):
        await open_process(*tiny, context=5000)
    with pytest.raises(SpecError, match="slots is 17"):
        open_engine(*tiny, slots=17)
    with pytest.raises(CheckpointError, match="slots is 17"):
        await open_process(*tiny, slots=17)


async def test_a_command_is_an_engine(tiny):
    async with await open_command(fake_argv("--version", "1"), context=99, slots=3) as engine:
        assert engine.capabilities.slots == 3
        assert engine.capabilities.context_length == 512
        assert (await collect(engine, job("abc", 2)))[0] == Accepted(3)
    path, family = tiny
    command = worker_command(path, family.network({}, {}))
    assert command.greeting.decode() == to_json(family.network({}, {})) + "\n"
    async with await open_command(fake_argv(), checkpoint=path) as engine:
        assert await engine.tokenize("ABC") == [1, 2, 3]
        with open(f"/proc/{engine.pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
        assert {b"SERVE=1", b"SERVE_BATCH=1", b"KV_SLOTS=1", f"SNAP={path}".encode()} <= {*variables}
        assert await reply(engine, job("xy", 2)) == b"yx"


async def test_the_real_model_in_a_process(smollm2_path):
    async with await open_process(smollm2_path, context=256) as engine:
        pid = engine.pid
        prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
        assert await reply(engine, Job(prompt, 30, sampling=GREEDY)) == b"The capital of France is Paris."
    assert not os.path.exists(f"/proc/{pid}")
