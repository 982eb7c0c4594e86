"""Text to ids and back: against recorded ids of the models' own tokenizers, and by properties."""

import json
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.errors import CheckpointError, JobError
from colibri_engine.pretokenizers import PRETOKENIZERS
from colibri_engine.tokenizer import load_tokenizer

from .writers import folder, gguf, safetensors, string, tokenizer_pairs, u32

CASES = json.loads(Path(__file__).parents[1].joinpath("data/engine/tokenizer_cases.json").read_text("utf-8"))
SAME_RULES = {"olmo": "mpt", "smollm": "starcoder"}
SMALL_MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello", "< |", "| >"]


def load(tmp_path, pairs):
    path = tmp_path / "t.gguf"
    path.write_bytes(gguf({"general.architecture": string("small")} | pairs))
    with open_checkpoint(path) as checkpoint:
        return load_tokenizer(checkpoint)


def small_vocabulary():
    """All bytes, a few merges, two control tokens, a user-defined one and a run of blanks."""
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens += [merge.replace(" ", "") for merge in SMALL_MERGES]
    kinds = [1] * len(tokens)
    return [*tokens, "<|a|>", "<|a|>b", "<think>", "    "], [*kinds, 3, 3, 4, 4]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    tokens, kinds = small_vocabulary()
    ends = {"tokenizer.ggml.eos_token_id": u32(263), "tokenizer.ggml.bos_token_id": u32(264)}
    return load(tmp_path_factory.mktemp("small"), tokenizer_pairs(tokens, kinds, SMALL_MERGES) | ends)


@pytest.fixture(scope="module")
def smollm2(smollm2_path):
    with open_checkpoint(smollm2_path) as checkpoint:
        return load_tokenizer(checkpoint)


@pytest.fixture(scope="module")
def reference(smollm2_path):
    """The same vocabulary as Hugging Face puts it together, special tokens and all."""
    with open_checkpoint(smollm2_path) as checkpoint:
        tokens, kinds, merges = (
            checkpoint.config[f"tokenizer.ggml.{key}"][:] for key in ("tokens", "token_type", "merges")
        )
    vocabulary = {token: id for id, token in enumerate(tokens)}
    whole = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(m.split(" ")) for m in merges]))
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    whole.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == 3])
    return whole


@pytest.mark.parametrize("pre", PRETOKENIZERS)
def test_recorded_ids(tmp_path, pre):
    recorded = CASES[SAME_RULES.get(pre, pre)]
    tokenizer = load(
        tmp_path, tokenizer_pairs(recorded["tokens"], recorded["token_type"], recorded["merges"], pre)
    )
    for case in recorded["cases"]:
        assert tokenizer.encode(case["text"]) == case["ids"]
        assert tokenizer.encode_ordinary(case["text"]) == case["ids"]
        assert tokenizer.decode(case["ids"]).decode() == case["text"]


ABSENT = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
TEXTS = st.text(st.characters(codec="utf-8")) | st.text("ab 09\n\t'.é中🙂\u0301\u00a0")
PIECES = st.lists(
    st.sampled_from(["<|im_start|>", "<|im_end|>", "<|im_", "start|>", "<", "|>", "\n", " ", "user"]) | TEXTS
)


def test_known_tokens_of_the_real_file(smollm2):
    assert smollm2.encode("<|im_start|>user\nHi<|im_end|>")[0::4] == [1, 2]
    assert (smollm2.size, smollm2.bos, smollm2.eos) == (49152, 1, {2})
    assert [smollm2.text(id) for id in range(3)] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert [id for id in range(smollm2.size) if smollm2.is_control(id)] == list(range(17))


@given(PIECES)
def test_whole_text_is_encoded_as_the_reference_does(smollm2, reference, pieces):
    text = "".join(pieces)
    assert smollm2.encode(text) == reference.encode(text).ids


@given(PIECES)
def test_ordinary_text_holds_no_control_token_and_decodes_exactly(smollm2, pieces):
    text = "".join(pieces)
    ids = smollm2.encode_ordinary(text)
    assert not any(map(smollm2.is_control, ids))
    if not any(byte in ABSENT for byte in text.encode()):
        assert smollm2.decode(ids) == text.encode()
        assert smollm2.decode(smollm2.encode(text)) == text.encode()


def test_bytes_that_the_real_vocabulary_lacks(smollm2):
    spelled = {smollm2.token_bytes(id) for id in range(smollm2.size)}
    assert {byte for byte in range(256) if bytes([byte]) not in spelled} == ABSENT


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["<|im_start|>", "<|im_end|>", "\n"]) | TEXTS)))
def test_special_spellings_count_only_where_trusted(smollm2, reference, parts):
    text, trusted, harmless = "", [], ""
    for is_trusted, part in parts:
        if is_trusted:
            trusted.append((len(text), len(text) + len(part)))
        text += part
        harmless += part if is_trusted else part.replace("<|im_", "<|no_")
    ids = smollm2.encode(text, trusted)
    assert smollm2.encode(text, reversed(trusted)) == ids
    assert [id for id in ids if id < 17] == [id for id in smollm2.encode(harmless, trusted) if id < 17]
    if harmless == text:
        assert ids == reference.encode(text).ids


