"""A Hugging Face folder: config.json, and weights in one safetensors file or in indexed shards.

A safetensors file is u64 (little-endian) header length, a JSON header of {name: {dtype, shape,
data_offsets}}, and the data that the offsets count from. Nothing is believed before it is checked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, TypeGuard

from .errors import CheckpointError
from .files import MappedFile, read_small
from .tensors import DTYPES, TensorInfo, check_extents

__all__ = ["read_folder", "read_header", "read_object"]

_MAX_HEADER: Final = 100_000_000
_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"


def read_folder(path: Path, files: list[MappedFile]) -> dict[str, TensorInfo]:
    """The tensors of all weight files of a folder, by name; the files are appended to `files`.

    Raises:
        CheckpointError: no weights, a missing shard, a tensor that is in two shards or not in the one
            that the index names, or a damaged file.
    """
    index: Mapping[str, str] = {}
    names = [_SINGLE]
    if (path / _INDEX).exists():
        index = _read_index(path / _INDEX)
        names = sorted(set(index.values()))
    elif not (path / _SINGLE).exists():
        raise CheckpointError(f"{path} has neither {_SINGLE} nor {_INDEX}; is it a model folder?")
    for name in names:
        if not (path / name).exists():
            raise CheckpointError(f"{path / _INDEX} names {name}, which is missing; download it again")
    tensors: dict[str, TensorInfo] = {}
    for name in names:
        file = MappedFile(path / name)
        files.append(file)
        for tensor in read_header(file, len(files) - 1):
            if tensor.name in tensors:
                other = files[tensors[tensor.name].file].path.name
                raise CheckpointError(f"{file.path}: tensor {tensor.name!r:.80} is also in {other}")
            tensors[tensor.name] = tensor
    for tensor_name, name in index.items():
        if tensor_name not in tensors or files[tensors[tensor_name].file].path.name != name:
            raise CheckpointError(
                f"{path / name}: tensor {tensor_name!r:.80} is not there, where the index puts it"
            )
    return tensors


def read_header(file: MappedFile, number: int = 0) -> list[TensorInfo]:
    """The tensors of one safetensors file, which is file `number` of its checkpoint.

    A dtype that is not in `tensors.DTYPES` is taken as it is, with the length that the file gives.

    Raises:
        CheckpointError: the header is cut short or malformed, or a tensor lies outside the file, over
            another one, or has a length that its shape and dtype do not give.
    """
    length = int.from_bytes(file.view[:8], "little")
    start = 8 + length
    if file.size < 8 or length > min(file.size - 8, _MAX_HEADER):
        raise CheckpointError(
            f"{file.path}: the header length is {length}, but the file has {file.size} bytes; it was cut"
            " short or is no safetensors file"
        )
    header = _parse(bytes(file.view[8:start]), f"{file.path}: the header")
    header.pop("__metadata__", None)
    tensors = [_tensor(file, name, entry, start, number) for name, entry in header.items()]
    check_extents(file.path, file.size, start, tensors)
    return tensors


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        CheckpointError: it cannot be read, or is no JSON object.
    """
    return _parse(read_small(path), str(path))


def _parse(data: bytes, what: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) != len(pairs):
            twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
            raise CheckpointError(f"{what}: the key {twice!r:.80} comes twice in one object")
        return value

    try:
        value = json.loads(data, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{what} must be a JSON object")
    return value


def _read_index(path: Path) -> Mapping[str, str]:
    weight_map = read_object(path).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: weight_map must be an object that names a file for every tensor")
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or not name.endswith(".safetensors") or Path(name).name != name:
            raise CheckpointError(
                f"{path}: the file of {tensor!r:.80} must be the name of a .safetensors file beside the"
                f" index, not {name!r:.80}"
            )
    return weight_map


def _tensor(file: MappedFile, name: str, entry: Any, start: int, number: int) -> TensorInfo:
    what = f"{file.path}: tensor {name!r:.80}"
    if not isinstance(entry, dict):
        raise CheckpointError(f"{what} must be an object, not {entry!r:.80}")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str):
        raise CheckpointError(f"{what}: dtype must be a string, not {dtype!r:.80}")
    if not _naturals(shape):
        raise CheckpointError(f"{what}: shape must be a list of integers from 0, not {shape!r:.80}")
    if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{what}: data_offsets must be [begin, end], not {offsets!r:.80}")
    begin, end = offsets
    known = DTYPES.get(dtype)
    if known is not None and known.elements * (end - begin) != prod(shape) * known.size:
        raise CheckpointError(f"{what}: {dtype} of shape {shape} does not take {end - begin} bytes")
    return TensorInfo(name, tuple(shape), dtype, end - begin, start + begin, number)


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
