"""A family against the chat template that a checkpoint carries."""

import json
import struct
from hashlib import sha256

import pytest
from attrs import evolve

import colibri
from colibri.errors import FamilyFileError, RequestError
from colibri.templates import ChatTemplate
from colibri.verify import Official, compare, official_of, special_tokens, trials
from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.errors import CheckpointError

FAMILIES = colibri.load()


def mismatches(family, official):
    return [found for trial in trials(family) if (found := compare(family, official, trial)) is not None]


def folder(path, **files):
    """A model folder with one tensor and these JSON files."""
    path.mkdir()
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
    (path / "config.json").write_text('{"model_type": "llama"}')
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value))
    return path


@pytest.fixture
def smollm2(smollm2_path):
    return official_of(smollm2_path, FAMILIES["smollm2"])


def test_the_real_template_is_the_official_one(smollm2, smollm2_path):
    digest = sha256(smollm2.template.source.encode()).hexdigest()
    assert digest in FAMILIES["smollm2"].identity.template_hashes
    with open_checkpoint(smollm2_path) as checkpoint:
        assert checkpoint.config["general.architecture"] == "llama"
    assert smollm2.special_tokens["bos_token"] == "<|im_start|>"
    assert smollm2.special_tokens["eos_token"] == "<|im_end|>"


def test_a_family_renders_what_the_real_template_renders(smollm2):
    assert mismatches(FAMILIES["smollm2"], smollm2) == []


def test_any_space_more_in_what_a_template_writes_is_found(smollm2):
    """Wherever a literal of the template gets a space, some conversation shows it."""
    source = smollm2.template.source
    places = [at for at in range(len(source)) if source.startswith(("<|im_", "assistant\n", "\\n"), at)]
    assert len(places) > 5
    for at in places:
        changed = ChatTemplate(source[:at] + " " + source[at:], name="changed")
        found = mismatches(FAMILIES["smollm2"], Official(changed, smollm2.special_tokens))
        assert found, source[at : at + 30]
        assert all(len(m.official.text) > len(m.family.text) for m in found if m.official.text is not None)


@pytest.mark.parametrize("family_id", FAMILIES)
def test_trials_go_through_every_option_of_a_variant(family_id):
    features = FAMILIES[family_id].features
    planned = trials(FAMILIES[family_id])
    options = {trial.options for trial in planned}
    assert {f"effort {level}" for level in features.efforts} <= options
    assert ("thinking off" in options) == (features.thinking == "switch")
    assert ("past reasoning kept" in options) == features.preserve_thinking
    assert any(trial.conversation.open_last for trial in planned)
    assert any(not trial.cue for trial in planned)
    assert len({trial.name for trial in planned}) == len(planned)


@pytest.mark.parametrize(
    ("theirs", "ours", "equal"),
    [
        ("{{ raise_exception('no') }}", "{{ raise_exception('never') }}", True),
        ("{{ raise_exception('no') }}", "{{ messages[0].content }}", False),
        ("{{ messages[0].content }}", "{{ raise_exception('no') }}", False),
        ("{{ messages[0]['content'] }}", "{{ messages[0].content }}", True),
    ],
)
def test_a_refusal_equals_a_refusal(theirs, ours, equal):
    smollm2 = FAMILIES["smollm2"]
    renderer = evolve(smollm2.render, template=ChatTemplate(ours, name="ours"))
    family = evolve(smollm2, render=renderer)
    trial = trials(family)[0]
    found = compare(family, Official(ChatTemplate(theirs, name="theirs"), {}), trial)
    assert (found is None) == equal
    if found is not None:
        assert (found.official.refusal is None) != (found.family.refusal is None)


def test_a_broken_template_is_told_by_its_name(smollm2):
    broken = Official(ChatTemplate("{% if %}", name="the chat template of x"), {})
    with pytest.raises(FamilyFileError, match=r"^the chat template of x, line 1: "):
        mismatches(FAMILIES["smollm2"], broken)


def test_a_family_without_a_template_cannot_be_compared():
    family = evolve(FAMILIES["smollm2"], render=lambda conversation, cue=True: None)
    with pytest.raises(RequestError, match="rendered by code"):
        compare(family, Official(ChatTemplate("", name="x"), {}), trials(FAMILIES["smollm2"])[0])


def test_special_tokens_of_a_folder(tmp_path):
    place = folder(
        tmp_path / "model",
        special_tokens_map={"eos_token": "<old>", "pad_token": {"content": "<pad>"}},
        tokenizer_config={
            "bos_token": {"content": "<s>", "lstrip": False},
            "eos_token": "</s>",
            "unk_token": None,
            "add_bos_token": True,
            "chat_template": "{{ bos_token }}",
        },
    )
    with open_checkpoint(place) as checkpoint:
        assert special_tokens(checkpoint) == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    assert official_of(place, FAMILIES["smollm2"]).template.source == "{{ bos_token }}"


def test_a_template_alone_has_the_special_tokens_of_the_family(tmp_path):
    file = tmp_path / "chat_template.jinja"
    file.write_text("{{ bos_token }}ü", encoding="utf-8")
    official = official_of(file, FAMILIES["olmoe"])
    assert official.template.source == "{{ bos_token }}ü"
    assert official.special_tokens["bos_token"] == "|||IP_ADDRESS|||"


def test_what_cannot_be_compared_is_said(tmp_path):
    with pytest.raises(CheckpointError, match="carries no chat template"):
        official_of(folder(tmp_path / "model"), FAMILIES["smollm2"])
    file = tmp_path / "x.jinja"
    file.write_bytes(b"ab\xff")
    with pytest.raises(CheckpointError, match="byte 2 is not UTF-8"):
        official_of(file, FAMILIES["smollm2"])
