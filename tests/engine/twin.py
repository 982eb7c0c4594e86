"""The slow numpy twin of every kernel: the same arithmetic, operation by operation, in f32.

It shares no code with the kernels; where a kernel fixes an order of summation, the twin takes it too, so
results can be compared bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from colibri_engine.spec import GLU, GQA, ArchSpec, MoE, Norm
from colibri_engine.tensors import TensorInfo

F32 = np.float32
Array = NDArray[np.float32]


class Source(Protocol):
    """What the engine and its twin read weights from; a `Checkpoint` is one."""

    tensors: Mapping[str, TensorInfo]

    def data(self, name: str) -> memoryview: ...


def in_order(terms: Array) -> Array:
    """The sum over the first axis, one f32 addition after the other."""
    total = np.zeros(terms.shape[1:], F32)
    for term in terms:
        total = total + term
    return total


def across(lanes: Array) -> Array:
    """The sum over the last axis, of length 8, as ((0+1)+(2+3)) + ((4+5)+(6+7))."""
    pairs = lanes[..., 0::2] + lanes[..., 1::2]
    fours = pairs[..., 0::2] + pairs[..., 1::2]
    return fours[..., 0] + fours[..., 1]


def by_lane(terms: Array) -> Array:
    """The sum over the last axis in eight lanes, element i in lane i mod 8, then across them."""
    padded = np.zeros((*terms.shape[:-1], -(-terms.shape[-1] // 8) * 8), F32)
    padded[..., : terms.shape[-1]] = terms
    lanes = padded.reshape(*terms.shape[:-1], -1, 8)
    return across(in_order(np.moveaxis(lanes, -2, 0)))


def exp(x: Array) -> Array:
    """Cephes' expf with the kernel's cut-offs."""
    x = np.where(x > 88, F32(88), x).astype(F32)
    tiny = x < -87
    x = np.where(tiny, F32(0), x)
    n = np.rint(x * F32(1.44269504088896341))
    r = (x - n * F32(0.693359375)) - n * F32(-2.12194440e-4)
    p = r * F32(1.9875691500e-4) + F32(1.3981999507e-3)
    for c in (8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + F32(c)
    p = (p * (r * r) + r) + F32(1)
    return np.where(tiny, F32(0), np.ldexp(p, np.nan_to_num(n).astype(np.int32))).astype(F32)


def quantize(x: Array) -> tuple[NDArray[np.int16], Array]:
    """Blocks of 32 of the last axis as int16 and (scale, scale * sum)."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    peak = np.abs(blocks).max(-1, keepdims=True)
    broken = ~np.isfinite(blocks).all(-1, keepdims=True)
    silent = broken | (peak < F32(1e-30))
    safe = np.where(silent, F32(1), peak)
    q = np.rint(np.where(silent, F32(0), blocks) * (F32(32767) / safe)).astype(np.int16)
    scale = np.where(broken, F32(np.nan), np.where(silent, F32(0), safe / F32(32767)))[..., 0]
    sums = np.where(broken[..., 0], F32(np.nan), scale * q.sum(-1, dtype=np.int32).astype(F32))
    return q.reshape(x.shape), np.stack([scale, sums], -1).astype(F32)


