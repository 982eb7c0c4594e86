"""Network descriptions: validation, JSON, and strict reading of configurations."""

import json

import attrs
import pytest

from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.errors import SpecError
from colibri_engine.spec import from_json, integer, number, require, rope_theta, to_json, validate
from colibri_engine.tensors import TensorInfo

from .builders import llama_gguf, llama_hf, olmoe_hf

LLAMA_HF = {
    "hidden_size": 64,
    "vocab_size": 100,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "rms_norm_eps": 1e-5,
}
OLMOE_HF = LLAMA_HF | {"num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 8.0}
LLAMA_GGUF = {
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.feed_forward_length": 96,
}


def tensors_of(spec):
    """What a fitting checkpoint would have."""
    return {need.name: TensorInfo(need.name, need.shape, need.dtypes[0], 0, 0) for need in spec.needs()}


def embedding(rows):
    return {"token_embd.weight": TensorInfo("token_embd.weight", (rows, 64), "F32", 0, 0)}


SPECS = {
    "llama_hf": llama_hf(LLAMA_HF, {}),
    "llama_hf_tied": llama_hf(LLAMA_HF | {"tie_word_embeddings": True}, {}),
    "llama_gguf": llama_gguf(LLAMA_GGUF, embedding(100)),
    "olmoe_hf": olmoe_hf(OLMOE_HF, {}),
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


@every_spec
def test_fits_its_own_tensors(spec):
    validate(spec, tensors_of(spec))


@every_spec
def test_json_round_trip(spec):
    text = to_json(spec)
    assert "\n" not in text
    assert from_json(text) == spec


def test_real_file(smollm2_path):
    with open_checkpoint(smollm2_path) as checkpoint:
        spec = llama_gguf(checkpoint.config, checkpoint.tensors)
        validate(spec, checkpoint.tensors)
    assert (len(spec.layers), spec.hidden, spec.vocab, spec.context) == (30, 576, 49152, 8192)
    assert spec.head == spec.embedding
    mixer = spec.layers[29].mixer
    assert (mixer.heads, mixer.kv_heads, mixer.head_dim, mixer.rope.theta) == (9, 3, 64, 100000.0)


@every_spec
def test_every_tensor_is_needed_in_its_shape_and_a_known_dtype(spec):
    tensors = tensors_of(spec)
    for name, info in tensors.items():
        others = {key: value for key, value in tensors.items() if key != name}
        with pytest.raises(SpecError, match=f"tensor {name} is missing"):
            validate(spec, others)
        with pytest.raises(SpecError, match=f"tensor {name} has shape"):
            validate(spec, others | {name: attrs.evolve(info, shape=(1, *info.shape))})
        with pytest.raises(SpecError, match=f"tensor {name} has dtype Q6_K"):
            validate(spec, others | {name: attrs.evolve(info, dtype="Q6_K")})


def test_vectors_are_never_quantised():
    spec = SPECS["llama_gguf"]
    tensors = tensors_of(spec)
    name = spec.final_norm.weight
    tensors[name] = attrs.evolve(tensors[name], dtype="Q8_0")
    with pytest.raises(SpecError, match="it can with F32, F16, BF16"):
        validate(spec, tensors)


def test_a_tensor_that_nobody_reads_is_an_error_unless_ignored():
    spec = SPECS["llama_gguf"]
    bias = TensorInfo("blk.0.attn_q.bias", (64,), "F32", 0, 0)
    tensors = tensors_of(spec) | {bias.name: bias}
    with pytest.raises(SpecError, match=r"tensor blk\.0\.attn_q\.bias is in the checkpoint but not part"):
        validate(spec, tensors)
    validate(attrs.evolve(spec, ignored=("*.bias",)), tensors)


def with_mixer(**changes):
    spec = SPECS["olmoe_hf"]
    layer = spec.layers[1]
    layer = attrs.evolve(layer, mixer=attrs.evolve(layer.mixer, **changes))
    return attrs.evolve(spec, layers=(spec.layers[0], layer))


def with_ffn(**changes):
    spec = SPECS["olmoe_hf"]
    layer = attrs.evolve(spec.layers[0], ffn=attrs.evolve(spec.layers[0].ffn, **changes))
    return attrs.evolve(spec, layers=(layer, spec.layers[1]))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (with_mixer(heads=5), "spec.layers[1].mixer: heads (5) must be a multiple of kv_heads (2)"),
        (
            with_mixer(rope=attrs.evolve(SPECS["olmoe_hf"].layers[0].mixer.rope, dims=18)),
            "spec.layers[1].mixer: rope.dims (18) must be even and at most head_dim (16)",
        ),
        (
            with_mixer(rope=attrs.evolve(SPECS["olmoe_hf"].layers[0].mixer.rope, style="neox")),
            "spec.layers[1].mixer.rope.style must be 'half' or 'interleaved', not 'neox'",
        ),
        (with_mixer(clip=-1.0), "spec.layers[1].mixer.clip must be positive, not -1.0"),
        (with_mixer(clip=float("nan")), "spec.layers[1].mixer.clip must be positive, not nan"),
        (with_mixer(kv_heads=0), "spec.layers[1].mixer.kv_heads must be positive, not 0"),
        (with_mixer(q=7), "spec.layers[1].mixer.q must be str, not 7"),
        (with_ffn(count=1), "spec.layers[0].ffn: router.top_k (2) must be at most count (1)"),
        (
            attrs.evolve(SPECS["olmoe_hf"], layers=(3,)),
            "spec.layers[0] must be an object with kind Layer, not 3",
        ),
    ],
)
def test_inconsistent_numbers_are_named(spec, problem):
    with pytest.raises(SpecError) as caught:
        validate(spec, {})
    assert caught.value.message == problem


