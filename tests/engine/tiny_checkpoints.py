"""A small random model in a file, for programs that load one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from attrs import evolve

from colibri_engine.spec import ArchSpec

from .models import VOCAB, random_network
from .writers import gguf, string, tensor, tokenizer_pairs, u32

CONTROL = "<|end|>"


def write_tiny(path: Path, context: int = 4096, seed: int = 0) -> ArchSpec:
    """Write a GGUF file whose tokens are the characters from @ on and, as the last one, CONTROL."""
    spec, weights = random_network(np.random.default_rng(seed))
    tensors, data = [], b""
    for name, info in weights.tensors.items():
        tensors.append(tensor(name, reversed(info.shape), 0, len(data)))
        data += bytes(weights.data(name))
        data += b"\0" * (-len(data) % 32)
    tokens = [*(chr(64 + token) for token in range(VOCAB - 1)), CONTROL]
    pairs = tokenizer_pairs(tokens, [1] * (VOCAB - 1) + [3], [])
    pairs |= {
        "general.architecture": string("tiny"),
        "tokenizer.ggml.eos_token_id": u32(VOCAB - 1),
    }
    path.write_bytes(gguf(pairs, tensors, data))
    return evolve(spec, context=context)
