from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine._sample import MAX_CANDIDATES, REPETITION_WINDOW, Sampler, read_out, uniform
from colibri_engine.api import SamplingParams
from colibri_engine.errors import EngineFailed

F32 = np.float32
PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_p=st.sampled_from([1.0, 0.9, 0.5, 0.01]),
    top_k=st.sampled_from([0, 1, 5, 1000]),
    min_p=st.sampled_from([0.0, 0.05, 0.5]),
    typical_p=st.sampled_from([1.0, 0.9, 0.3]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([{}, {3: 4.0, 1: -100.0}]),
)


def logits_of(seed: int, n: int, *, ties: bool = False) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(scale=3, size=n).astype(F32)
    return np.round(logits) if ties else logits


def softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max())
    return e / e.sum()


def distribution(
    params: SamplingParams, logits: np.ndarray, prompt: list[int], reply: list[int]
) -> dict[int, float]:
    """What a token's probability ought to be, written the plain way with full sorts."""
    x = logits.astype(np.float64)
    for token, value in params.logit_bias.items():
        x[token] += value
    for token in set((prompt + reply)[-REPETITION_WINDOW:]):
        x[token] = (
            x[token] / params.repetition_penalty if x[token] > 0 else x[token] * params.repetition_penalty
        )
    for token, count in Counter(reply).items():
        x[token] -= params.presence_penalty + count * params.frequency_penalty
    kept = sorted(range(len(x)), key=lambda i: (-x[i], i))
    if params.top_k:
        kept = kept[: params.top_k]
    if params.typical_p < 1:
        p = softmax(x[kept])
        entropy = -(p * np.log(p)).sum()
        order = np.argsort(np.abs(-np.log(p) - entropy), kind="stable")
        count = int(np.searchsorted(np.cumsum(p[order]), params.typical_p, side="right")) + 1
        kept = sorted((kept[i] for i in order[:count]), key=lambda i: (-x[i], i))
    if params.top_p < 1:
        kept = kept[: int(np.searchsorted(np.cumsum(softmax(x[kept])), params.top_p)) + 1]
    p = softmax(x[kept])
    kept = [token for token, share in zip(kept, p, strict=True) if share >= params.min_p * p[0]]
    return dict(zip(kept, softmax(x[kept] / params.temperature), strict=True))


def assert_drawn_from(want: Mapping[int, float], draws: list[int]) -> None:
    counts = Counter(draws)
    assert counts.keys() <= want.keys()
    for token, p in want.items():
        spread = math.sqrt(len(draws) * p * (1 - p)) + 1
        assert abs(counts[token] - len(draws) * p) < 5 * spread


@settings(max_examples=150)
@given(PARAMS, st.integers(0, 2**32 - 1), st.sampled_from([2, 7, 40, 300]))
def test_tokens_are_drawn_from_the_documented_distribution(params, seed, vocab):
    logits = logits_of(seed, max(vocab, 4))
    prompt, reply = [0, 2], [3, 3, 1]
    sampler = Sampler(params, seed, prompt, len(logits))
    for token in reply:
        sampler.accept(token)
    draws = [sampler.choose(logits, position) for position in range(400)]
    assert_drawn_from(distribution(params, logits, prompt, reply), draws)


@settings(max_examples=150)
@given(PARAMS, st.booleans(), st.integers(0, 2**32 - 1), st.integers(1, 300), st.data())
def test_what_a_mask_forbids_might_as_well_not_exist(params, greedy, seed, vocab, data):
    """Masked tokens change nothing for the others: these are drawn as from a vocabulary of their own."""
    params = evolve(params, logit_bias={}, temperature=0 if greedy else params.temperature)
    bits = data.draw(st.sets(st.integers(0, vocab - 1), min_size=1))
    allowed = sorted(bits)
    mask = np.zeros(-(-vocab // 8), np.uint8)
    for token in allowed:
        mask[token // 8] |= 1 << token % 8
    if data.draw(st.booleans()):
        mask = mask[: allowed[-1] // 8 + 1]
    logits = logits_of(seed, vocab)
    whole = Sampler(params, seed, [], vocab)
    only = Sampler(params, seed, [], len(allowed))
    for position in range(50):
        token = whole.choose(logits, position, mask.tobytes())
        assert token in bits
        assert token == allowed[only.choose(logits[allowed].copy(), position)]
    assert Sampler(params, seed, [], vocab).choose(logits, 0, b"\xff" * (vocab // 8 + 9)) == Sampler(
        params, seed, [], vocab
    ).choose(logits, 0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 500))
def test_greedy_takes_the_first_of_the_highest(seed, vocab):
    logits = logits_of(seed, vocab, ties=True)
    assert Sampler(SamplingParams(temperature=0), 0, [], vocab).choose(logits, 0) == logits.argmax()


@given(st.integers(0, 2**32 - 1), st.integers(1, 500))
def test_top_k_of_one_is_greedy(seed, vocab):
    logits = logits_of(seed, vocab, ties=True)
    assert Sampler(SamplingParams(top_k=1), seed, [], vocab).choose(logits, 0) == logits.argmax()


def test_a_token_depends_on_seed_and_position_alone():
    logits = logits_of(0, 1000)
    one, two = (Sampler(SamplingParams(), 11, [], 1000) for _ in range(2))
    forwards = [one.choose(logits, position) for position in range(50)]
    backwards = [two.choose(logits, position) for position in reversed(range(50))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) > 5
    other = Sampler(SamplingParams(), 12, [], 1000)
    assert [other.choose(logits, position) for position in range(50)] != forwards


def test_random_numbers_are_uniform_and_unrelated():
    draws = np.array([[uniform(seed, position) for position in range(500)] for seed in range(40)])
    assert ((draws >= 0) & (draws < 1)).all()
    counts = np.bincount((draws * 20).astype(int).ravel(), minlength=20)
    assert ((counts - 1000) ** 2 / 1000).sum() < 45
    assert abs(np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]) < 0.03
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.03
    assert uniform(-1, 0) == uniform(2**64 - 1, 0)


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(0, MAX_CANDIDATES), st.booleans())
def test_read_out_is_the_log_softmax_and_its_top(seed, vocab, k, ties):
    logits = logits_of(seed, vocab, ties=ties)
    exact = logits.astype(np.float64)
    exact -= np.log(np.exp(exact - exact.max()).sum()) + exact.max()
    logprob, top = read_out(logits, seed % vocab, k)
    assert logprob == pytest.approx(exact[seed % vocab], abs=1e-6)
    assert [token for token, _ in top] == sorted(range(vocab), key=lambda i: (-logits[i], i))[:k]
    for token, value in top:
        assert value == pytest.approx(exact[token], abs=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_logit_that_is_not_finite_is_an_error(value, temperature):
    logits = logits_of(0, 20)
    logits[13] = value
    with pytest.raises(EngineFailed, match="not a finite number"):
        Sampler(SamplingParams(temperature=temperature), 0, [], 20).choose(logits, 0)
    with pytest.raises(EngineFailed, match="not a finite number"):
        read_out(logits, 0, 3)
