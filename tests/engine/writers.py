"""Small checkpoint files for tests, written by hand so that they can also lie."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

STRING, ARRAY, U32, I32, BOOL = 8, 9, 4, 5, 7


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def string(value: str | bytes) -> bytes:
    return struct.pack("<I", STRING) + text(value)


def u32(value: int) -> bytes:
    return struct.pack("<II", U32, value)


def strings(values: Iterable[str]) -> bytes:
    items = [text(value) for value in values]
    return struct.pack("<IIQ", ARRAY, STRING, len(items)) + b"".join(items)


def i32s(values: Iterable[int]) -> bytes:
    items = list(values)
    return struct.pack(f"<IIQ{len(items)}i", ARRAY, I32, len(items), *items)


def tensor(name: str, axes: Iterable[int], kind: int, offset: int) -> bytes:
    """`axes` innermost first, as the file has them."""
    axes = list(axes)
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def gguf(
    pairs: Mapping[str, bytes] | Iterable[tuple[str, bytes]],
    tensors: Iterable[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    tensor_count: int | None = None,
    pair_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A GGUF file; the counts can be wrong."""
    items = list(pairs.items() if isinstance(pairs, Mapping) else pairs)
    entries = list(tensors)
    header = b"GGUF" + struct.pack(
        "<IQQ",
        version,
        len(entries) if tensor_count is None else tensor_count,
        len(items) if pair_count is None else pair_count,
    )
    header += b"".join(text(key) + value for key, value in items) + b"".join(entries)
    return header + b"\0" * (-len(header) % alignment) + data


def tokenizer_pairs(
    tokens: Iterable[str], kinds: Iterable[int], merges: Iterable[str], pre: str = "gpt-2"
) -> dict[str, bytes]:
    return {
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string(pre),
        "tokenizer.ggml.tokens": strings(tokens),
        "tokenizer.ggml.token_type": i32s(kinds),
        "tokenizer.ggml.merges": strings(merges),
    }


def safetensors(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A safetensors file; `header` is JSON bytes, or a value to be written as JSON."""
    blob = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(blob) if length is None else length) + blob + data


def entry(dtype: str, shape: Iterable[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def folder(path: Path, files: Mapping[str, Any]) -> Path:
    """Write a model folder: bytes as they are, everything else as JSON."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def in_memory(data: bytes) -> Any:
    """What a `MappedFile` of these bytes would be, without a file."""
    return SimpleNamespace(path=Path("small.gguf"), view=memoryview(data), size=len(data))
