from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from attrs import evolve

from colibri_engine._exec import Executor
from colibri_engine.api import Accepted, Done, Echo, Job, Piece, Progress, SamplingParams
from colibri_engine.errors import ContextLengthExceeded, EngineFailed, JobError, SpecError
from colibri_engine.local import LocalEngine, open_local

from .builders import llama_gguf
from .models import VOCAB, random_network

GREEDY = SamplingParams(temperature=0)
CONTEXT = 48


class Letters:
    """A tokenizer whose token i is the character chr(64 + i); token 49 is a control token."""

    size = VOCAB
    eos = frozenset({0})

    def encode(self, text: str, trusted: object = None) -> list[int]:
        return [ord(character) - 64 for character in text]

    def encode_ordinary(self, text: str) -> list[int]:
        return self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        return chr(64 + token_id).encode()

    def decode(self, token_ids: Iterable[int]) -> bytes:
        return b"".join(map(self.token_bytes, token_ids))

    def is_control(self, token_id: int) -> bool:
        return token_id == 49


def make_executor(seed: int = 0, **options: object) -> Executor:
    spec, source = random_network(np.random.default_rng(seed), **options)
    return Executor(spec, source, context=CONTEXT, threads=2, max_rows=128, max_wanted=32)


@pytest.fixture
async def engine():
    engine = LocalEngine(make_executor(), Letters(), slots=3)
    yield engine
    await engine.close()


async def collect(engine: LocalEngine, job: Job) -> list[object]:
    return [event async for event in engine.generate(job)]


def ids(events: Sequence[object]) -> list[int]:
    return [event.token_id for event in events if isinstance(event, Piece)]


def greedy_by_hand(prompt: Sequence[int], count: int) -> list[int]:
    executor = make_executor()
    state, tokens = executor.new_state(), list(prompt)
    for _ in range(count):
        n = len(tokens)
        (logits,) = executor.run(tokens, range(n), [state] * n, [n - 1])
        tokens.append(int(np.argmax(logits)))
    return tokens[len(prompt) :]


async def test_events_of_a_greedy_job(engine):
    prompt = [3, 1, 4, 1, 5]
    want = greedy_by_hand(prompt, 6)
    assert 0 not in want
    events = await collect(engine, Job(prompt, 6, sampling=GREEDY))
    assert events[0] == Accepted(5, 0)
    assert events[1] == Progress(5, 5)
    assert ids(events[2:-1]) == want
    assert [event.data for event in events[2:-1]] == [chr(64 + token).encode() for token in want]
    assert [event.control for event in events[2:-1]] == [token == 49 for token in want]
    done = events[-1]
    assert (done.reason, done.prompt_tokens, done.completion_tokens, done.cached_tokens) == (
        "length",
        5,
        6,
        0,
    )
    assert done.prefill_seconds > 0
    assert done.decode_seconds > 0


async def test_text_is_tokenized(engine):
    events = await collect(engine, Job("CADAE", 6, sampling=GREEDY))
    assert ids(events) == greedy_by_hand([3, 1, 4, 1, 5], 6)
    assert await engine.tokenize("CAB") == [3, 1, 2]
    assert await engine.detokenize([3, 1, 2]) == b"CAB"


async def test_an_end_token_stops_and_is_no_piece(engine):
    want = greedy_by_hand([7], 8)
    end = next(token for token in want if want.index(token) >= 2)
    events = await collect(engine, Job([7], 8, sampling=GREEDY, stop_token_ids=[end]))
    assert ids(events) == want[: want.index(end)]
    assert events[-1].reason == "stop"


@pytest.mark.parametrize(("length", "asked", "given"), [(40, 100, 8), (48, 5, 0), (5, 0, 0)])
async def test_the_budget_is_clamped_to_the_context(engine, length, asked, given):
    never_ends = evolve(GREEDY, logit_bias={0: -1000.0})
    events = await collect(engine, Job([1] * length, asked, sampling=never_ends))
    assert len(ids(events)) == given
    assert (events[-1].reason, events[-1].completion_tokens) == ("length", given)


async def test_a_prompt_that_does_not_fit_is_refused_first(engine):
    with pytest.raises(ContextLengthExceeded) as caught:
        await collect(engine, Job([1] * 49, 1))
    assert (caught.value.used, caught.value.limit) == (49, 48)