@given(TEXTS, st.lists(st.integers(0, 200)))
def test_spans_never_cut_bpe(smollm2, text, cuts):
    edges = sorted(min(cut, len(text)) for cut in cuts)
    spans = list(zip(edges[::2], edges[1::2], strict=False))
    if "<" not in text:
        assert smollm2.encode(text, spans) == smollm2.encode(text)


def test_token_bytes_are_exact(smollm2):
    assert smollm2.token_bytes(smollm2.encode(" the")[0]) == b" the"
    ids = smollm2.encode("🙂")
    assert len(ids) > 1
    assert smollm2.decode(ids) == "🙂".encode()
    for unknown in (-1, smollm2.size):
        with pytest.raises(JobError, match="is no token"):
            smollm2.decode([unknown])
    assert any("\ufffd" in smollm2.text(id) for id in ids)
    assert smollm2.token_bytes(10**9) == b""


def texts(tokenizer, ids):
    return [tokenizer.text(id) for id in ids]


def test_longest_special_spelling_wins(small):
    assert texts(small, small.encode("<|a|>b<|a|>c")) == ["<|a|>b", "<|a|>", "c"]


def test_one_stretch_at_a_time(small):
    text = "<|a|>b"
    assert texts(small, small.encode(text, [(0, 5)])) == ["<|a|>", "b"]
    assert texts(small, small.encode(text, [(0, 3), (3, 6)])) == ["<|a|>b"]
    assert texts(small, small.encode(text, [(0, 4), (5, 6)])) == ["<|", "a", "|>", "b"]
    assert texts(small, small.encode(text, [])) == ["<|", "a", "|>", "b"]


def test_user_defined_tokens_are_control_tokens_but_blanks_are_text(small):
    think, blanks = small.encode("<think>    ")
    assert small.is_control(think)
    assert not small.is_control(blanks)
    assert small.encode("<think>    ", [])[-1] == blanks
    assert texts(small, small.encode("x     y", [])) == ["x", "    ", " ", "y"]


def test_special_ids(small):
    assert (small.bos, small.eos, small.size) == (264, {263}, 267)


@pytest.mark.parametrize("span", [(-1, 2), (2, 1), (0, 6)])
def test_spans_outside_the_text_are_refused(small, span):
    with pytest.raises(JobError, match=r"trusted: .* is no span of a text of 5 characters"):
        small.encode("hello", [span])


def test_half_a_surrogate_pair_is_refused(small):
    with pytest.raises(JobError, match="the prompt holds half a surrogate pair"):
        small.encode("a\ud800b")


PAIRS = tokenizer_pairs(*small_vocabulary(), SMALL_MERGES)


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        ({}, "tokenizer.ggml.model is None; only gpt2 is supported"),
        (PAIRS | {"tokenizer.ggml.model": string("llama")}, "tokenizer.ggml.model is 'llama'"),
        (PAIRS | {"tokenizer.ggml.pre": string("new")}, "tokenizer.ggml.pre is 'new'; supported are gpt-2, "),
        (PAIRS | {"tokenizer.ggml.tokens": u32(1)}, "tokenizer.ggml.tokens must be an array of str"),
        (PAIRS | {"tokenizer.ggml.merges": string("a b")}, "tokenizer.ggml.merges must be an array of str"),
        (tokenizer_pairs(["a"], [1, 1], []), "token_type has 2 entries for 1 tokens"),
        (tokenizer_pairs(["a", "b"], [1, 1], ["ab"]), "the merge 'ab' is no pair of tokens"),
        (tokenizer_pairs(["a", "b"], [1, 1], ["a b"]), "the merge 'a b' is not of tokens in the vocabulary"),
        (tokenizer_pairs(["a", "ab"], [1, 1], ["a b"]), "the merge 'a b' is not of tokens in the vocabulary"),
        (PAIRS | {"tokenizer.ggml.eos_token_id": string("x")}, "eos_token_id must be a token id or a list"),
    ],
)
def test_bad_metadata_is_refused_by_key(tmp_path, pairs, problem):
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path, pairs)
    assert problem in caught.value.message
    assert "t.gguf: " in caught.value.message


def tokenizer_json(added=(), **changes):
    tokens, kinds = small_vocabulary()
    vocabulary = {token: id for id, token in enumerate(tokens) if kinds[id] == 1}
    entries = [
        {"id": id, "content": token, "special": kinds[id] == 3}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for id, token in enumerate(tokens)
        if kinds[id] != 1
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": {"max_length": 3, "stride": 0, "strategy": "LongestFirst", "direction": "Right"},
        "padding": None,
        "added_tokens": entries + list(added),
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocabulary,
            "merges": SMALL_MERGES,
        },
    } | changes


