"""The reader of Hugging Face folders: whole ones, sharded ones, and ones that lie."""

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.errors import CheckpointError
from colibri_engine.safetensors import read_header

from .writers import entry, folder, in_memory, safetensors

CONFIG = {"model_type": "small", "hidden_size": 4}
INDEX = "model.safetensors.index.json"
ONE = safetensors({"__metadata__": {"format": "pt"}, "a": entry("F32", [2, 3], 0, 24)}, bytes(range(24)))
TWO = safetensors({"b": entry("BF16", [4], 0, 8), "c": entry("F16", [1, 1], 8, 10)}, bytes(range(10)))
SHARDS = {"a": "x-1.safetensors", "b": "x-2.safetensors", "c": "x-2.safetensors"}


def sharded(path, **changes):
    files = {
        "config.json": CONFIG,
        "x-1.safetensors": ONE,
        "x-2.safetensors": TWO,
        INDEX: {"weight_map": SHARDS},
    }
    return folder(path, {name: content for name, content in (files | changes).items() if content is not None})


def refused(path):
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    message = caught.value.message
    assert str(path) in message
    assert "\n" not in message
    return message


def test_one_file(tmp_path):
    with open_checkpoint(folder(tmp_path, {"config.json": CONFIG, "model.safetensors": ONE})) as checkpoint:
        assert checkpoint.format == "safetensors"
        assert checkpoint.architecture == "small"
        assert checkpoint.config == CONFIG
        info = checkpoint.tensors["a"]
        assert (info.shape, info.dtype, info.nbytes) == ((2, 3), "F32", 24)
        assert bytes(checkpoint.data("a")) == bytes(range(24))
        assert checkpoint.data("a").readonly


def test_shards(tmp_path):
    with open_checkpoint(sharded(tmp_path)) as checkpoint:
        assert list(checkpoint.tensors) == ["a", "b", "c"]
        assert bytes(checkpoint.data("c")) == bytes([8, 9])
        for info in checkpoint.tensors.values():
            file = checkpoint.files[info.file]
            assert file.path.name == SHARDS[info.name]
            assert file.path.read_bytes()[info.offset :][: info.nbytes] == checkpoint.data(info.name)


def test_agrees_with_the_format_for_every_width(tmp_path):
    values = np.arange(6, dtype=np.float64).reshape(2, 3)
    arrays = {"F64": values, "F32": values.astype(np.float32), "F16": values.astype(np.float16)}
    header, data = {}, b""
    for name, array in arrays.items():
        header[name] = entry(name, array.shape, len(data), len(data) + array.nbytes)
        data += array.tobytes()
    folder(tmp_path, {"config.json": CONFIG, "model.safetensors": safetensors(header, data)})
    with open_checkpoint(tmp_path) as checkpoint:
        for name, array in arrays.items():
            read = np.frombuffer(checkpoint.data(name), array.dtype).reshape(checkpoint.tensors[name].shape)
            assert (read == array).all()