async def test_jobs_do_not_influence_each_other():
    """More jobs than slots, of all kinds, at once: each gives what it gives alone."""
    rng = np.random.default_rng(3)
    jobs = [
        Job(
            rng.integers(1, VOCAB, rng.integers(1, 40)).tolist(),
            int(rng.integers(0, 20)),
            sampling=SamplingParams(temperature=rng.choice([0, 1.5]), top_p=0.95, seed=int(rng.integers(99))),
            logprobs=rng.choice([None, 3]),
            echo=bool(rng.random() < 0.3),
        )
        for _ in range(12)
    ]

    def essence(events: Sequence[object]) -> list[object]:
        kept = [event for event in events if isinstance(event, Echo | Piece)]
        return [*kept, (events[-1].reason, events[-1].completion_tokens)]

    alone = []
    for job in jobs:
        engine = LocalEngine(make_executor(), Letters(), slots=1)
        alone.append(essence(await collect(engine, job)))
        await engine.close()
    engine = LocalEngine(make_executor(), Letters(), slots=3)
    together = await asyncio.gather(*(collect(engine, job) for job in jobs))
    assert [essence(events) for events in together] == alone
    stats = await engine.stats()
    assert stats["jobs"] == 12
    assert stats["running"] == stats["waiting"] == 0
    assert stats["generated_tokens"] == sum(len(ids(events)) for events in together)
    await engine.close()


async def test_a_prefix_is_reused_from_any_slot(engine):
    first = await collect(engine, Job([1, 2, 3, 4, 5, 6], 4, sampling=GREEDY, slot=0))
    longer = [1, 2, 3, 4, 5, 6, *ids(first), 9]
    again = await collect(engine, Job(longer, 4, sampling=GREEDY, slot=2))
    assert again[0] == Accepted(11, 9)
    assert again[-1].cached_tokens == 9
    fresh = LocalEngine(make_executor(), Letters(), slots=1)
    assert ids(again) == ids(await collect(fresh, Job(longer, 4, sampling=GREEDY)))
    await fresh.close()
    same = await collect(engine, Job([1, 2, 3, 4, 5, 6], 4, sampling=GREEDY))
    assert same[0] == Accepted(6, 5)
    assert ids(same) == ids(first)


async def test_echoed_log_probabilities_equal_generated_ones(engine):
    job = Job([5, 6, 7], 10, sampling=SamplingParams(temperature=1, seed=4), logprobs=2)
    pieces = [event for event in await collect(engine, job) if isinstance(event, Piece)]
    tokens = [5, 6, 7, *(piece.token_id for piece in pieces)]
    echoes = await collect(engine, Job(tokens, 0, logprobs=2, echo=True))
    assert echoes[0] == Accepted(len(tokens), 0)
    echoes = [event for event in echoes if isinstance(event, Echo)]
    assert [echo.position for echo in echoes] == list(range(len(tokens)))
    assert [echo.token_id for echo in echoes] == tokens
    assert (echoes[0].logprob, echoes[0].top) == (None, ())
    assert [(e.data, e.logprob, e.top) for e in echoes[3:]] == [(p.data, p.logprob, p.top) for p in pieces]
    assert all(candidate.data for candidate in echoes[3].top)


class Endless:
    """An executor whose steps last until they are cancelled."""

    def __init__(self) -> None:
        self._executor = make_executor()
        self._cancelled = threading.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._executor, name)

    def cancel(self, cancelled: bool = True) -> None:
        (self._cancelled.set if cancelled else self._cancelled.clear)()

    def run(self, *rows: object) -> None:
        self._cancelled.wait()


async def test_closing_the_generator_interrupts_a_prefill_and_frees_the_slot():
    engine = LocalEngine(Endless(), Letters(), slots=1)
    stream = engine.generate(Job([1, 2, 3], 40, sampling=GREEDY))
    assert await anext(stream) == Accepted(3, 0)
    waiting = engine.generate(Job([4], 40, sampling=GREEDY))
    late = asyncio.create_task(anext(waiting))
    await stream.aclose()
    assert await late == Accepted(1, 0)
    await waiting.aclose()
    await engine.close()


async def test_closing_a_generator_that_writes_frees_the_slot():
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    stream = engine.generate(Job([1, 2, 3], 40, sampling=GREEDY))
    while not isinstance(await anext(stream), Piece):
        pass
    await stream.aclose()
    assert len(ids(await collect(engine, Job([1, 2, 3], 5, sampling=GREEDY)))) == 5
    await engine.close()


