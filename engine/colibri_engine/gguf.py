"""The header of a GGUF file, versions 2 and 3: key-values and where each tensor lies.

Layout (ggml's docs/gguf.md), little-endian: "GGUF", u32 version, u64 tensors, u64 key-values; per
key-value: string key, u32 type, value; per tensor: string name, u32 axes, u64 each axis (innermost
first), u32 type, u64 offset; padding; tensor data. A string is u64 length and UTF-8; an array is u32
type, u64 count, elements. Nothing in the file is believed before it is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct, error
from typing import Any, Final

from .errors import CheckpointError
from .files import MappedFile
from .tensors import DTYPES, TensorInfo, check_extents

__all__ = ["TENSOR_TYPES", "LazyArray", "read_header"]

TENSOR_TYPES: Final[Mapping[int, str]] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    6: "Q5_0",
    7: "Q5_1",
    8: "Q8_0",
    9: "Q8_1",
    10: "Q2_K",
    11: "Q3_K",
    12: "Q4_K",
    13: "Q5_K",
    14: "Q6_K",
    15: "Q8_K",
    16: "IQ2_XXS",
    17: "IQ2_XS",
    18: "IQ3_XXS",
    19: "IQ1_S",
    20: "IQ4_NL",
    21: "IQ3_S",
    22: "IQ2_S",
    23: "IQ4_XS",
    24: "I8",
    25: "I16",
    26: "I32",
    27: "I64",
    28: "F64",
    29: "IQ1_M",
    30: "BF16",
    34: "TQ1_0",
    35: "TQ2_0",
    39: "MXFP4",
    40: "NVFP4",
}
"""ggml's numbers for tensor types."""

_SCALARS: Final[Mapping[int, str]] = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING: Final = 8
_ARRAY: Final = 9
_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")
_MAX_AXES: Final = 8
_MAX_NESTING: Final = 4
_MAX_STRINGS: Final = 1 << 22
_DEFAULT_ALIGNMENT: Final = 32


class LazyArray(Sequence[Any]):
    """An array of a key-value, decoded when it is first read.

    kind: what every element is: str, int, float, bool or `LazyArray`. Reading raises `CheckpointError`
    if a string in it is not UTF-8.
    """

    __slots__ = ("_count", "_decode", "_items", "kind")

    def __init__(self, kind: type, count: int, decode: Callable[[], Sequence[Any]]) -> None:
        self.kind = kind
        self._count = count
        self._decode = decode
        self._items: Sequence[Any] | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if self._items is None:
            self._items = self._decode()
        return self._items[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])

    def __repr__(self) -> str:
        return f"<array of {self._count}>"


