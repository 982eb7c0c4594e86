"""Slots on disk: what they remember, kept over restarts of the engine.

A slot's file is, in this machine's byte order,

    magic 8 bytes | version u32 | tokens u32 | identity 32 bytes | token ids i32 each | blocks | sha256

where the identity names the model, its description and the CPU level, on which rows depend to the last bit,
and the blocks are those of `State.blocks`. A file is written beside the old one and then takes its place.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import struct
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Final

from .errors import EngineError
from .slots import Slot, Slots

__all__ = ["SlotFiles"]

_LOG: Final = logging.getLogger(__name__)
_HEAD: Final = struct.Struct("=8sII32s")
_MAGIC: Final = b"colibrKV"
_VERSION: Final = 1
_DIGEST: Final = hashlib.sha256().digest_size


class SlotFiles:
    """The files of an engine's slots in a folder, of which one engine at a time can be the owner.

    Whatever goes wrong with a file is a warning in the log: the engine then does without it.
    """

    def __init__(self, folder: Path, parts: Iterable[str]) -> None:
        """Take possession of the folder, which is made if need be.

        parts: everything that the rows of given tokens depend on.

        Raises:
            EngineError: the folder cannot be used.
        """
        self._identity = hashlib.sha256("\0".join([str(_VERSION), *parts]).encode()).digest()
        self._folder = folder
        self._saved: dict[int, list[int]] = {}
        self._lock: int | None = None
        name = self._identity.hex()[:16]
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            _LOG.warning("%s is in use by another engine with this model; slots are not kept there", folder)
        except OSError as error:
            self.close()
            raise EngineError(f"{folder}: slots cannot be kept there: {error.strerror or error}") from None

    def path(self, number: int) -> Path:
        """The file of the slot of this number."""
        return self._folder / f"{self._identity.hex()[:16]}-{number}.kv"

    def restore(self, slots: Slots, context: int) -> None:
        """Let every slot remember what its file holds, if it is whole and of this model."""
        for number in range(slots.count if self._lock is not None else 0):
            path = self.path(number)
            try:
                with path.open("rb") as file:
                    self._read(file, slots.at(number), context)
            except FileNotFoundError:
                continue
            except (OSError, ValueError, MemoryError) as error:
                _LOG.warning("%s is ignored: %s", path, error)

    def save(self, slots: Slots, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Write the files of the slots that remember something else; `go_on` is asked before each.

        Returns:
            Whether that was not stopped. If a file cannot be written, the old one stays.
        """
        for slot in slots if self._lock is not None else ():
            if slot.history and slot.history != self._saved.get(slot.number):
                if not go_on():
                    return False
                self._save(slot)
        return True

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _save(self, slot: Slot) -> None:
        path = self.path(slot.number)
        part = path.with_suffix(".part")
        self._saved[slot.number] = list(slot.history)
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                self._write(file, slot)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            self._sync_folder()
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            _LOG.warning("%s could not be written: %s; the slot is not kept", path, error.strerror or error)

    def _write(self, file: BufferedWriter, slot: Slot) -> None:
        tokens = array("i", slot.history)
        digest = hashlib.sha256()
        head = memoryview(_HEAD.pack(_MAGIC, _VERSION, len(tokens), self._identity))
        for block in (head, memoryview(tokens).cast("B"), *slot.state.blocks(len(tokens))):
            digest.update(block)
            file.write(block)
        file.write(digest.digest())

    def _read(self, file: BufferedReader, slot: Slot, context: int) -> None:
        """Fill a slot that remembers nothing.

        Raises:
            ValueError: the file is not what this engine wrote for this model.
        """
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise ValueError("it is cut short")
        magic, version, count, identity = _HEAD.unpack(head)
        if magic != _MAGIC or version != _VERSION:
            raise ValueError("it is no slot's file of this version")
        if identity != self._identity:
            raise ValueError("it is of another model")
        if not 0 < count <= context:
            raise ValueError(f"it has {count} tokens, and a slot holds {context}")
        tokens = array("i", bytes(4 * count))
        blocks = [memoryview(tokens).cast("B"), *slot.state.blocks(count)]
        if os.fstat(file.fileno()).st_size != _HEAD.size + sum(map(len, blocks)) + _DIGEST:
            raise ValueError("its size is wrong")
        digest = hashlib.sha256(head)
        for block in blocks:
            if file.readinto(block) != len(block):
                raise ValueError("it is cut short")
            digest.update(block)
        if file.read(_DIGEST) != digest.digest():
            raise ValueError("its checksum is wrong")
        slot.history[:] = tokens
        self._saved[slot.number] = list(tokens)

    def _sync_folder(self) -> None:
        """Let the new name outlive a loss of power."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
