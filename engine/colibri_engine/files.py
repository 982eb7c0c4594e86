"""A file of a checkpoint, mapped into memory read-only."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path

from .errors import CheckpointError

__all__ = ["MappedFile"]


class MappedFile:
    """`view` is the whole file, zero copy; parts of it stay valid after `close`, until dropped."""

    def __init__(self, path: Path) -> None:
        """Map the file.

        Raises:
            CheckpointError: it cannot be read, is no regular file, or is empty.
        """
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise CheckpointError(f"{path} is empty; download it again") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None
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
