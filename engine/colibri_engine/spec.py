"""The description of a network that the compiled core executes: blocks with numbers and weight names.

A family builds an `ArchSpec` from a checkpoint's configuration; the core knows only these blocks. To
add a mechanism, add a `Block` and name it in `Mixer` or `FeedForward`. Blocks are frozen values with
weights named, never held; every number in them is positive. Matrices are [outputs, inputs].
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen

from .config import integer, number, require, rope_theta
from .errors import SpecError

__all__ = [
    "GLU",
    "GQA",
    "MATRIX_DTYPES",
    "VECTOR_DTYPES",
    "Activation",
    "ArchSpec",
    "Block",
    "ExpertGLU",
    "FeedForward",
    "Layer",
    "Mixer",
    "MoE",
    "Need",
    "Norm",
    "QKNorm",
    "Rope",
    "SoftmaxRouter",
    "TensorLike",
    "from_json",
    "integer",
    "number",
    "require",
    "rope_theta",
    "to_json",
    "validate",
]

VECTOR_DTYPES: Final = ("F32", "F16", "BF16")
MATRIX_DTYPES: Final = (*VECTOR_DTYPES, "Q4_0", "Q4_1", "Q8_0")

Activation: TypeAlias = Literal["silu"]


class TensorLike(Protocol):
    """What `validate` and a family need to know of a tensor; `tensors.TensorInfo` is one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Outermost axis first."""
        ...

    @property
    def dtype(self) -> str:
        """A name of `tensors.DTYPES`."""
        ...


@frozen
class Need:
    """A tensor that a block reads: its name, exact shape, and the dtypes the core can compute with."""

    name: str
    shape: tuple[int, ...]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Vectors are plain floats; matrices may be block-quantised."""
        return VECTOR_DTYPES if len(self.shape) == 1 else MATRIX_DTYPES


class Block(ABC):
    """A mixer or a feed-forward: a frozen attrs value that says which tensors it reads."""

    __slots__ = ()

    @abstractmethod
    def needs(self, hidden: int) -> Iterator[Need]:
        """The tensors this block reads, for a network of this hidden size."""

    def faults(self) -> Iterator[str]:
        """Why its numbers do not fit together; nothing if they do."""
        yield from ()


@frozen
class Norm:
    """RMSNorm: x * rsqrt(mean(x^2) + eps) * weight."""

    weight: str
    eps: float


@frozen
class Rope:
    """Rotary position embedding of the first `dims` (even) channels of every head.

    Channel pair i turns by position * theta^(-2i/dims). style: "half" pairs (i, i + dims/2), as
    Hugging Face lays out; "interleaved" pairs (2i, 2i+1), as GGUF files of llama store q and k.
    """

    style: Literal["half", "interleaved"]
    theta: float
    dims: int


@frozen
class QKNorm:
    """Norms of the projected queries and keys before rope, over their "whole" width, not per head."""

    q: Norm
    k: Norm
    scope: Literal["whole"] = "whole"


