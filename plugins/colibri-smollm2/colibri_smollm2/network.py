"""SmolLM2's network: llama, from the key-values of a GGUF file or from config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colibri.spec import (
    GLU,
    GQA,
    ArchSpec,
    Layer,
    Norm,
    Rope,
    TensorLike,
    integer,
    number,
    require,
    rope_theta,
)

__all__ = ["network"]

Config = Mapping[str, Any]

# What the two formats call the weights of layer {i} and those outside the layers.
_GGUF = {
    "norm1": "blk.{i}.attn_norm.weight",
    "q": "blk.{i}.attn_q.weight",
    "k": "blk.{i}.attn_k.weight",
    "v": "blk.{i}.attn_v.weight",
    "o": "blk.{i}.attn_output.weight",
    "norm2": "blk.{i}.ffn_norm.weight",
    "gate": "blk.{i}.ffn_gate.weight",
    "up": "blk.{i}.ffn_up.weight",
    "down": "blk.{i}.ffn_down.weight",
    "embedding": "token_embd.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
}
_HF = {
    "norm1": "model.layers.{i}.input_layernorm.weight",
    "q": "model.layers.{i}.self_attn.q_proj.weight",
    "k": "model.layers.{i}.self_attn.k_proj.weight",
    "v": "model.layers.{i}.self_attn.v_proj.weight",
    "o": "model.layers.{i}.self_attn.o_proj.weight",
    "norm2": "model.layers.{i}.post_attention_layernorm.weight",
    "gate": "model.layers.{i}.mlp.gate_proj.weight",
    "up": "model.layers.{i}.mlp.up_proj.weight",
    "down": "model.layers.{i}.mlp.down_proj.weight",
    "embedding": "model.embed_tokens.weight",
    "final_norm": "model.norm.weight",
    "head": "lm_head.weight",
}
# What the two formats call the numbers.
_GGUF_KEYS = {
    "hidden": "llama.embedding_length",
    "vocab": "llama.vocab_size",
    "context": "llama.context_length",
    "layers": "llama.block_count",
    "heads": "llama.attention.head_count",
    "kv_heads": "llama.attention.head_count_kv",
    "head_dim": "llama.attention.key_length",
    "width": "llama.feed_forward_length",
    "eps": "llama.attention.layer_norm_rms_epsilon",
}
_HF_KEYS = {
    "hidden": "hidden_size",
    "vocab": "vocab_size",
    "context": "max_position_embeddings",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "width": "intermediate_size",
    "eps": "rms_norm_eps",
}


def network(config: Config, tensors: Mapping[str, TensorLike]) -> ArchSpec:
    """The description that the engine executes; `tensors` maps names to shapes and dtypes.

    Raises:
        SpecError: a configuration key is missing, or changes the maths in a way that is not supported.
    """
    gguf = "general.architecture" in config
    names, keys = (_GGUF, _GGUF_KEYS) if gguf else (_HF, _HF_KEYS)
    hidden, heads = integer(config, keys["hidden"]), integer(config, keys["heads"])
    head_dim = integer(config, keys["head_dim"], hidden // heads)
    rope = _gguf_rope(config, head_dim) if gguf else _hf_rope(config, head_dim)
    eps = number(config, keys["eps"])

    def layer(index: int) -> Layer:
        own = {part: name.format(i=index) for part, name in names.items()}
        return Layer(
            norm1=Norm(own["norm1"], eps),
            mixer=GQA(
                q=own["q"],
                k=own["k"],
                v=own["v"],
                o=own["o"],
                heads=heads,
                kv_heads=integer(config, keys["kv_heads"], heads),
                head_dim=head_dim,
                rope=rope,
            ),
            norm2=Norm(own["norm2"], eps),
            ffn=GLU(own["gate"], own["up"], own["down"], integer(config, keys["width"])),
        )

    return ArchSpec(
        hidden=hidden,
        vocab=integer(config, keys["vocab"]),
        context=integer(config, keys["context"]),
        embedding=names["embedding"],
        layers=tuple(layer(index) for index in range(integer(config, keys["layers"]))),
        final_norm=Norm(names["final_norm"], eps),
        head=names["head"] if names["head"] in tensors else names["embedding"],
    )


def _gguf_rope(config: Config, head_dim: int) -> Rope:
    require(config, "llama.rope.scaling.type", "none", None)
    require(config, "llama.attention.value_length", head_dim)
    theta = number(config, "llama.rope.freq_base", 10000.0)
    # GGUF files of llama hold q and k with interleaved rope pairs.
    return Rope("interleaved", theta, integer(config, "llama.rope.dimension_count", head_dim))


def _hf_rope(config: Config, head_dim: int) -> Rope:
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    require(config, "mlp_bias", False)
    return Rope("half", rope_theta(config, 10000.0), head_dim)
