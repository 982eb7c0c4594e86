"""A model's files: configuration, tensors and chat template, whichever format they come in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from attrs import field, frozen

from . import gguf, safetensors
from .errors import CheckpointError
from .files import MappedFile, read_small
from .tensors import TensorInfo

__all__ = ["Checkpoint", "Label", "open_checkpoint", "read_label"]

_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 4096


@frozen(eq=False)
class Checkpoint:
    """An open checkpoint, mapped into memory; a context manager.

    config: config.json, or the key-values of a GGUF file. tensors: by name, in file order.
    chat_template: Jinja source, if the checkpoint carries one. architecture: `model_type`, or
    `general.architecture`. files: what `TensorInfo.file` counts, with `path` and `size` of each.
    """

    path: Path
    format: Literal["gguf", "safetensors"]
    architecture: str
    config: Mapping[str, Any] = field(repr=False)
    tensors: Mapping[str, TensorInfo] = field(repr=False)
    chat_template: str | None = field(repr=False)
    files: Sequence[MappedFile] = field(repr=False)

    def data(self, name: str) -> memoryview:
        """The bytes of a tensor as the file stores them, read-only and not copied.

        Raises:
            CheckpointError: there is no such tensor.
        """
        info = self.tensors.get(name)
        if info is None:
            raise CheckpointError(f"{self.path}: there is no tensor {name}")
        return self.files[info.file].view[info.offset : info.offset + info.nbytes]

    def fingerprint(self) -> str:
        """A hash that tells one model from another: headers, sizes and a sample of the weights.

        It reads little, does not depend on names or times of files, and is the same on every machine.
        """
        digest = hashlib.sha256()
        for file in self.files:
            digest.update(file.size.to_bytes(8, "little"))
        for tensor in self.tensors.values():
            digest.update(repr((tensor.name, tensor.shape, tensor.dtype, tensor.offset)).encode())
        for file in self.files:
            last = max(file.size - _SAMPLE_BYTES, 0)
            for index in range(_SAMPLES):
                at = last * index // (_SAMPLES - 1)
                digest.update(file.view[at : at + _SAMPLE_BYTES])
        return digest.hexdigest()

    def close(self) -> None:
        """Let go of the files; what `data` gave stays valid until it is dropped."""
        for file in self.files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@frozen
class Label:
    """What tells which model a checkpoint holds: see `Checkpoint`."""

    architecture: str
    chat_template: str | None = field(default=None, repr=False)


def read_label(path: str | PathLike[str]) -> Label:
    """The architecture and template of a checkpoint; a folder needs no weights for it.

    Raises:
        CheckpointError: as for `open_checkpoint`.
    """
    place = Path(fspath(path))
    try:
        if place.is_dir():
            return Label(_folder_config(place)[1], _folder_template(place))
    except OSError as error:
        raise CheckpointError(f"{place} cannot be read: {error.strerror or error}") from None
    with open_checkpoint(place) as checkpoint:
        return Label(checkpoint.architecture, checkpoint.chat_template)


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Open a .gguf file or a Hugging Face folder; only headers are read.

    Raises:
        CheckpointError: it is neither, or is damaged; the message names the file and what is wrong.
    """
    place = Path(fspath(path))
    files: list[MappedFile] = []
    try:
        if place.is_dir():
            return _open_folder(place, files)
        if place.suffix.lower() == ".gguf":
            return _open_gguf(place, files)
    except BaseException as error:
        for file in files:
            file.close()
        if isinstance(error, OSError):
            raise CheckpointError(f"{place} cannot be read: {error.strerror or error}") from None
        raise
    if not place.exists():
        raise CheckpointError(f"{place} does not exist; expected a .gguf file or a model folder")
    raise CheckpointError(f"{place} is neither a .gguf file nor a model folder")


def _open_gguf(path: Path, files: list[MappedFile]) -> Checkpoint:
    files.append(MappedFile(path))
    config, tensors = gguf.read_header(files[0])
    architecture = _text(config.get("general.architecture"), path, "general.architecture")
    if architecture is None:
        raise CheckpointError(f"{path}: general.architecture is missing")
    template = _text(config.get("tokenizer.chat_template"), path, "tokenizer.chat_template")
    return Checkpoint(path, "gguf", architecture, config, tensors, template, files)


def _open_folder(path: Path, files: list[MappedFile]) -> Checkpoint:
    config, architecture = _folder_config(path)
    tensors = safetensors.read_folder(path, files)
    return Checkpoint(path, "safetensors", architecture, config, tensors, _folder_template(path), files)


def _folder_config(path: Path) -> tuple[Mapping[str, Any], str]:
    """config.json and the model_type in it."""
    config = safetensors.read_object(path / "config.json")
    architecture = _text(config.get("model_type"), path / "config.json", "model_type")
    if architecture is None:
        raise CheckpointError(f"{path / 'config.json'}: model_type is missing")
    return config, architecture


def _folder_template(path: Path) -> str | None:
    """chat_template.jinja, or the default template of tokenizer_config.json."""
    file = path / "chat_template.jinja"
    if file.exists():
        try:
            return read_small(file).decode()
        except UnicodeDecodeError:
            raise CheckpointError(f"{file} is not UTF-8") from None
    file = path / "tokenizer_config.json"
    if not file.exists():
        return None
    template = safetensors.read_object(file).get("chat_template")
    if isinstance(template, list):
        named = (item for item in template if isinstance(item, dict) and item.get("name") == "default")
        template = next(named, {}).get("template")
    return _text(template, file, "chat_template")


def _text(value: Any, path: Path, key: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise CheckpointError(f"{path}: {key} must be a string, not {value!r:.80}")
    return value
