"""Small random networks in memory, in every encoding."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from colibri_engine.spec import (
    GLU,
    GQA,
    ArchSpec,
    ExpertGLU,
    Layer,
    MoE,
    Norm,
    QKNorm,
    Rope,
    SoftmaxRouter,
)
from colibri_engine.tensors import TensorInfo

VOCAB = 50


class Weights:
    """A checkpoint in memory: `tensors` and `data`."""

    def __init__(self) -> None:
        self.tensors: dict[str, TensorInfo] = {}
        self._data: dict[str, bytes] = {}

    def add(self, name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> None:
        self.tensors[name] = TensorInfo(name, shape, dtype, len(data), 0)
        self._data[name] = data

    def data(self, name: str) -> memoryview:
        return memoryview(self._data[name])


def random_matrix(rng: np.random.Generator, dtype: str, rows: int, cols: int, spread: float = 1.0) -> bytes:
    """A matrix's bytes as a checkpoint stores them, with values of about this size."""
    values = rng.normal(scale=spread, size=(rows, cols)).astype(np.float32)
    if dtype == "F32":
        return values.tobytes()
    if dtype == "F16":
        return values.astype(np.float16).tobytes()
    if dtype == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    blocks = rows * cols // 32
    heads = 2 if dtype == "Q4_1" else 1
    size = spread / {"Q8_0": 75, "Q4_0": 5, "Q4_1": 9}[dtype]
    scales = np.abs(rng.normal(scale=size, size=(blocks, heads)))
    scales[:, 1:] = scales[:, :1] * -8
    quants = rng.integers(0, 256, (blocks, 32 if dtype == "Q8_0" else 16), np.uint8)
    return np.concatenate([scales.astype(np.float16).view(np.uint8), quants], 1).tobytes()


def random_network(
    rng: np.random.Generator,
    *,
    dtypes: Mapping[str, str] | str = "F32",
    layers: int = 2,
    moe: bool = False,
    interleaved: bool = False,
    tied: bool = True,
) -> tuple[ArchSpec, Weights]:
    """A network of hidden size 64 and its weights. moe: OLMoE's blocks instead of llama's."""
    hidden, heads, kv_heads, dim, width, experts = 64, 4, 4 if moe else 2, 16, 96, 6
    source = Weights()
    kinds = {} if isinstance(dtypes, str) else dtypes
    plain = dtypes if isinstance(dtypes, str) else "F32"

    def matrix(name: str, rows: int, cols: int, kind: str) -> str:
        dtype = kinds.get(kind, plain)
        source.add(name, dtype, (rows, cols), random_matrix(rng, dtype, rows, cols, cols**-0.5))
        return name

    def norm(name: str, size: int = hidden) -> Norm:
        source.add(name, "F32", (size,), rng.uniform(0.5, 1.5, size).astype(np.float32).tobytes())
        return Norm(name, 1e-5)

    def glu(name: str) -> GLU:
        gate, up = (matrix(f"{name}.{part}", width, hidden, "ffn") for part in ("gate", "up"))
        return GLU(gate, up, matrix(f"{name}.down", hidden, width, "ffn"), width)

    def ffn(index: int) -> GLU | MoE:
        if not moe:
            return glu(f"{index}.ffn")
        for expert in range(experts):
            glu(f"{index}.{expert}")
        router = SoftmaxRouter(matrix(f"{index}.router", experts, hidden, "router"), 2, index % 2 == 1)
        parts = (f"{index}.{{expert}}.{part}" for part in ("gate", "up", "down"))
        return MoE(router, ExpertGLU(*parts, width), experts)

    def layer(index: int) -> Layer:
        q, k = heads * dim, kv_heads * dim
        qk_norm = QKNorm(norm(f"{index}.q_norm", q), norm(f"{index}.k_norm", k)) if moe else None
        mixer = GQA(
            q=matrix(f"{index}.q", q, hidden, "mixer"),
            k=matrix(f"{index}.k", k, hidden, "mixer"),
            v=matrix(f"{index}.v", k, hidden, "mixer"),
            o=matrix(f"{index}.o", hidden, q, "mixer"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            rope=Rope("interleaved" if interleaved else "half", 1e4, 12 if interleaved else dim),
            qk_norm=qk_norm,
            clip=1.5 if moe else None,
        )
        return Layer(norm(f"{index}.norm1"), mixer, norm(f"{index}.norm2"), ffn(index))

    embedding = matrix("embedding", VOCAB, hidden, "embedding")
    spec = ArchSpec(
        hidden=hidden,
        vocab=VOCAB,
        context=64,
        embedding=embedding,
        layers=tuple(layer(index) for index in range(layers)),
        final_norm=norm("final_norm"),
        head=embedding if tied else matrix("head", VOCAB, hidden, "head"),
    )
    return spec, source
