"""The GGUF header reader: against the gguf package, and against files that lie."""

import struct

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.errors import CheckpointError
from colibri_engine.gguf import TENSOR_TYPES, LazyArray, read_header
from colibri_engine.tensors import DTYPES

from .writers import ARRAY, BOOL, gguf, i32s, in_memory, string, strings, tensor, text, u32

SMALL = gguf(
    {"general.architecture": string("small"), "words": strings(["", "é", "three"]), "n": i32s([1, -2])},
    [tensor("a", [4, 2], 0, 0), tensor("b", [32], 8, 32)],
    bytes(range(66)),
)


def read(data):
    return read_header(in_memory(data))


def refused(data):
    """The message, which must name the file and be one line."""
    with pytest.raises(CheckpointError) as caught:
        read(data)
    message = caught.value.message
    assert message.startswith("small.gguf: ")
    assert "\n" not in message
    return message


def lists(value):
    return [lists(item) for item in value] if isinstance(value, LazyArray) else value


def test_reads_what_was_written():
    pairs, tensors = read(SMALL)
    assert {key: lists(value) for key, value in pairs.items()} == {
        "general.architecture": "small",
        "words": ["", "é", "three"],
        "n": [1, -2],
    }
    first, second = tensors["a"], tensors["b"]
    assert (first.shape, first.dtype, first.nbytes) == ((2, 4), "F32", 32)
    assert (second.shape, second.dtype, second.nbytes) == ((32,), "Q8_0", 34)
    assert SMALL[first.offset :][:66] == bytes(range(66))
    assert second.offset == first.offset + 32


def test_version_2_has_the_same_layout():
    (pairs, tensors), (older_pairs, older_tensors) = read(SMALL), read(SMALL.replace(b"\x03", b"\x02", 1))
    assert older_tensors == tensors
    assert {key: lists(value) for key, value in older_pairs.items()} == {
        key: lists(value) for key, value in pairs.items()
    }


def test_type_table_is_that_of_the_gguf_package():
    for number, name in TENSOR_TYPES.items():
        kind = GGMLQuantizationType(number)
        assert kind.name == name
        assert (DTYPES[name].elements, DTYPES[name].size) == GGML_QUANT_SIZES[kind]


