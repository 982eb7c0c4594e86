"""Example network descriptions for the engine's own tests; families build theirs elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    TensorLike,
    integer,
    number,
    require,
    rope_theta,
)

Tensors = Mapping[str, TensorLike]


def llama_gguf(config: Mapping[str, Any], tensors: Tensors) -> ArchSpec:
    """Llama from the key-values of a GGUF file."""
    require(config, "llama.rope.scaling.type", "none", None)
    heads = integer(config, "llama.attention.head_count")
    hidden = integer(config, "llama.embedding_length")
    head_dim = integer(config, "llama.attention.key_length", hidden // heads)
    require(config, "llama.attention.value_length", head_dim)
    eps = number(config, "llama.attention.layer_norm_rms_epsilon")
    width = integer(config, "llama.feed_forward_length")
    rope = Rope(
        "interleaved",
        number(config, "llama.rope.freq_base", 10000.0),
        integer(config, "llama.rope.dimension_count", head_dim),
    )

    def layer(index: int) -> Layer:
        def name(part: str) -> str:
            return f"blk.{index}.{part}.weight"

        return Layer(
            norm1=Norm(name("attn_norm"), eps),
            mixer=GQA(
                q=name("attn_q"),
                k=name("attn_k"),
                v=name("attn_v"),
                o=name("attn_output"),
                heads=heads,
                kv_heads=integer(config, "llama.attention.head_count_kv", heads),
                head_dim=head_dim,
                rope=rope,
            ),
            norm2=Norm(name("ffn_norm"), eps),
            ffn=GLU(name("ffn_gate"), name("ffn_up"), name("ffn_down"), width),
        )

    return ArchSpec(
        hidden=hidden,
        vocab=tensors["token_embd.weight"].shape[0],
        context=integer(config, "llama.context_length"),
        embedding="token_embd.weight",
        layers=tuple(layer(index) for index in range(integer(config, "llama.block_count"))),
        final_norm=Norm("output_norm.weight", eps),
        head="output.weight" if "output.weight" in tensors else "token_embd.weight",
    )


def llama_hf(config: Mapping[str, Any], tensors: Tensors) -> ArchSpec:
    """Llama from config.json."""
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    require(config, "mlp_bias", False)
    heads = integer(config, "num_attention_heads")
    hidden = integer(config, "hidden_size")
    head_dim = integer(config, "head_dim", hidden // heads)
    eps = number(config, "rms_norm_eps", 1e-6)
    width = integer(config, "intermediate_size")
    rope = Rope("half", rope_theta(config, 10000.0), head_dim)

    def layer(index: int) -> Layer:
        def name(part: str) -> str:
            return f"model.layers.{index}.{part}.weight"

        return Layer(
            norm1=Norm(name("input_layernorm"), eps),
            mixer=GQA(
                q=name("self_attn.q_proj"),
                k=name("self_attn.k_proj"),
                v=name("self_attn.v_proj"),
                o=name("self_attn.o_proj"),
                heads=heads,
                kv_heads=integer(config, "num_key_value_heads", heads),
                head_dim=head_dim,
                rope=rope,
            ),
            norm2=Norm(name("post_attention_layernorm"), eps),
            ffn=GLU(name("mlp.gate_proj"), name("mlp.up_proj"), name("mlp.down_proj"), width),
        )

    tied = require(config, "tie_word_embeddings", False, True)
    return ArchSpec(
        hidden=hidden,
        vocab=integer(config, "vocab_size"),
        context=integer(config, "max_position_embeddings", 2048),
        embedding="model.embed_tokens.weight",
        layers=tuple(layer(index) for index in range(integer(config, "num_hidden_layers"))),
        final_norm=Norm("model.norm.weight", eps),
        head="model.embed_tokens.weight" if tied else "lm_head.weight",
        ignored=("lm_head.weight", "*.rotary_emb.inv_freq") if tied else ("*.rotary_emb.inv_freq",),
    )


def olmoe_hf(config: Mapping[str, Any], tensors: Tensors) -> ArchSpec:
    """OLMoE from config.json."""
    require(config, "hidden_act", "silu")
    require(config, "attention_bias", False)
    clip = None if config.get("clip_qkv") is None else number(config, "clip_qkv")
    heads = integer(config, "num_attention_heads")
    hidden = integer(config, "hidden_size")
    eps = number(config, "rms_norm_eps", 1e-5)
    rope = Rope("half", rope_theta(config, 10000.0), hidden // heads)

    def layer(index: int) -> Layer:
        def name(part: str) -> str:
            return f"model.layers.{index}.{part}.weight"

        return Layer(
            norm1=Norm(name("input_layernorm"), eps),
            mixer=GQA(
                q=name("self_attn.q_proj"),
                k=name("self_attn.k_proj"),
                v=name("self_attn.v_proj"),
                o=name("self_attn.o_proj"),
                heads=heads,
                kv_heads=integer(config, "num_key_value_heads", heads),
                head_dim=hidden // heads,
                rope=rope,
                qk_norm=QKNorm(
                    Norm(name("self_attn.q_norm"), eps),
                    Norm(name("self_attn.k_norm"), eps),
                ),
                clip=clip,
            ),
            norm2=Norm(name("post_attention_layernorm"), eps),
            ffn=MoE(
                SoftmaxRouter(
                    name("mlp.gate"),
                    integer(config, "num_experts_per_tok", 8),
                    require(config, "norm_topk_prob", False, True),
                ),
                ExpertGLU(
                    name("mlp.experts.{expert}.gate_proj"),
                    name("mlp.experts.{expert}.up_proj"),
                    name("mlp.experts.{expert}.down_proj"),
                    integer(config, "intermediate_size"),
                ),
                integer(config, "num_experts", 64),
            ),
        )

    tied = require(config, "tie_word_embeddings", False, True)
    return ArchSpec(
        hidden=hidden,
        vocab=integer(config, "vocab_size"),
        context=integer(config, "max_position_embeddings", 4096),
        embedding="model.embed_tokens.weight",
        layers=tuple(layer(index) for index in range(integer(config, "num_hidden_layers"))),
        final_norm=Norm("model.norm.weight", eps),
        head="model.embed_tokens.weight" if tied else "lm_head.weight",
    )
