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


def network(config: Mapping[str, Any], tensors: Mapping[str, TensorLike]) -> ArchSpec:
    """The description that the engine executes; `tensors` maps names to shapes and dtypes.

    Raises:
        SpecError: a configuration key is missing, or changes the maths in a way that is not supported.
    """
    return _from_gguf(config, tensors) if "general.architecture" in config else _from_hf(config, tensors)


def _from_gguf(config: Mapping[str, Any], tensors: Mapping[str, TensorLike]) -> ArchSpec:
    require(config, "llama.rope.scaling.type", "none", None)
    hidden = integer(config, "llama.embedding_length")
    heads = integer(config, "llama.attention.head_count")
    head_dim = integer(config, "llama.attention.key_length", hidden // heads)
    require(config, "llama.attention.value_length", head_dim)
    eps = number(config, "llama.attention.layer_norm_rms_epsilon")
    # GGUF files of llama hold q and k with interleaved rope pairs.
    rope = Rope(
        "interleaved",
        number(config, "llama.rope.freq_base", 10000.0),
        integer(config, "llama.rope.dimension_count", head_dim),
    )
    layers = tuple(
        Layer(
            norm1=Norm(f"blk.{index}.attn_norm.weight", eps),
            mixer=GQA(
                q=f"blk.{index}.attn_q.weight",
                k=f"blk.{index}.attn_k.weight",
                v=f"blk.{index}.attn_v.weight",
                o=f"blk.{index}.attn_output.weight",
                heads=heads,
                kv_heads=integer(config, "llama.attention.head_count_kv", heads),
                head_dim=head_dim,
                rope=rope,
            ),
            norm2=Norm(f"blk.{index}.ffn_norm.weight", eps),
            ffn=GLU(
                gate=f"blk.{index}.ffn_gate.weight",
                up=f"blk.{index}.ffn_up.weight",
                down=f"blk.{index}.ffn_down.weight",
                width=integer(config, "llama.feed_forward_length"),
            ),
        )
        for index in range(integer(config, "llama.block_count"))
    )
    return ArchSpec(
        hidden=hidden,
        vocab=integer(config, "llama.vocab_size"),
        context=integer(config, "llama.context_length"),
        embedding="token_embd.weight",
        layers=layers,
        final_norm=Norm("output_norm.weight", eps),
        head="output.weight" if "output.weight" in tensors else "token_embd.weight",
    )


def _from_hf(config: Mapping[str, Any], tensors: Mapping[str, TensorLike]) -> ArchSpec:
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    require(config, "mlp_bias", False)
    hidden = integer(config, "hidden_size")
    heads = integer(config, "num_attention_heads")
    head_dim = integer(config, "head_dim", hidden // heads)
    eps = number(config, "rms_norm_eps")
    rope = Rope("half", rope_theta(config, 10000.0), head_dim)
    layers = tuple(
        Layer(
            norm1=Norm(f"model.layers.{index}.input_layernorm.weight", eps),
            mixer=GQA(
                q=f"model.layers.{index}.self_attn.q_proj.weight",
                k=f"model.layers.{index}.self_attn.k_proj.weight",
                v=f"model.layers.{index}.self_attn.v_proj.weight",
                o=f"model.layers.{index}.self_attn.o_proj.weight",
                heads=heads,
                kv_heads=integer(config, "num_key_value_heads", heads),
                head_dim=head_dim,
                rope=rope,
            ),
            norm2=Norm(f"model.layers.{index}.post_attention_layernorm.weight", eps),
            ffn=GLU(
                gate=f"model.layers.{index}.mlp.gate_proj.weight",
                up=f"model.layers.{index}.mlp.up_proj.weight",
                down=f"model.layers.{index}.mlp.down_proj.weight",
                width=integer(config, "intermediate_size"),
            ),
        )
        for index in range(integer(config, "num_hidden_layers"))
    )
    return ArchSpec(
        hidden=hidden,
        vocab=integer(config, "vocab_size"),
        context=integer(config, "max_position_embeddings"),
        embedding="model.embed_tokens.weight",
        layers=layers,
        final_norm=Norm("model.norm.weight", eps),
        head="lm_head.weight" if "lm_head.weight" in tensors else "model.embed_tokens.weight",
    )