def rows_of(dtype: str, shape: tuple[int, int], data: bytes) -> dict[str, NDArray[np.generic]]:
    """A matrix's file bytes taken apart: `w` for floats; `q`, `d` and `m` for block encodings."""
    rows, cols = shape
    if dtype in ("F32", "F16"):
        return {"w": np.frombuffer(data, {"F32": F32, "F16": np.float16}[dtype]).reshape(shape).astype(F32)}
    if dtype == "BF16":
        return {"w": (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(F32).reshape(shape)}
    raw = np.frombuffer(data, np.uint8).reshape(rows, cols // 32, -1)
    d = np.ascontiguousarray(raw[..., :2]).view(np.float16)[..., 0].astype(F32)
    if dtype == "Q8_0":
        return {"q": raw[..., 2:].view(np.int8).astype(np.int32), "d": d, "m": np.zeros_like(d)}
    head = 4 if dtype == "Q4_1" else 2
    q = np.concatenate([raw[..., head:] & 15, raw[..., head:] >> 4], -1).astype(np.int32)
    m = np.ascontiguousarray(raw[..., 2:4]).view(np.float16)[..., 0].astype(F32) if head == 4 else d * F32(-8)
    return {"q": q, "d": d, "m": m}


def dequantize(dtype: str, shape: tuple[int, int], data: bytes) -> Array:
    """A matrix as f32."""
    parts = rows_of(dtype, shape, data)
    if "w" in parts:
        return parts["w"].astype(F32)
    q, d, m = parts["q"].astype(F32), parts["d"].astype(F32), parts["m"].astype(F32)
    return (d[..., None] * q + m[..., None]).reshape(shape)


def matmul(dtype: str, shape: tuple[int, int], data: bytes, x: Array) -> Array:
    """x [n, cols] times the weights, [n, rows], in the kernels' order."""
    parts = rows_of(dtype, shape, data)
    if "w" in parts:
        terms = np.moveaxis(x[:, None, :] * parts["w"].astype(F32)[None], -1, 0)
        return in_order(terms[0::2]) + in_order(terms[1::2])
    quants, scales = quantize(x)
    blocks = quants.reshape(len(x), -1, 32).astype(np.int32)
    total = np.zeros((len(x), shape[0]), F32)
    for b in range(shape[1] // 32):
        dots = (blocks[:, b] @ parts["q"][:, b].T.astype(np.int32)).astype(F32)
        total = total + dots * (parts["d"][None, :, b] * scales[:, b, :1])
        if dtype != "Q8_0":
            total = total + parts["m"][None, :, b] * scales[:, b, 1:]
    return total


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    """RMSNorm over the last axis."""
    mean = by_lane(x * x) / F32(x.shape[-1])
    return x * (F32(1) / np.sqrt(mean + F32(eps)))[..., None] * weight


def rope(x: Array, angles: Array, interleaved: bool) -> Array:
    """Heads [..., dim] turned by angles [pairs, 2]."""
    pairs = len(angles)
    out = x.copy()
    first = slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs)
    second = slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs)
    a, b, c, s = x[..., first], x[..., second], angles[:, 0], angles[:, 1]
    out[..., first], out[..., second] = a * c - b * s, b * c + a * s
    return out


def softmax(x: Array) -> tuple[Array, np.float32]:
    """exp(x - max(x)) and its sum."""
    e = exp(x - x.max())
    return e, F32(by_lane(e))


def attend(q: Array, k: Array, v: Array, scale: float) -> Array:
    """Attention of one head over all of k's rows, in spans of 128 that are folded in order."""
    total, values, top = F32(0), np.zeros_like(q), F32(0)
    for start in range(0, len(k), 128):
        scores = by_lane(q * k[start : start + 128]) * F32(scale)
        weights, part = softmax(scores)
        highest = max(top, scores.max()) if start else scores.max()
        old = exp(np.atleast_1d(top - highest))[0] if start else F32(0)
        new = exp(np.atleast_1d(scores.max() - highest))[0]
        values = values * old + in_order(weights[:, None] * v[start : start + 128]) * new
        total, top = total * old + part * new, highest
    return values * (F32(1) / total)


def swiglu(gate: Array, up: Array) -> Array:
    """silu(gate) * up."""
    return gate / (F32(1) + exp(-gate)) * up


def logsumexp(x: Array) -> float:
    """log(sum(exp(x))) with f64 sums."""
    top = x.max()
    return float(top) + float(np.log(exp(x - top).astype(np.float64).sum()))


class Network:
    """The twin of the executor: an ArchSpec run over one whole sequence, without cache or batch."""

    def __init__(self, spec: ArchSpec, source: Source) -> None:
        self.spec = spec
        self.source = source

    def product(self, name: str, x: Array) -> Array:
        info = self.source.tensors[name]
        return matmul(info.dtype, info.shape, bytes(self.source.data(name)), x)

    def weights(self, name: str) -> Array:
        info = self.source.tensors[name]
        return dequantize(info.dtype, info.shape, bytes(self.source.data(name)))

    def vector(self, name: str) -> Array:
        info = self.source.tensors[name]
        return dequantize(info.dtype, (1, *info.shape), bytes(self.source.data(name)))[0]

    def norm(self, norm: Norm, x: Array) -> Array:
        return rmsnorm(x, self.vector(norm.weight), norm.eps)

    def logits(self, tokens: list[int]) -> Array:
        """[tokens, vocab]."""
        x = self.weights(self.spec.embedding)[tokens]
        for layer in self.spec.layers:
            x = x + self.attention(layer.mixer, self.norm(layer.norm1, x))
            inner = self.norm(layer.norm2, x)
            x = (
                self.mixture(layer.ffn, inner, x)
                if isinstance(layer.ffn, MoE)
                else x + self.glu(layer.ffn, inner)
            )
        return self.product(self.spec.head, self.norm(self.spec.final_norm, x))

    def glu(self, ffn: GLU, x: Array) -> Array:
        return self.product(ffn.down, swiglu(self.product(ffn.gate, x), self.product(ffn.up, x)))

    def mixture(self, ffn: MoE, inner: Array, x: Array) -> Array:
        """x plus the chosen experts' weighted outputs, ascending by expert."""
        for row, scores in enumerate(self.product(ffn.router.weight, inner)):
            chosen = sorted(sorted(range(ffn.count), key=lambda e: (-scores[e], e))[: ffn.router.top_k])
            weights, total = softmax(scores)
            if ffn.router.renormalise:
                total = in_order(weights[chosen])
            for expert in chosen:
                part = self.glu(ffn.experts.expert(expert), inner[row : row + 1])[0]
                x[row] = x[row] + part * (weights[expert] / total)
        return x

    def attention(self, mixer: GQA, x: Array) -> Array:
        q, k, v = (self.product(name, x) for name in (mixer.q, mixer.k, mixer.v))
        if mixer.qk_norm is not None:
            q, k = self.norm(mixer.qk_norm.q, q), self.norm(mixer.qk_norm.k, k)
        if mixer.clip is not None:
            q, k, v = (np.clip(part, F32(-mixer.clip), F32(mixer.clip)) for part in (q, k, v))
        q, k, v = (part.reshape(len(x), -1, mixer.head_dim) for part in (q, k, v))
        rotation = mixer.rope
        frequency = F32(rotation.theta ** (-np.arange(0, rotation.dims, 2) / rotation.dims))
        for row in range(len(x)):
            turns = (F32(row) * frequency).astype(np.float64)
            angles = np.stack([np.cos(turns), np.sin(turns)], 1).astype(F32)
            for part in (q, k):
                part[row] = rope(part[row], angles, rotation.style == "interleaved")
        out = np.empty_like(q)
        for row in range(len(x)):
            for head in range(mixer.heads):
                kv = head // (mixer.heads // mixer.kv_heads)
                scale = mixer.head_dim**-0.5
                out[row, head] = attend(q[row, head], k[: row + 1, kv], v[: row + 1, kv], scale)
        return self.product(mixer.o, out.reshape(len(x), -1))
