"""OLMoE as a network: grouped-query attention with whole-width q/k norms, and a softmax mixture of experts.

The computation is that of transformers' OlmoeForCausalLM; GGUF files hold the same weights under the
names of llama.cpp, with the experts of a layer stacked into one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from colibri_engine.spec import (
    GQA,
    ArchSpec,
    ExpertGLU,
    Layer,
    MoE,
    Norm,
    QKNorm,
    Rope,
    SoftmaxRouter,
    TensorLike,
    integer,
    number,
    require,
    rope_theta,
)

__all__ = ["network"]

_FOLDER_NAMES: Final = {
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
    "norm1": "model.layers.{layer}.input_layernorm.weight",
    "q": "model.layers.{layer}.self_attn.q_proj.weight",
    "k": "model.layers.{layer}.self_attn.k_proj.weight",
    "v": "model.layers.{layer}.self_attn.v_proj.weight",
    "o": "model.layers.{layer}.self_attn.o_proj.weight",
    "q_norm": "model.layers.{layer}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{layer}.self_attn.k_norm.weight",
    "norm2": "model.layers.{layer}.post_attention_layernorm.weight",
    "router": "model.layers.{layer}.mlp.gate.weight",
    "gate": "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
    "up": "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
    "down": "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
}
_GGUF_NAMES: Final = {
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
    "norm1": "blk.{layer}.attn_norm.weight",
    "q": "blk.{layer}.attn_q.weight",
    "k": "blk.{layer}.attn_k.weight",
    "v": "blk.{layer}.attn_v.weight",
    "o": "blk.{layer}.attn_output.weight",
    "q_norm": "blk.{layer}.attn_q_norm.weight",
    "k_norm": "blk.{layer}.attn_k_norm.weight",
    "norm2": "blk.{layer}.ffn_norm.weight",
    "router": "blk.{layer}.ffn_gate_inp.weight",
    "gate": "blk.{layer}.ffn_gate_exps.weight",
    "up": "blk.{layer}.ffn_up_exps.weight",
    "down": "blk.{layer}.ffn_down_exps.weight",
}


@frozen
class _Numbers:
    """What the configuration says; `width` is an expert's, `clip` bounds q, k and v."""

    hidden: int
    vocab: int
    layers: int
    context: int
    heads: int
    kv_heads: int
    eps: float
    theta: float
    experts: int
    top_k: int
    width: int
    renormalise: bool
    clip: float | None
    tied: bool


def network(config: Mapping[str, Any], tensors: Mapping[str, TensorLike]) -> ArchSpec:
    """The network of a config.json or of a GGUF file's key-values.

    Raises:
        colibri_engine.errors.SpecError: a number is missing or not one that this network knows.
    """
    if "general.architecture" in config:
        return _build(_of_gguf(config, tensors), _GGUF_NAMES)
    return _build(_of_folder(config), _FOLDER_NAMES)


def _of_folder(config: Mapping[str, Any]) -> _Numbers:
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    heads = integer(config, "num_attention_heads")
    return _Numbers(
        hidden=integer(config, "hidden_size"),
        vocab=integer(config, "vocab_size"),
        layers=integer(config, "num_hidden_layers"),
        context=integer(config, "max_position_embeddings", 4096),
        heads=heads,
        kv_heads=integer(config, "num_key_value_heads", heads),
        eps=number(config, "rms_norm_eps", 1e-5),
        theta=rope_theta(config, 10000.0),
        experts=integer(config, "num_experts", 64),
        top_k=integer(config, "num_experts_per_tok", 8),
        width=integer(config, "intermediate_size"),
        renormalise=require(config, "norm_topk_prob", False, True),
        clip=_optional(config, "clip_qkv"),
        tied=require(config, "tie_word_embeddings", False, True),
    )


def _of_gguf(config: Mapping[str, Any], tensors: Mapping[str, TensorLike]) -> _Numbers:
    require(config, "olmoe.rope.scaling.type", "none", None)
    require(config, "olmoe.expert_weights_norm", False, None)
    heads = integer(config, "olmoe.attention.head_count")
    embedding = tensors.get(_GGUF_NAMES["embedding"])
    return _Numbers(
        hidden=integer(config, "olmoe.embedding_length"),
        vocab=embedding.shape[0] if embedding is not None else integer(config, "olmoe.vocab_size"),
        layers=integer(config, "olmoe.block_count"),
        context=integer(config, "olmoe.context_length"),
        heads=heads,
        kv_heads=integer(config, "olmoe.attention.head_count_kv", heads),
        eps=number(config, "olmoe.attention.layer_norm_rms_epsilon"),
        theta=number(config, "olmoe.rope.freq_base", 10000.0),
        experts=integer(config, "olmoe.expert_count"),
        top_k=integer(config, "olmoe.expert_used_count"),
        width=integer(config, "olmoe.feed_forward_length"),
        renormalise=False,
        clip=_optional(config, "olmoe.attention.clamp_kqv"),
        tied=_GGUF_NAMES["head"] not in tensors,
    )


def _optional(config: Mapping[str, Any], key: str) -> float | None:
    return None if config.get(key) is None else number(config, key)


def _build(numbers: _Numbers, names: Mapping[str, str]) -> ArchSpec:
    return ArchSpec(
        hidden=numbers.hidden,
        vocab=numbers.vocab,
        context=numbers.context,
        embedding=names["embedding"],
        layers=tuple(_layer(numbers, names, index) for index in range(numbers.layers)),
        final_norm=Norm(names["final_norm"], numbers.eps),
        head=names["embedding"] if numbers.tied else names["head"],
    )


def _layer(numbers: _Numbers, names: Mapping[str, str], index: int) -> Layer:
    def name(part: str) -> str:
        return names[part].replace("{layer}", str(index))

    def norm(part: str) -> Norm:
        return Norm(name(part), numbers.eps)

    head_dim = numbers.hidden // numbers.heads
    attention = GQA(
        q=name("q"),
        k=name("k"),
        v=name("v"),
        o=name("o"),
        heads=numbers.heads,
        kv_heads=numbers.kv_heads,
        head_dim=head_dim,
        rope=Rope("half", numbers.theta, head_dim),
        qk_norm=QKNorm(norm("q_norm"), norm("k_norm")),
        clip=numbers.clip,
    )
    experts = MoE(
        router=SoftmaxRouter(name("router"), numbers.top_k, numbers.renormalise),
        experts=ExpertGLU(name("gate"), name("up"), name("down"), numbers.width),
        count=numbers.experts,
    )
    return Layer(norm1=norm("norm1"), mixer=attention, norm2=norm("norm2"), ffn=experts)
