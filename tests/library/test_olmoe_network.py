"""OLMoE as a network, from a config.json and from the key-values of a GGUF file."""

import pytest
from attrs import evolve

from colibri.families.olmoe.network import network
from colibri.spec import validate
from colibri_engine.errors import SpecError
from colibri_engine.tensors import TensorInfo

# transformers' OlmoeConfig of a tiny random checkpoint
FOLDER = {
    "vocab_size": 320,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "max_position_embeddings": 512,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}
GGUF = {
    "general.architecture": "olmoe",
    "olmoe.embedding_length": 64,
    "olmoe.block_count": 4,
    "olmoe.context_length": 512,
    "olmoe.feed_forward_length": 48,
    "olmoe.attention.head_count": 4,
    "olmoe.attention.head_count_kv": 4,
    "olmoe.attention.layer_norm_rms_epsilon": 1e-5,
    "olmoe.expert_count": 8,
    "olmoe.expert_used_count": 2,
    "olmoe.rope.freq_base": 10000.0,
}


def tensors(shapes):
    return {name: TensorInfo(name, shape, "F32", 0, 0) for name, shape in shapes.items()}


def folder_tensors(layers=4, experts=8):
    """What transformers saves for this configuration."""
    shapes = {
        "lm_head.weight": (320, 64),
        "model.embed_tokens.weight": (320, 64),
        "model.norm.weight": (64,),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            shapes[f"{at}.{norm}.weight"] = (64,)
        for projection in "qkvo":
            shapes[f"{at}.self_attn.{projection}_proj.weight"] = (64, 64)
        shapes[f"{at}.mlp.gate.weight"] = (8, 64)
        for expert in range(experts):
            shapes[f"{at}.mlp.experts.{expert}.gate_proj.weight"] = (48, 64)
            shapes[f"{at}.mlp.experts.{expert}.up_proj.weight"] = (48, 64)
            shapes[f"{at}.mlp.experts.{expert}.down_proj.weight"] = (64, 48)
    return tensors(shapes)


def test_a_folder_has_exactly_the_tensors_that_are_read():
    validate(network(FOLDER, folder_tensors()), folder_tensors())
    with pytest.raises(SpecError, match="missing"):
        validate(network(FOLDER, folder_tensors()), folder_tensors(experts=7))


def test_the_numbers_of_a_folder():
    spec = network(FOLDER, folder_tensors())
    assert (spec.hidden, spec.vocab, spec.context, len(spec.layers)) == (64, 320, 512, 4)
    assert (spec.embedding, spec.head) == ("model.embed_tokens.weight", "lm_head.weight")
    layer = spec.layers[3]
    assert (layer.mixer.heads, layer.mixer.kv_heads, layer.mixer.head_dim) == (4, 4, 16)
    assert (layer.mixer.rope.style, layer.mixer.rope.dims, layer.mixer.clip) == ("half", 16, None)
    assert layer.mixer.qk_norm.q.weight == "model.layers.3.self_attn.q_norm.weight"
    assert layer.norm1.eps == 1e-5
    assert (layer.ffn.count, layer.ffn.router.top_k, layer.ffn.router.renormalise) == (8, 2, False)
    assert layer.ffn.experts.expert(5).down == "model.layers.3.mlp.experts.5.down_proj.weight"


def test_the_release_clips_and_has_more_heads_than_kv_heads():
    spec = network(FOLDER | {"clip_qkv": 8.0, "num_key_value_heads": 2, "norm_topk_prob": True}, {})
    assert (spec.layers[0].mixer.clip, spec.layers[0].mixer.kv_heads) == (8.0, 2)
    assert spec.layers[0].ffn.router.renormalise


def test_a_tied_head_is_the_embedding():
    assert network(FOLDER | {"tie_word_embeddings": True}, {}).head == "model.embed_tokens.weight"


def test_a_gguf_file_has_the_same_network_under_other_names():
    held = tensors({"token_embd.weight": (320, 64), "output.weight": (320, 64)})
    ours, theirs = network(GGUF, held), network(FOLDER, {})
    assert (ours.hidden, ours.vocab, ours.context) == (theirs.hidden, theirs.vocab, theirs.context)
    assert (ours.embedding, ours.head) == ("token_embd.weight", "output.weight")
    for one, other in zip(ours.layers, theirs.layers, strict=True):
        assert one.mixer.rope == other.mixer.rope
        assert one.norm1.eps == other.norm1.eps
        assert evolve(one.ffn.router, weight="") == evolve(other.ffn.router, weight="")
        assert (one.ffn.count, one.ffn.experts.width) == (other.ffn.count, other.ffn.experts.width)
    assert ours.layers[2].ffn.experts.gate == "blk.2.ffn_gate_exps.weight"
    assert network(GGUF, tensors({"token_embd.weight": (320, 64)})).head == "token_embd.weight"


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (FOLDER | {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        (FOLDER | {"attention_bias": True}, "attention_bias is True"),
        (FOLDER | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type is 'yarn'"),
        (FOLDER | {"num_experts": 0}, "num_experts must be a positive integer"),
        (GGUF | {"olmoe.rope.scaling.type": "linear"}, "rope.scaling.type is 'linear'"),
        ({"general.architecture": "olmoe"}, "olmoe.attention.head_count must be"),
    ],
)
def test_what_would_change_the_mathematics_is_refused(config, problem):
    with pytest.raises(SpecError, match=problem):
        network(config, {})