async def test_closing_the_engine_ends_its_jobs():
    engine = LocalEngine(Endless(), Letters(), slots=1)
    streams = [engine.generate(Job([1], 40, sampling=GREEDY)) for _ in range(2)]
    assert await anext(streams[0]) == Accepted(1, 0)
    queued = asyncio.create_task(anext(streams[1]))
    await asyncio.sleep(0)
    await asyncio.gather(engine.close(), engine.close())
    for outcome in (anext(streams[0]), queued, collect(engine, Job([1], 1))):
        with pytest.raises(EngineFailed, match="closed"):
            await outcome


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt": []}, "the prompt has no tokens"),
        ({"prompt": [50]}, "token id 50; ids of this model are below 50"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"logprobs": 33}, "logprobs is 33; it must be from 0 to 32"),
        ({"slot": 3}, "slot is 3; this engine has slots 0 to 2"),
        ({"grammar": ("regex", "A(")}, r'grammar: .* invalid regex "A\('),
        ({"grammar": ("gbnf", "A")}, "grammar is of kind gbnf; this engine has no such constraint"),
        ({"pin": True}, "pin"),
        ({"sampling": SamplingParams(temperature=-1)}, r"sampling\.temperature is -1"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, r"sampling\.temperature is nan"),
        ({"sampling": SamplingParams(top_p=0)}, r"sampling\.top_p is 0"),
        ({"sampling": SamplingParams(min_p=1.5)}, r"sampling\.min_p is 1\.5; it must be from 0\.0 to 1\.0"),
        ({"sampling": SamplingParams(logit_bias={50: 1.0})}, "logit_bias"),
    ],
)
async def test_jobs_out_of_range_are_refused(engine, change, message):
    with pytest.raises(JobError, match=message):
        await collect(engine, evolve(Job([1], 1), **change))


async def test_a_damaged_network_fails_its_jobs_and_not_the_engine():
    spec, source = random_network(np.random.default_rng(0))
    broken = np.frombuffer(source.data("embedding"), np.float32).reshape(VOCAB, 64).copy()
    broken[7, 3] = np.nan
    source.add("embedding", "F32", broken.shape, broken.tobytes())
    source.add("head", "F32", broken.shape, np.nan_to_num(broken).tobytes())
    executor = Executor(evolve(spec, head="head"), source, context=CONTEXT)
    engine = LocalEngine(executor, Letters(), slots=2)
    good, bad = await asyncio.gather(
        collect(engine, Job([1, 2], 5, sampling=GREEDY)),
        collect(engine, Job([1, 7, 2], 5, sampling=GREEDY)),
        return_exceptions=True,
    )
    assert isinstance(good[-1], Done)
    assert isinstance(bad, EngineFailed)
    again = await collect(engine, Job([1, 2, 3], 2, sampling=GREEDY))
    assert again[0] == Accepted(3, 2)
    await engine.close()


async def test_a_step_that_breaks_fails_its_jobs_once_and_not_the_engine(engine, monkeypatch, caplog):
    def broken(running: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("colibri_engine.scheduler.plan", broken)
        jobs = [collect(engine, Job([1, 2], 3, sampling=GREEDY)) for _ in range(2)]
        for error in await asyncio.gather(*jobs, return_exceptions=True):
            assert isinstance(error, EngineFailed)
            assert "the engine broke in a step: ZeroDivisionError: a bug" in str(error)
    events = await collect(engine, Job([1, 2], 3, sampling=GREEDY))
    assert events[0] == Accepted(2, 0)
    assert isinstance(events[-1], Done)
    steps = [record for record in caplog.records if record.exc_info]
    assert 1 <= len(steps) <= len(jobs)


def test_missing_compiled_modules_are_explained():
    script = "import sys; sys.modules['colibri_engine._exec'] = None; import colibri_engine.local"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "ImportError: the compiled modules of colibri_engine are missing" in run.stderr


async def test_the_real_model_answers(smollm2_path):
    from colibri_engine.checkpoint import open_checkpoint

    with open_checkpoint(smollm2_path) as checkpoint:
        spec = llama_gguf(checkpoint.config, checkpoint.tensors)
        for options in ({"slots": 17}, {"context": spec.context + 1}):
            with pytest.raises(SpecError):
                open_local(checkpoint, spec, **options)
        engine = open_local(checkpoint, spec, context=256)
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    events = await collect(engine, Job(prompt, 30, sampling=GREEDY))
    assert (
        b"".join(event.data for event in events if isinstance(event, Piece))
        == b"The capital of France is Paris."
    )
    assert events[-1].reason == "stop"
    await engine.close()