def with_model(**changes):
    document = tokenizer_json()
    return document | {"model": document["model"] | changes}


def load_folder(path, tokenizer, **files):
    weights = {
        "config.json": {"model_type": "small", "eos_token_id": 263},
        "model.safetensors": safetensors({}),
    }
    folder(
        path,
        weights | {"tokenizer.json": tokenizer} | {f"{name}.json": value for name, value in files.items()},
    )
    with open_checkpoint(path) as checkpoint:
        return load_tokenizer(checkpoint)


@given(text=st.lists(st.sampled_from(["<|a|>", "b", "<think>", "     ", " hello", "hell", "9"])).map("".join))
def test_tokenizer_json_gives_the_same_as_gguf(small, tmp_path_factory, text):
    tokenizer = CACHE.get("json") or load_folder(tmp_path_factory.mktemp("json"), tokenizer_json())
    CACHE["json"] = tokenizer
    whole = CACHE.setdefault(
        "whole", tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(truncation=None)))
    )
    ids = tokenizer.encode(text)
    assert ids == small.encode(text)
    assert ids == whole.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids).decode() == text
    assert tokenizer.encode_ordinary(text) == small.encode_ordinary(text)


CACHE = {}


def test_end_tokens_of_a_folder(tmp_path):
    assert load_folder(tmp_path / "a", tokenizer_json()).eos == {263}
    ends = {"eos_token_id": [263, 265], "bos_token_id": 264}
    both = load_folder(tmp_path / "b", tokenizer_json(), generation_config=ends)
    assert (both.bos, both.eos) == (264, {263, 265})


FLAGS = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)


@pytest.mark.parametrize("flag", ["single_word", "lstrip", "rstrip"])
@pytest.mark.parametrize(
    "text", ["<m>", " <m> ", "a<m>", "<m>a", "a <m>\n\t b", "  <m>  <m>  ", "<m><m>", "é<m>_"]
)
def test_flags_of_added_tokens_mean_what_they_mean_to_the_reference(tmp_path, flag, text):
    document = tokenizer_json([{"id": 267, "content": "<m>", "special": True} | FLAGS | {flag: True}])
    whole = tokenizers.Tokenizer.from_str(json.dumps(document | {"truncation": None}))
    assert load_folder(tmp_path, document).encode(text) == whole.encode(text).ids


def test_text_that_spells_a_control_token_does_not_meet_it_in_the_vocabulary(tmp_path):
    merges = [pair.split(" ") for pair in [*SMALL_MERGES, "<| a", "<|a |>"]]
    document = with_model(ignore_merges=True, merges=merges)
    document["model"]["vocab"] |= {"<|a|>": 263, "<|a": 267}
    document["pre_tokenizer"] = document["pre_tokenizer"] | {"use_regex": False}
    tokenizer = load_folder(tmp_path, document)
    assert texts(tokenizer, tokenizer.encode("<|a|>", [])) == ["<|a", "|>"]
    assert tokenizer.encode("<|a|>") == [263]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b"{", "tokenizer.json is not valid JSON"),
        ({}, "tokenizer.json: only byte-level BPE is supported"),
        (tokenizer_json(decoder=None), "tokenizer.json: only byte-level BPE is supported"),
        (tokenizer_json(model={"type": "Unigram"}), "tokenizer.json: only byte-level BPE is supported"),
        (with_model(vocab={"a": "b"}), "model.vocab must map tokens to ids"),
        (with_model(vocab={"a": -1}, merges=[]), "tokenizer.json cannot be used: "),
        (with_model(merges=None), "added_tokens and model.merges must be lists"),
        (with_model(merges=[3]), "model: the merge 3 is no pair of tokens"),
        (with_model(merges=[[1, 2]]), "model: the merge [1, 2] is not of tokens in the vocabulary"),
        (with_model(merges=[["a", {}]]), "model: the merge ['a', {}] is no pair of tokens"),
        (tokenizer_json(added_tokens=3), "added_tokens and model.merges must be lists"),
        (tokenizer_json([{"id": -1, "content": "x"}]), "an added token must have a content and an id"),
        (tokenizer_json(pre_tokenizer={"type": "Unheard"}), "tokenizer.json cannot be used: "),
    ],
)
def test_bad_tokenizer_json_is_refused(tmp_path, document, problem):
    with pytest.raises(CheckpointError) as caught:
        load_folder(tmp_path, document)
    assert problem in caught.value.message


def test_a_folder_without_tokenizer_is_refused(tmp_path):
    files = {"config.json": {"model_type": "small"}, "model.safetensors": safetensors({})}
    with (
        open_checkpoint(folder(tmp_path, files)) as checkpoint,
        pytest.raises(CheckpointError, match=r"tokenizer\.json cannot be read: No such file"),
    ):
        load_tokenizer(checkpoint)
