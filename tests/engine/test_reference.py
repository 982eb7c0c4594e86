"""The engine against what transformers computes in f32; tests/data/engine/make_reference.py recorded it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from colibri_engine._exec import Executor
from colibri_engine._sample import read_out
from colibri_engine.checkpoint import open_checkpoint

from . import builders
from .writers import entry, folder, safetensors

DATA = Path(__file__).parents[1] / "data" / "engine"


def load_tiny():
    spec = importlib.util.spec_from_file_location("tiny_networks", DATA / "tiny_networks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TINY = load_tiny()


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    with open_checkpoint(smollm2_path) as checkpoint:
        spec = builders.llama_gguf(checkpoint.config, checkpoint.tensors)
        return Executor(spec, checkpoint, context=64, threads=2)


def test_real_model_agrees_with_transformers(smollm2):
    """Mean KL divergence from the reference, over its 256 best tokens and all others as one, under 1e-3.

    Greedy tokens are equal wherever the reference's best two differ by more than the largest error.
    """
    reference = np.load(DATA / "smollm2_reference.npz")
    divergences = []
    for tokens, best, want, norm in zip(
        *(reference[key] for key in ("tokens", "top", "logits", "logsumexp")), strict=True
    ):
        state = smollm2.new_state()
        rows = smollm2.run(tokens.tolist(), range(32), [state] * 32, range(32))
        for row, logits in enumerate(rows):
            got = np.asarray(logits)[best[row]]
            error = np.abs(got - want[row]).max()
            assert error < 0.02
            if want[row, 0] - want[row, 1] > 2 * error:
                assert np.argmax(logits) == best[row, 0]
            _, top = read_out(logits, 0, 1)
            logp = want[row].astype(np.float64) - norm[row]
            logq = got.astype(np.float64) - (logits[top[0][0]] - top[0][1])
            p, q = np.exp(logp), np.exp(logq)
            rest = (1 - p.sum()) * np.log((1 - p.sum()) / (1 - q.sum()))
            divergences.append((p * (logp - logq)).sum() + rest)
    assert np.mean(divergences) < 1e-5


@pytest.mark.parametrize("name", TINY.NETWORKS)
def test_small_networks_agree_with_transformers(name, tmp_path):
    """Logits of f32 weights within 1e-4, and 16 greedy tokens, from a folder as releases have it."""
    header, data = {}, b""
    for key, value in TINY.weights_of(name).items():
        header[key] = entry("F32", value.shape, len(data), len(data) + value.nbytes)
        data += value.tobytes()
    folder(
        tmp_path,
        {"config.json": TINY.NETWORKS[name], "model.safetensors": safetensors(header, data)},
    )
    build = {"olmoe": builders.olmoe_hf, "llama": builders.llama_hf}[name]
    with open_checkpoint(tmp_path) as checkpoint:
        spec = build(checkpoint.config, checkpoint.tensors)
        executor = Executor(spec, checkpoint, context=TINY.TOKENS + 16, threads=2)
    reference = np.load(DATA / "tiny_reference.npz")
    tokens, state = TINY.tokens_of(name).tolist(), executor.new_state()
    n = len(tokens)
    logits = np.array(executor.run(tokens, range(n), [state] * n, range(n)))
    np.testing.assert_allclose(logits, reference[f"{name}.logits"], atol=1e-4)
    reply = [int(logits[-1].argmax())]
    while len(reply) < 16:
        (row,) = executor.run(reply[-1:], [n + len(reply) - 1], [state], [0])
        reply.append(int(np.argmax(row)))
    assert reply == reference[f"{name}.greedy"].tolist()
