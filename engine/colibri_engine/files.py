"""A file of a checkpoint, mapped into memory read-only."""

from __future__ import annotations

import contextlib
import mmap
import stat
from pathlib import Path
from typing import Final

from .errors import CheckpointError

__all__ = ["MappedFile", "read_small"]

_MAX_SMALL: Final = 100_000_000


def read_small(path: Path) -> bytes:
    """The whole content of a configuration file.

    Raises:
        CheckpointError: it cannot be read, is no regular file, or is larger than any such file is.
    """
    if _size(path) > _MAX_SMALL:
        raise CheckpointError(f"{path} is larger than {_MAX_SMALL} bytes; this cannot be right")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None


def _size(path: Path) -> int:
    """The length of a regular file; opening anything else, such as a pipe, could block."""
    try:
        status = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path} is not a regular file")
    return status.st_size


class MappedFile:
    """`view` is the whole file, zero copy; parts of it stay valid after `close`, until dropped."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            CheckpointError: it cannot be read, is no regular file, or is empty.
        """
        self.path = path
        if _size(path) == 0:
            raise CheckpointError(f"{path} is empty; download it again")
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from None
        self.view = memoryview(self._map)

    @property
    def size(self) -> int:
        """The length in bytes."""
        return len(self._map)

    def close(self) -> None:
        """Let go of the file; the mapping itself ends with the last view of it."""
        self.view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
