from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine import _kernels as kernels
from colibri_engine.errors import EngineError, SpecError

from . import twin
from .models import random_matrix

LEVELS = kernels.cpu_levels()
FLOATS, BLOCKS = ("F32", "F16", "BF16"), ("Q8_0", "Q4_0", "Q4_1")
PROBLEM = st.tuples(st.integers(1, 19), st.integers(1, 5), st.integers(1, 9), st.integers(0, 2**32 - 1))


def same(got: object, want: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(got), want, strict=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", FLOATS + BLOCKS)
@settings(max_examples=15)
@given(PROBLEM)
def test_matmul_equals_twin_bit_for_bit(dtype, level, problem):
    rows, blocks, n, seed = problem
    rng = np.random.default_rng(seed)
    shape = (rows, 32 * blocks)
    data = random_matrix(rng, dtype, *shape)
    x = rng.normal(size=(n, shape[1])).astype(np.float32)
    matrix = kernels.Matrix(dtype, *shape, data)
    want = twin.matmul(dtype, shape, data, x)
    same(matrix.matmul(x, cpu=level), want)
    same(matrix.matmul(x, add=want, cpu=level), want + want)
    pick = rng.integers(0, n, n + 3).astype(np.int32)
    same(matrix.matmul(x, pick=pick, cpu=level), want[pick])
    same(matrix.unpack(), twin.dequantize(dtype, shape, data))


@pytest.mark.parametrize("level", LEVELS)
def test_extreme_integers_do_not_overflow(level):
    for dtype, byte in (("Q8_0", 0x80), ("Q8_0", 0x7F), ("Q4_0", 0xFF), ("Q4_1", 0xFF)):
        size = {"Q8_0": 34, "Q4_0": 18, "Q4_1": 20}[dtype]
        data = np.full((8 * 4, size), byte, np.uint8)
        data[:, : size - (32 if dtype == "Q8_0" else 16)] = 0x3C
        for sign in (1, -1):
            x = np.full((5, 128), sign, np.float32)
            matrix = kernels.Matrix(dtype, 8, 128, data.tobytes())
            same(matrix.matmul(x, cpu=level), twin.matmul(dtype, (8, 128), data.tobytes(), x))


@pytest.mark.parametrize("level", LEVELS)
def test_every_half_float_decodes_exactly(level):
    halves = np.arange(2**16, dtype=np.uint16)
    want = halves.view(np.float16).astype(np.float32)
    same(kernels.Matrix("F16", 256, 256, halves.tobytes()).unpack(), want.reshape(256, 256))
    finite = np.where(np.isfinite(want), halves, 0).astype(np.uint16).reshape(256, 256)
    one = np.zeros((1, 256), np.float32)
    one[0, 7] = 1
    got = kernels.Matrix("F16", 256, 256, finite.tobytes()).matmul(one, cpu=level)
    same(got, finite.view(np.float16).astype(np.float32)[:, 7][None])


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.floats(1e-3, 30))
def test_row_kernels_equal_twin_bit_for_bit(level, n, seed, spread):
    rng = np.random.default_rng(seed)
    x, y, w = (rng.normal(scale=spread, size=8 * n).astype(np.float32) for _ in range(3))
    same(kernels.rmsnorm(x, w, 1e-5, cpu=level), twin.rmsnorm(x, w, 1e-5))
    same(kernels.swiglu(x, y, cpu=level), twin.swiglu(x, y))
    odd = x[: rng.integers(1, len(x) + 1)]
    got, total = kernels.softmax(odd, cpu=level)
    want, want_total = twin.softmax(odd)
    same(got, want)
    assert total == want_total
    assert kernels.logsumexp(odd, cpu=level) == pytest.approx(twin.logsumexp(odd), abs=1e-12)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_quantize_equals_twin(level, blocks, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=32 * blocks).astype(np.float32)
    x[rng.random(x.shape) < 0.2] = 0
    x[:32] = rng.choice([x[:32], np.full(32, 1e-35), np.zeros(32), np.full(32, 1e35)])
    if seed % 3 == 0:
        x[-1] = rng.choice([np.nan, np.inf, -np.inf])
    got_q, got_s = kernels.quantize(x, cpu=level)
    want_q, want_s = twin.quantize(x)
    same(got_q, want_q)
    same(got_s, want_s)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rope_equals_twin(level, interleaved):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 24)).astype(np.float32)
    turns = rng.normal(size=8)
    angles = np.stack([np.cos(turns), np.sin(turns)], 1).astype(np.float32)
    same(kernels.rope(x, angles, interleaved=interleaved, cpu=level), twin.rope(x, angles, interleaved))


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=20)
@given(st.integers(1, 400), st.sampled_from([8, 16, 64, 72, 128]), st.integers(0, 2**32 - 1))
def test_attention_equals_twin_and_ignores_what_follows(level, n, dim, seed):
    rng = np.random.default_rng(seed)
    q = rng.normal(size=dim).astype(np.float32)
    k, v = (np.full((-(-n // 8) * 8, dim), np.nan, np.float32) for _ in range(2))
    k[:n], v[:n] = rng.normal(size=(2, n, dim))
    same(kernels.attend(q, k, v, n, 0.125, cpu=level), twin.attend(q, k[:n], v[:n], 0.125))


def test_exp_is_accurate_over_its_range():
    x = np.linspace(-86.9, 0, 20_001, dtype=np.float32)
    got = np.asarray(kernels.softmax(x)[0], np.float64)
    assert np.abs(got / np.exp(x.astype(np.float64)) - 1).max() < 2.5e-7


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", FLOATS + BLOCKS)
def test_non_finite_activations_reach_the_result(dtype, value):
    rng = np.random.default_rng(0)
    x = np.ones((2, 64), np.float32)
    x[1, 40] = value
    data = random_matrix(rng, dtype, 8, 64)
    got = np.asarray(kernels.Matrix(dtype, 8, 64, data).matmul(x))
    assert np.isfinite(got[0]).all()
    assert not np.isfinite(got[1]).any()


def test_logsumexp_tells_non_finite_values():
    for value in (np.nan, np.inf):
        x = np.zeros(21, np.float32)
        x[20] = value
        assert not np.isfinite(kernels.logsumexp(x))


def test_shapes_and_encodings_are_checked():
    with pytest.raises(SpecError, match="not with Q5_K"):
        kernels.Matrix("Q5_K", 8, 256, b"")
    with pytest.raises(SpecError, match="multiple of 32 columns"):
        kernels.Matrix("Q8_0", 8, 33, bytes(8 * 34))
    with pytest.raises(SpecError, match="cannot have 3 bytes"):
        kernels.Matrix("F32", 8, 2, bytes(3))


def test_the_level_can_be_forced_and_must_exist(monkeypatch):
    monkeypatch.setenv("COLIBRI_CPU", "base")
    assert kernels.cpu_level() == "base"
    monkeypatch.setenv("COLIBRI_CPU", "z80")
    with pytest.raises(EngineError, match="COLIBRI_CPU is 'z80'; this machine has: base"):
        kernels.cpu_level()