def test_unknown_dtypes_do_not_stop_the_reading():
    (info,) = read_header(in_memory(safetensors({"a": entry("F4", [3], 0, 2)}, bytes(2))))
    assert (info.dtype, info.nbytes) == ("F4", 2)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"config.json": None}, "config.json cannot be read: No such file"),
        ({"config.json": b"{"}, "config.json is not valid JSON"),
        ({"config.json": b"[" * 100_000}, "config.json is not valid JSON"),
        ({"config.json": b"[1]"}, "config.json must be a JSON object"),
        ({"config.json": {}}, "model_type is missing"),
        ({"config.json": {"model_type": 3}}, "model_type must be a string, not 3"),
        ({"config.json": b'{"a": 1, "a": 2}'}, "the key 'a' comes twice"),
        ({INDEX: None}, "has neither model.safetensors nor model.safetensors.index.json"),
        ({INDEX: {}}, "weight_map must be an object"),
        ({INDEX: {"weight_map": {"a": 1}}}, "the file of 'a' must be the name of a .safetensors file"),
        ({INDEX: {"weight_map": {"a": "../x.safetensors"}}}, "the file of 'a' must be the name"),
        ({INDEX: {"weight_map": {"a": "x-1.bin"}}}, "the file of 'a' must be the name"),
        ({"x-2.safetensors": None}, "names x-2.safetensors, which is missing; download it again"),
        ({"x-2.safetensors": b""}, "x-2.safetensors is empty"),
        ({"x-2.safetensors": ONE}, "x-2.safetensors: tensor 'a' is also in x-1.safetensors"),
        ({INDEX: {"weight_map": {**SHARDS, "d": "x-2.safetensors"}}}, "tensor 'd' is not there"),
        ({INDEX: {"weight_map": {**SHARDS, "c": "x-1.safetensors"}}}, "tensor 'c' is not there"),
        ({"tokenizer_config.json": {"chat_template": 5}}, "chat_template must be a string, not 5"),
        ({"chat_template.jinja": b"\xff"}, "chat_template.jinja is not UTF-8"),
    ],
)
def test_folders_that_lie_are_refused_by_name(tmp_path, changes, problem):
    assert problem in refused(sharded(tmp_path, **changes))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\0" * 7, "the header length is 0, but the file has 7 bytes"),
        (ONE[:30], "but the file has 30 bytes; it was cut short"),
        (safetensors({}, length=2**63), f"the header length is {2**63}"),
        (safetensors(b"\xff\xff"), "the header is not valid JSON"),
        (safetensors(b"{" * 50_000), "the header is not valid JSON"),
        (safetensors(b'{"a": %s}' % (b"9" * 5000)), "the header is not valid JSON"),
        (safetensors(b"3"), "the header must be a JSON object"),
        (safetensors(b'{"a": 1, "a": 1}'), "the key 'a' comes twice"),
        (safetensors({"a": 1}), "tensor 'a' must be an object, not 1"),
        (safetensors({"a": {}}), "tensor 'a': dtype must be a string, not None"),
        (
            safetensors({"a": {"dtype": "F32", "shape": [True]}}),
            "tensor 'a': shape must be a list of integers",
        ),
        (safetensors({"a": {"dtype": "F32", "shape": [-1]}}), "tensor 'a': shape must be a list of integers"),
        (safetensors({"a": {"dtype": "F32", "shape": []}}), "data_offsets must be [begin, end], not None"),
        (
            safetensors({"a": entry("F32", [1], 4, 0)}, bytes(4)),
            "data_offsets must be [begin, end], not [4, 0]",
        ),
        (safetensors({"a": entry("F32", [3], 0, 8)}, bytes(8)), "F32 of shape [3] does not take 8 bytes"),
        (safetensors({"a": entry("F32", [2**40], 0, 4)}, bytes(4)), "does not take 4 bytes"),
        (safetensors({"a": entry("F32", [2], 0, 8)}, bytes(7)), "tensor 'a' ends at byte"),
        (
            safetensors({"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)}, bytes(8)),
            "tensor 'b' overlaps tensor 'a'",
        ),
    ],
)
def test_files_that_lie_are_refused_by_name(tmp_path, data, problem):
    assert problem in refused(folder(tmp_path, {"config.json": CONFIG, "model.safetensors": data}))


def check_harmless(data):
    try:
        tensors = read_header(in_memory(data))
    except CheckpointError:
        return
    for info in tensors:
        assert 8 <= info.offset <= info.offset + info.nbytes <= len(data)


def test_cut_at_every_byte():
    for length in range(len(TWO)):
        with pytest.raises(CheckpointError):
            read_header(in_memory(TWO[:length]))


def test_a_wrong_byte_anywhere_does_no_harm():
    for at in range(len(TWO)):
        for flip in (0x01, 0x10, 0x80, 0xFF):
            check_harmless(TWO[:at] + bytes([TWO[at] ^ flip]) + TWO[at + 1 :])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {}, optional={"dtype": JSON | st.just("F32"), "shape": JSON, "data_offsets": JSON}
)


@given(st.dictionaries(st.text(max_size=4), FIELDS | JSON, max_size=3))
def test_any_json_header_does_no_harm(header):
    blob = json.dumps(header).encode()
    check_harmless(struct.pack("<Q", len(blob)) + blob + bytes(16))