def read_header(file: MappedFile) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """The key-values and the tensors of a GGUF file.

    Returns:
        Key-values by key (str, int, float, bool or `LazyArray`), and tensors by name.

    Raises:
        CheckpointError: the file is no GGUF of these versions, is cut short, contradicts itself, or
            has a tensor of an unknown type; the message names the file and the field.
    """
    reader = _Reader(file)
    if bytes(file.view[:4]) != b"GGUF":
        raise reader.fault("magic", "is not GGUF; this is no GGUF file")
    reader.at = 4
    version = reader.u32("version")
    if version not in (2, 3):
        endian = " (a big-endian file?)" if version & 0xFFFF == 0 else ""
        raise reader.fault("version", f"is {version}{endian}; versions 2 and 3 can be read")
    tensor_count = reader.count("tensor count", 8 + 4 + 4 + 8)
    pair_count = reader.count("key-value count", 8 + 4 + 1)
    pairs: dict[str, Any] = {}
    for index in range(pair_count):
        key = reader.string(f"key {index}")
        if key in pairs:
            raise reader.fault(f"key {key!r:.80}", "comes twice")
        pairs[key] = reader.value(reader.u32(f"type of {key!r:.80}"), f"value of {key!r:.80}")
    alignment = pairs.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 8 or alignment & (alignment - 1):
        raise reader.fault("general.alignment", f"is {alignment!r:.80}; it must be a power of two from 8")
    entries = [reader.tensor(index) for index in range(tensor_count)]
    start = -(-reader.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for name, shape, dtype, offset in entries:
        what = f"tensor {name!r:.80}"
        if name in tensors:
            raise reader.fault(what, "comes twice")
        if offset % alignment:
            raise reader.fault(what, f"begins at {offset}, which is not a multiple of {alignment}")
        tensors[name] = TensorInfo(name, shape, dtype, DTYPES[dtype].nbytes(shape), start + offset)
    check_extents(file.path, file.size, start, tensors.values())
    return pairs, tensors


class _Reader:
    """A cursor over the header. Every method takes the name of what it reads, for errors."""

    def __init__(self, file: MappedFile) -> None:
        self.path = file.path
        self.view = file.view
        self.size = file.size
        self.at = 0

    def fault(self, what: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {what} {problem}")

    def advance(self, length: int, what: str) -> int:
        """The position of the next `length` bytes, which are then passed."""
        start = self.at
        if length > self.size - start:
            raise self.fault(what, f"is cut short: {length} bytes at {start} of a file of {self.size}")
        self.at = start + length
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.view, self.advance(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.view, self.advance(8, what))[0])

    def count(self, what: str, least: int) -> int:
        """A count of items that take at least `least` bytes each, so that the rest can hold them."""
        count = self.u64(what)
        if count > (self.size - self.at) // least:
            raise self.fault(what, f"is {count}, more than a file of {self.size} bytes can hold")
        return count

    def string(self, what: str) -> str:
        length = self.u64(f"length of {what}")
        start = self.advance(length, what)
        return self.text(start, length, what)

    def text(self, start: int, length: int, what: str) -> str:
        try:
            return str(self.view[start : start + length], "utf-8")
        except UnicodeDecodeError:
            raise self.fault(what, f"at {start} is not UTF-8") from None

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self.array(what, depth)
        if (code := _SCALARS.get(kind)) is None:
            raise self.fault(what, f"has the unknown type {kind}")
        scalar = Struct(f"<{code}")
        start = self.advance(scalar.size, what)
        if code == "?" and self.view[start] > 1:
            raise self.fault(what, f"is {self.view[start]}, not a boolean")
        return scalar.unpack_from(self.view, start)[0]

    def array(self, what: str, depth: int) -> LazyArray:
        kind = self.u32(f"element type of {what}")
        if (code := _SCALARS.get(kind)) is not None:
            scalar = Struct(f"<{code}")
            count = self.count(f"length of {what}", scalar.size)
            start = self.advance(count * scalar.size, what)
            view, packed = self.view, Struct(f"<{count}{code}")
            number = {"?": bool, "f": float, "d": float}.get(code, int)
            return LazyArray(number, count, lambda: packed.unpack_from(view, start))
        if kind == _STRING:
            return self.strings(what)
        if kind != _ARRAY or depth == _MAX_NESTING:
            raise self.fault(what, f"has elements of the unknown type {kind}")
        count = self.count(f"length of {what}", 4 + 8)
        items = [self.array(f"element {index} of {what}", depth + 1) for index in range(count)]
        return LazyArray(LazyArray, count, lambda: items)

    def strings(self, what: str) -> LazyArray:
        """Pass an array of strings; only their lengths are read now."""
        count = self.count(f"length of {what}", 8)
        if count > _MAX_STRINGS:
            raise self.fault(f"length of {what}", f"is {count}; at most {_MAX_STRINGS} strings are read")
        view, unpack, start = self.view, _U64.unpack_from, self.at
        at = start
        try:
            for _ in range(count):
                at += 8 + unpack(view, at)[0]
        except (error, OverflowError):
            at = self.size + 1
        if at > self.size:
            raise self.fault(what, "is cut short: its strings end beyond the end of the file")
        self.at = at

        def decode() -> list[str]:
            items, at = [], start
            for _ in range(count):
                length = unpack(view, at)[0]
                items.append(self.text(at + 8, length, what))
                at += 8 + length
            return items

        return LazyArray(str, count, decode)

    def tensor(self, index: int) -> tuple[str, tuple[int, ...], str, int]:
        """Name, shape, dtype and offset of one tensor."""
        name = self.string(f"name of tensor {index}")
        what = f"tensor {name!r:.80}"
        axes = self.u32(f"number of axes of {what}")
        if not 1 <= axes <= _MAX_AXES:
            raise self.fault(what, f"has {axes} axes; 1 to {_MAX_AXES} were expected")
        shape = tuple(reversed([self.u64(f"shape of {what}") for _ in range(axes)]))
        kind = self.u32(f"type of {what}")
        if (dtype := TENSOR_TYPES.get(kind)) is None:
            raise self.fault(what, f"has the unknown type {kind}")
        if 0 in shape or shape[-1] % DTYPES[dtype].elements:
            raise self.fault(what, f"has shape {list(shape)}, which {dtype} cannot have")
        return name, shape, dtype, self.u64(f"offset of {what}")
