from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine._exec import Executor
from colibri_engine._pool import Pool, check
from colibri_engine.errors import EngineError, JobError, SpecError

from . import twin
from .models import VOCAB, random_network

BLOCKS = {"embedding": "Q8_0", "mixer": "Q4_1", "ffn": "Q4_0", "head": "Q8_0", "router": "F32"}
NETWORKS = {
    "llama-f32": {},
    "llama-blocks": {"dtypes": BLOCKS, "interleaved": True},
    "llama-mixed": {"dtypes": {"mixer": "BF16", "ffn": "F16", "head": "BF16"}, "tied": False},
    "olmoe-f32": {"moe": True, "tied": False},
    "olmoe-blocks": {"dtypes": BLOCKS, "moe": True},
}


def network(name: str, seed: int = 0):
    return random_network(np.random.default_rng(seed), **NETWORKS[name])


def whole(executor: Executor, tokens: Sequence[int]) -> np.ndarray:
    """All rows' logits in one step."""
    n = len(tokens)
    return np.array(executor.run(tokens, range(n), [executor.new_state()] * n, range(n)))


@pytest.mark.parametrize("level", ["base", "best"])
@pytest.mark.parametrize("name", NETWORKS)
def test_executor_equals_twin_bit_for_bit(name, level, monkeypatch):
    if level == "base":
        monkeypatch.setenv("COLIBRI_CPU", "base")
    spec, source = network(name)
    tokens = np.random.default_rng(5).integers(0, VOCAB, 21).tolist()
    want = twin.Network(spec, source).logits(tokens)
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(whole(Executor(spec, source, context=40, threads=2), tokens), want)


@pytest.mark.parametrize("name", NETWORKS)
@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_logits_do_not_depend_on_schedule_or_threads(name, seed, threads):
    """Any number of sequences, cut into chunks and interleaved in any way, on any number of threads."""
    spec, source = network(name, seed)
    rng = np.random.default_rng(seed)
    sequences = [rng.integers(0, VOCAB, rng.integers(1, 40)).tolist() for _ in range(3)]
    reference = Executor(spec, source, context=40, threads=1, max_wanted=40)
    want = [whole(reference, tokens) for tokens in sequences]

    executor = Executor(spec, source, context=40, threads=threads, max_rows=24)
    states = [executor.new_state() for _ in sequences]
    done = [0] * len(sequences)
    while any(at < len(tokens) for at, tokens in zip(done, sequences, strict=True)):
        rows = []
        for index, tokens in enumerate(sequences):
            size = rng.integers(0, min(8, len(tokens) - done[index]) + 1)
            rows += [(index, position) for position in range(done[index], done[index] + size)]
            done[index] += size
        if not rows:
            continue
        rng.shuffle(rows)
        wanted = rng.integers(0, len(rows), rng.integers(1, 6)).tolist()
        got = executor.run(
            [sequences[index][position] for index, position in rows],
            [position for _, position in rows],
            [states[index] for index, _ in rows],
            wanted,
        )
        for logits, row in zip(np.asarray(got), wanted, strict=True):
            index, position = rows[row]
            np.testing.assert_array_equal(logits, want[index][position])


def test_long_sequences_do_not_depend_on_chunks_or_threads():
    spec, source = network("llama-blocks")
    tokens = np.random.default_rng(2).integers(0, VOCAB, 300).tolist()
    results = []
    for chunk, threads in ((128, 1), (37, 3), (1, 2)):
        executor = Executor(evolve(spec, context=300), source, context=300, threads=threads, max_wanted=128)
        state = executor.new_state()
        rows = []
        for at in range(0, 300, chunk):
            n = min(chunk, 300 - at)
            got = executor.run(tokens[at : at + n], range(at, at + n), [state] * n, range(n))
            rows.append(np.array(got))
        results.append(np.concatenate(rows))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
    np.testing.assert_array_equal(twin.Network(spec, source).logits(tokens[:140])[-5:], results[0][135:140])


def test_a_copied_prefix_gives_the_same_logits():
    spec, source = network("llama-blocks")
    executor = Executor(spec, source, context=40, threads=2)
    tokens = np.random.default_rng(1).integers(0, VOCAB, 30).tolist()
    want = whole(executor, tokens)
    first, second = executor.new_state(), executor.new_state()
    executor.run(tokens[:20], range(20), [first] * 20, [])
    second.copy_rows(first, 0, 12)
    second.copy_rows(first, 12, 20)
    got = executor.run(tokens[20:], range(20, 30), [second] * 10, range(10))
    np.testing.assert_array_equal(got, want[20:])
    with pytest.raises(ValueError, match="one program"):
        second.copy_rows(Executor(spec, source, context=40).new_state(), 0, 1)


def test_a_cancelled_step_can_be_repeated():
    spec, source = network("llama-f32")
    executor = Executor(spec, source, context=8, threads=2)
    state = executor.new_state()
    want = np.array(executor.run([1, 2], [0, 1], [state] * 2, [1]))
    executor.cancel()
    assert executor.run([1, 2], [0, 1], [state] * 2, [1]) is None
    executor.cancel(False)
    np.testing.assert_array_equal(executor.run([1, 2], [0, 1], [state] * 2, [1]), want)


def test_steps_out_of_range_are_refused():
    spec, source = network("llama-f32")
    executor = Executor(spec, source, context=8, max_rows=4, max_wanted=2)
    state = executor.new_state()
    for tokens, positions, wanted, message in (
        ([VOCAB], [0], [], "token 50 is outside the vocabulary of 50"),
        ([-1], [0], [], "token -1 is outside"),
        ([0], [8], [], "position 8 is outside the context of 8"),
        ([0], [0], [1], "row 1 is not one of the step's 1 rows"),
        ([0] * 5, range(5), [], "a step of 5 rows"),
        ([0] * 3, range(3), [0, 1, 2], "with 3 logit rows"),
        ([], [], [], "a step of 0 rows"),
    ):
        with pytest.raises(JobError, match=message):
            executor.run(tokens, positions, [state] * len(tokens), wanted)


def test_a_network_that_does_not_fit_is_refused():
    spec, source = network("llama-f32")
    source.tensors.pop("1.q")
    with pytest.raises(SpecError, match=r"1\.q is missing"):
        Executor(spec, source, context=8)


def test_non_finite_weights_reach_the_logits():
    spec, source = network("llama-blocks")
    norm = np.frombuffer(source.data("0.norm1"), np.float32).copy()
    norm[5] = np.nan
    source.add("0.norm1", "F32", norm.shape, norm.tobytes())
    assert np.isnan(whole(Executor(spec, source, context=8), [1, 2])).all()


@settings(max_examples=30)
@given(st.integers(1, 6), st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_pool_runs_every_chunk_once_and_in_turn(threads, chunks):
    pool = Pool(threads)
    for _ in range(3):
        assert check(pool, chunks) == [[1] * n for n in chunks]
    pool.cancel(True)
    assert not any(map(any, check(pool, chunks)))


def test_a_pool_of_no_threads_is_refused():
    with pytest.raises(EngineError, match="0 threads cannot be started"):
        Pool(0)
