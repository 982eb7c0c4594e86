"""Small networks whose weights come from a seed, so that no checkpoint needs to be stored."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

NETWORKS: Final[dict[str, dict[str, Any]]] = {
    "olmoe": {
        "model_type": "olmoe",
        "vocab_size": 320,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": False,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "attention_bias": False,
        "clip_qkv": None,
        "tie_word_embeddings": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "llama": {
        "model_type": "llama",
        "vocab_size": 320,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
}
"""config.json of each network."""

TOKENS: Final = 24


def _uniform(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Values in [-1, 1), from bits whose meaning numpy promises to keep."""
    bits = np.random.Generator(np.random.PCG64(seed)).bit_generator.random_raw(int(np.prod(shape)))
    return ((bits >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - 1).reshape(shape)


def tokens_of(name: str) -> np.ndarray:
    """The prompt [TOKENS]."""
    vocab = NETWORKS[name]["vocab_size"]
    return ((_uniform(99, (TOKENS,)) + 1) / 2 * vocab).astype(np.int64)


def weights_of(name: str) -> dict[str, np.ndarray]:
    """All tensors by their Hugging Face names, in f32."""
    config = NETWORKS[name]
    hidden, width, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries, keys = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(config["num_hidden_layers"]):
        parts: dict[str, tuple[int, ...]] = {
            "input_layernorm": (hidden,),
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (keys, hidden),
            "self_attn.v_proj": (keys, hidden),
            "self_attn.o_proj": (hidden, queries),
            "post_attention_layernorm": (hidden,),
        }
        ffn = {"gate_proj": (width, hidden), "up_proj": (width, hidden), "down_proj": (hidden, width)}
        if name == "olmoe":
            parts |= {"self_attn.q_norm": (queries,), "self_attn.k_norm": (keys,)}
            parts["mlp.gate"] = (config["num_experts"], hidden)
            for expert in range(config["num_experts"]):
                parts |= {f"mlp.experts.{expert}.{part}": shape for part, shape in ffn.items()}
        else:
            parts |= {f"mlp.{part}": shape for part, shape in ffn.items()}
        shapes |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, hidden)
    weights = {}
    for seed, (key, shape) in enumerate(shapes.items()):
        values = _uniform(seed, shape)
        vector = len(shape) == 1
        weights[key] = 1 + values / 4 if vector else values * np.float32(2 / shape[1] ** 0.5)
    return weights