@frozen
class GQA(Block):
    """Causal grouped-query attention; query head h reads KV head h // (heads // kv_heads).

    Scores are scaled by head_dim^-0.5.
    q [heads*head_dim, hidden], k and v [kv_heads*head_dim, hidden], o [hidden, heads*head_dim].
    clip: q, k and v are clamped to [-clip, clip] after the norms and before rope.
    """

    q: str
    k: str
    v: str
    o: str
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    qk_norm: QKNorm | None = None
    clip: float | None = None

    def needs(self, hidden: int) -> Iterator[Need]:
        """See `Block`."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield Need(self.q, (queries, hidden))
        yield Need(self.k, (keys, hidden))
        yield Need(self.v, (keys, hidden))
        yield Need(self.o, (hidden, queries))
        if self.qk_norm is not None:
            yield Need(self.qk_norm.q.weight, (queries,))
            yield Need(self.qk_norm.k.weight, (keys,))

    def faults(self) -> Iterator[str]:
        """See `Block`."""
        if self.heads % self.kv_heads:
            yield f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})"
        if self.rope.dims % 2 or self.rope.dims > self.head_dim:
            yield f"rope.dims ({self.rope.dims}) must be even and at most head_dim ({self.head_dim})"


@frozen
class GLU(Block):
    """Gated feed-forward: down(act(gate(x)) * up(x)); gate and up are [width, hidden]."""

    gate: str
    up: str
    down: str
    width: int
    act: Activation = "silu"

    def needs(self, hidden: int) -> Iterator[Need]:
        """See `Block`."""
        yield Need(self.gate, (self.width, hidden))
        yield Need(self.up, (self.width, hidden))
        yield Need(self.down, (hidden, self.width))


@frozen
class SoftmaxRouter:
    """Scores are softmax(weight x) over all experts in f32; the top_k highest are used.

    weight: [experts, hidden]. renormalise: divide the chosen scores by their sum.
    """

    weight: str
    top_k: int
    renormalise: bool


@frozen
class ExpertGLU:
    """Expert number e is a GLU whose weights' names have `{expert}` replaced by e."""

    gate: str
    up: str
    down: str
    width: int
    act: Activation = "silu"

    def expert(self, index: int) -> GLU:
        """The GLU of one expert."""
        gate, up, down = (name.replace("{expert}", str(index)) for name in (self.gate, self.up, self.down))
        return GLU(gate, up, down, self.width, self.act)


@frozen
class MoE(Block):
    """Mixture of experts: the sum of the chosen experts' outputs weighted by their scores."""

    router: SoftmaxRouter
    experts: ExpertGLU
    count: int

    def needs(self, hidden: int) -> Iterator[Need]:
        """See `Block`."""
        yield Need(self.router.weight, (self.count, hidden))
        for index in range(self.count):
            yield from self.experts.expert(index).needs(hidden)

    def faults(self) -> Iterator[str]:
        """See `Block`."""
        if self.router.top_k > self.count:
            yield f"router.top_k ({self.router.top_k}) must be at most count ({self.count})"


Mixer: TypeAlias = GQA
FeedForward: TypeAlias = GLU | MoE


@frozen
class Layer:
    """Pre-norm residual layer: x += mixer(norm1(x)); x += ffn(norm2(x))."""

    norm1: Norm
    mixer: Mixer
    norm2: Norm
    ffn: FeedForward


@frozen
class ArchSpec:
    """A decoder-only network: embedding, layers, final norm, head.

    embedding and head: [vocab, hidden]; a tied head names the embedding. context: the longest
    sequence, in tokens. ignored: shell patterns of tensors that are in the checkpoint and not of this
    network; any other tensor that no block reads is an error, because it would change the result.
    """

    hidden: int
    vocab: int
    context: int
    embedding: str
    layers: tuple[Layer, ...]
    final_norm: Norm
    head: str
    ignored: tuple[str, ...] = ()

    def needs(self) -> Iterator[Need]:
        """Every tensor that the network reads; a tied one comes twice."""
        yield Need(self.embedding, (self.vocab, self.hidden))
        for layer in self.layers:
            yield Need(layer.norm1.weight, (self.hidden,))
            yield from layer.mixer.needs(self.hidden)
            yield Need(layer.norm2.weight, (self.hidden,))
            yield from layer.ffn.needs(self.hidden)
        yield Need(self.final_norm.weight, (self.hidden,))
        yield Need(self.head, (self.vocab, self.hidden))