def paths(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(item, (*path, key))


@pytest.mark.parametrize("wrong", [None, True, -1, 0.5, "x", [], {}, [1], {"kind": "GLU"}])
def test_any_wrong_value_anywhere_is_a_named_error_or_a_valid_spec(wrong):
    text = to_json(SPECS["olmoe_hf"])
    for path in paths(json.loads(text)):
        document = json.loads(text)
        if path:
            place = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = wrong
        else:
            document = wrong
        try:
            spec = from_json(json.dumps(document))
        except SpecError as error:
            message = error.message
        else:
            message = "spec" if from_json(to_json(spec)) == spec else "changed"
        assert message.startswith("spec")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda spec: spec.pop("hidden"), "spec.hidden is missing"),
        (lambda spec: spec.update(extra=1), "spec has an unknown field extra"),
        (lambda spec: spec.update(layers=3), "spec.layers must be a list, not 3"),
        (
            lambda spec: spec["layers"][0]["ffn"].update(kind="Norm"),
            "ffn must be an object with kind GLU or MoE",
        ),
    ],
)
def test_json_errors_name_the_field(change, problem):
    document = json.loads(to_json(SPECS["llama_hf"]))
    change(document)
    with pytest.raises(SpecError) as caught:
        from_json(json.dumps(document))
    assert problem in caught.value.message


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(SpecError, match="spec: not JSON"):
        from_json(text)


@pytest.mark.parametrize(
    ("build", "config", "key"),
    [
        (llama_hf, LLAMA_HF | {"hidden_act": "gelu"}, "hidden_act"),
        (llama_hf, LLAMA_HF | {"attention_bias": True}, "attention_bias"),
        (llama_hf, LLAMA_HF | {"rope_scaling": {"factor": 2.0}}, "rope_scaling"),
        (llama_hf, LLAMA_HF | {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "rope_type"),
        (olmoe_hf, OLMOE_HF | {"norm_topk_prob": "yes"}, "norm_topk_prob"),
        (llama_gguf, LLAMA_GGUF | {"llama.rope.scaling.type": "linear"}, "llama.rope.scaling.type"),
        (llama_gguf, LLAMA_GGUF | {"llama.attention.value_length": 8}, "llama.attention.value_length"),
    ],
)
def test_unsupported_mathematics_is_refused_by_key(build, config, key):
    with pytest.raises(SpecError, match=f"the configuration's {key} is .*; this engine supports only"):
        build(config, embedding(100))


def test_numbers_of_a_configuration():
    assert integer({"a": 3}, "a") == 3
    assert integer({"a": None}, "a", 5) == 5
    assert number({"a": 3}, "a") == 3.0
    assert number({}, "a", 0.5) == 0.5
    for bad in (None, True, 0, -1, "3", 1.5):
        with pytest.raises(SpecError, match="the configuration's a must be a positive integer"):
            integer({"a": bad}, "a")
    for bad in (None, True, 0, -1.0, "3", float("nan"), float("inf")):
        with pytest.raises(SpecError, match="the configuration's a must be a positive number"):
            number({"a": bad}, "a")


def test_require_does_not_confuse_types():
    assert require({}, "a", False, True) is False
    assert require({"a": True}, "a", False, True) is True
    assert require({"a": None}, "a", "silu", None) is None
    for bad in (0, 1, None, "False"):
        with pytest.raises(SpecError, match="this engine supports only False or True"):
            require({"a": bad}, "a", False, True)


@pytest.mark.parametrize(
    ("config", "theta"),
    [
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 10000}, 1e4),
        ({}, 1.5),
        ({"rope_scaling": None}, 1.5),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 1e6),
        ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 1.0}}, 1e6),
    ],
)
def test_rope_theta(config, theta):
    assert rope_theta(config, 1.5) == theta


@pytest.mark.parametrize(
    "config",
    [
        {"rope_scaling": {"type": "linear"}},
        {"rope_parameters": []},
        {"rope_parameters": {"rope_type": "llama3"}},
        {"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}},
        {"rope_theta": 0},
    ],
)
def test_other_ropes_are_refused(config):
    with pytest.raises(SpecError, match="the configuration's "):
        rope_theta(config, 1.5)