def test_reads_what_the_gguf_package_writes(tmp_path):
    path = tmp_path / "written.gguf"
    scalars = {
        "u8": (200, GGUFValueType.UINT8),
        "i8": (-100, GGUFValueType.INT8),
        "u16": (60000, GGUFValueType.UINT16),
        "i16": (-30000, GGUFValueType.INT16),
        "u32": (4_000_000_000, GGUFValueType.UINT32),
        "i32": (-2_000_000_000, GGUFValueType.INT32),
        "f32": (0.5, GGUFValueType.FLOAT32),
        "bool": (True, GGUFValueType.BOOL),
        "string": ("naïve", GGUFValueType.STRING),
        "u64": (2**63 + 1, GGUFValueType.UINT64),
        "i64": (-(2**62), GGUFValueType.INT64),
        "f64": (0.1, GGUFValueType.FLOAT64),
    }
    arrays = {"ints": [1, -2, 3], "floats": [0.5, 1.5], "words": ["a", "", "ü"], "bools": [True, False]}
    generator = np.random.default_rng(0)
    weights = {
        "f32": generator.standard_normal((3, 8)).astype(np.float32),
        "f16": generator.standard_normal((5,)).astype(np.float16),
    }
    quantised = generator.integers(0, 255, (4, 68), dtype=np.uint8)
    writer = GGUFWriter(path, "small")
    writer.add_custom_alignment(64)
    for key, (value, kind) in scalars.items():
        writer.add_key_value(key, value, kind)
    for key, values in arrays.items():
        writer.add_array(key, values)
    for name, weight in weights.items():
        writer.add_tensor(name, weight)
    writer.add_tensor("q8", quantised, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    data = path.read_bytes()
    pairs, tensors = read(data)
    for key, (value, _) in scalars.items():
        assert pairs[key] == value
        assert type(pairs[key]) is type(value)
    for key, values in arrays.items():
        assert list(pairs[key]) == values
        assert pairs[key].kind is type(values[0])
    for name, weight in weights.items():
        info = tensors[name]
        assert info.shape == weight.shape
        assert data[info.offset :][: info.nbytes] == weight.tobytes()
    assert tensors["q8"].shape == (4, 64)
    assert data[tensors["q8"].offset :][: tensors["q8"].nbytes] == quantised.tobytes()


def test_real_file_agrees_with_the_gguf_package(smollm2_path):
    data = memoryview(np.memmap(smollm2_path, mode="r"))
    pairs, tensors = read(data)
    reader = GGUFReader(smollm2_path)
    assert {key for key in reader.fields if not key.startswith("GGUF.")} == set(pairs)
    for key, value in pairs.items():
        assert lists(value) == reader.fields[key].contents()
    assert [tensor.name for tensor in reader.tensors] == list(tensors)
    for theirs in reader.tensors:
        ours = tensors[theirs.name]
        assert ours.shape == tuple(reversed([int(axis) for axis in theirs.shape]))
        assert ours.dtype == theirs.tensor_type.name
        assert (ours.offset, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)


def test_arrays_are_decoded_only_when_read():
    broken = gguf({"words": strings(["ab"])}).replace(b"ab", b"\xff\xfe")
    words = read(broken)[0]["words"]
    assert len(words) == 1
    with pytest.raises(CheckpointError, match=r"small\.gguf: value of 'words' at 61 is not UTF-8"):
        words[0]


def test_nested_arrays():
    inner = i32s([7])[4:]
    assert lists(read(gguf({"x": struct.pack("<IIQ", ARRAY, ARRAY, 2) + inner + inner}))[0]["x"]) == [
        [7],
        [7],
    ]
    deep = struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 50 + inner
    assert "unknown type 9" in refused(gguf({"x": deep}))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "magic is not GGUF"),
        (b"GGML" + SMALL[4:], "magic is not GGUF"),
        (gguf({}, version=1), "version is 1; versions 2 and 3 can be read"),
        (gguf({}, version=0x03000000), "a big-endian file?"),
        (gguf({}, tensor_count=2**60), f"tensor count is {2**60}, more than"),
        (gguf({}, pair_count=2**60), f"key-value count is {2**60}, more than"),
        (gguf([("a", u32(1)), ("a", u32(2))]), "key 'a' comes twice"),
        (gguf({b"\xff": u32(1)}), "key 0 at 32 is not UTF-8"),
        (gguf({"a": struct.pack("<I", 77)}), "value of 'a' has the unknown type 77"),
        (gguf({"a": struct.pack("<IB", BOOL, 2)}), "value of 'a' is 2, not a boolean"),
        (gguf({"a": struct.pack("<IQ", 8, 2**63)}), f"value of 'a' is cut short: {2**63} bytes"),
        (gguf({"a": struct.pack("<IIQ", ARRAY, 4, 2**61)}), f"length of value of 'a' is {2**61}, more than"),
        (gguf({"a": struct.pack("<IIQ", ARRAY, 8, 2**61)}), f"length of value of 'a' is {2**61}, more than"),
        (
            gguf({"a": struct.pack("<IIQQQ", ARRAY, 8, 2, 2**64 - 1, 0)}),
            "value of 'a' is cut short: its strings end beyond",
        ),
        (gguf({"general.alignment": u32(0)}), "general.alignment is 0; it must be a power of two"),
        (gguf({"general.alignment": u32(48)}), "general.alignment is 48; it must be a power of two"),
        (gguf({"general.alignment": string("8")}), "general.alignment is '8'; it must be a power of two"),
        (gguf({}, [tensor("t", [], 0, 0)]), "tensor 't' has 0 axes"),
        (gguf({}, [tensor("t", [1] * 9, 0, 0)]), "tensor 't' has 9 axes"),
        (gguf({}, [tensor("t", [1, 0], 0, 0)]), "tensor 't' has shape [0, 1], which F32 cannot have"),
        (gguf({}, [tensor("t", [16], 2, 0)]), "tensor 't' has shape [16], which Q4_0 cannot have"),
        (gguf({}, [tensor("t", [1], 99, 0)], bytes(32)), "tensor 't' has the unknown type 99"),
        (
            gguf({}, [tensor("t", [1], 0, 8)], bytes(32)),
            "tensor 't' begins at 8, which is not a multiple of 32",
        ),
        (gguf({}, [tensor("t", [8], 0, 0)] * 2, bytes(64)), "tensor 't' comes twice"),
        (
            gguf({}, [tensor("t", [16], 0, 0), tensor("u", [8], 0, 32)], bytes(64)),
            "tensor 'u' overlaps tensor 't'",
        ),
        (gguf({}, [tensor("t", [8], 0, 32)], bytes(63)), "tensor 't' ends at byte"),
        (gguf({}, [tensor("t", [2**63, 2**63], 0, 0)], bytes(64)), "tensor 't' ends at byte"),
        (gguf({}, [tensor("t", [8], 0, 2**63)], bytes(64)), "tensor 't' ends at byte"),
    ],
)
def test_lies_are_named(data, problem):
    assert problem in refused(data)


def test_a_huge_count_of_strings_is_refused_at_once():
    count = (1 << 22) + 1
    data = gguf({"a": struct.pack("<IIQ", ARRAY, 8, count) + bytes(8 * count)})
    assert "at most 4194304 strings are read" in refused(data)


def test_cut_at_every_byte_of_the_file():
    for length in range(len(SMALL)):
        refused(SMALL[:length])


def check_harmless(data):
    """Either the file is refused by name, or everything that it says can be read."""
    try:
        pairs, tensors = read(data)
        for value in pairs.values():
            lists(value)
    except CheckpointError:
        return
    for info in tensors.values():
        assert 0 <= info.offset <= info.offset + info.nbytes <= len(data)


@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_a_wrong_byte_anywhere_does_no_harm(flip):
    for at in range(len(SMALL) - 66):
        check_harmless(SMALL[:at] + bytes([SMALL[at] ^ flip]) + SMALL[at + 1 :])


@given(st.lists(st.tuples(st.integers(4, len(SMALL) - 67), st.binary(min_size=1, max_size=12)), max_size=4))
def test_wrong_bytes_do_no_harm(patches):
    data = bytearray(SMALL)
    for at, patch in patches:
        data[at : at + len(patch)] = patch
    check_harmless(bytes(data))


@given(st.binary(max_size=300))
def test_random_bytes_after_the_magic_do_no_harm(data):
    check_harmless(b"GGUF\x03\0\0\0" + data)
    check_harmless(b"GGUF\x03\0\0\0" + struct.pack("<QQ", 1, 1) + text("k") + data)