def validate(spec: ArchSpec, tensors: Mapping[str, TensorLike]) -> None:
    """Check that the description is consistent and that the checkpoint has exactly its tensors.

    Raises:
        SpecError: a number out of range, numbers that do not fit together, a tensor that is missing,
            has another shape or a dtype that the core cannot compute with, or is not accounted for.
    """
    _decode(_encode(spec), ArchSpec, "spec")
    for index, layer in enumerate(spec.layers):
        for part, block in (("mixer", layer.mixer), ("ffn", layer.ffn)):
            for fault in block.faults():
                raise SpecError(f"spec.layers[{index}].{part}: {fault}")
    used = set()
    for need in spec.needs():
        used.add(need.name)
        tensor = tensors.get(need.name)
        if tensor is None:
            raise SpecError(f"tensor {need.name} is missing from the checkpoint")
        if tuple(tensor.shape) != need.shape:
            raise SpecError(
                f"tensor {need.name} has shape {list(tensor.shape)} where the configuration asks for"
                f" {list(need.shape)}"
            )
        if tensor.dtype not in need.dtypes:
            raise SpecError(
                f"tensor {need.name} has dtype {tensor.dtype}, which this engine cannot compute with;"
                f" it can with {', '.join(need.dtypes)}"
            )
    for name in tensors:
        if name not in used and not any(fnmatchcase(name, pattern) for pattern in spec.ignored):
            raise SpecError(f"tensor {name} is in the checkpoint but not part of this network")


def to_json(spec: ArchSpec) -> str:
    """The description as one line of JSON; `from_json` gives an equal value back."""
    return json.dumps(_encode(spec), separators=(",", ":"))


def from_json(text: str) -> ArchSpec:
    """Read what `to_json` wrote.

    Raises:
        SpecError: not JSON, or a field is missing, unknown, of the wrong type or out of range.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecError(f"spec: not JSON: {error}") from None
    spec = _decode(value, ArchSpec, "spec")
    assert isinstance(spec, ArchSpec)
    return spec


def _encode(value: Any) -> Any:
    if attrs.has(type(value)):
        fields = {name: _encode(getattr(value, name)) for name in attrs.fields_dict(type(value))}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any, hint: Any, where: str) -> Any:
    """Turn a JSON value into what the type hint asks for; `where` names it in errors."""
    origin = get_origin(hint)
    if attrs.has(hint) or origin is UnionType:
        return _decode_choice(value, get_args(hint) or (hint,), where)
    if origin is tuple:
        if not isinstance(value, list):
            raise SpecError(f"{where} must be a list, not {value!r:.80}")
        return tuple(_decode(item, get_args(hint)[0], f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Literal:
        if value not in get_args(hint):
            choices = " or ".join(map(repr, get_args(hint)))
            raise SpecError(f"{where} must be {choices}, not {value!r:.80}")
        return value
    if hint is float and type(value) is int:
        value = float(value)
    if type(value) is not hint:
        raise SpecError(f"{where} must be {hint.__name__}, not {value!r:.80}")
    if hint in (int, float) and not 0 < value < math.inf:
        raise SpecError(f"{where} must be positive, not {value!r}")
    return value


def _decode_choice(value: Any, options: tuple[Any, ...], where: str) -> Any:
    """One of several block classes, told by "kind", or one plain type or None."""
    if value is None and NoneType in options:
        return None
    classes = {option.__name__: option for option in options if attrs.has(option)}
    if not classes:
        return _decode(value, next(option for option in options if option is not NoneType), where)
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in classes:
        raise SpecError(f"{where} must be an object with kind {' or '.join(classes)}, not {value!r:.80}")
    cls = classes[kind]
    names = attrs.fields_dict(cls)
    if unknown := value.keys() - names.keys() - {"kind"}:
        raise SpecError(f"{where} has an unknown field {min(unknown)}")
    hints = _hints(cls)
    fields = {}
    for name, attribute in names.items():
        if name in value:
            fields[name] = _decode(value[name], hints[name], f"{where}.{name}")
        elif attribute.default is attrs.NOTHING:
            raise SpecError(f"{where}.{name} is missing")
    return cls(**fields)


@cache
def _hints(cls: type) -> Mapping[str, Any]:
    return get_type_hints(cls)
