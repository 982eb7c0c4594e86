"""What a checkpoint says of a tensor, and how the elements of each dtype lie in memory.

The names are those of the file formats: safetensors' own, and ggml's for block-quantised ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Final

from attrs import frozen

from .errors import CheckpointError

__all__ = ["DTYPES", "DType", "TensorInfo", "check_extents"]


@frozen
class DType:
    """`elements` values are stored together in `size` bytes; the last axis is a multiple of `elements`."""

    elements: int
    size: int

    def nbytes(self, shape: tuple[int, ...]) -> int:
        """Bytes that a tensor of this shape takes."""
        return prod(shape) // self.elements * self.size


DTYPES: Final[Mapping[str, DType]] = {
    name: DType(elements, size)
    for name, elements, size in (
        ("F64", 1, 8),
        ("F32", 1, 4),
        ("F16", 1, 2),
        ("BF16", 1, 2),
        ("F8_E4M3", 1, 1),
        ("F8_E5M2", 1, 1),
        ("F8_E8M0", 1, 1),
        ("I64", 1, 8),
        ("I32", 1, 4),
        ("I16", 1, 2),
        ("I8", 1, 1),
        ("U64", 1, 8),
        ("U32", 1, 4),
        ("U16", 1, 2),
        ("U8", 1, 1),
        ("BOOL", 1, 1),
        ("Q4_0", 32, 18),
        ("Q4_1", 32, 20),
        ("Q5_0", 32, 22),
        ("Q5_1", 32, 24),
        ("Q8_0", 32, 34),
        ("Q8_1", 32, 40),
        ("Q2_K", 256, 84),
        ("Q3_K", 256, 110),
        ("Q4_K", 256, 144),
        ("Q5_K", 256, 176),
        ("Q6_K", 256, 210),
        ("Q8_K", 256, 292),
        ("IQ1_S", 256, 50),
        ("IQ1_M", 256, 56),
        ("IQ2_XXS", 256, 66),
        ("IQ2_XS", 256, 74),
        ("IQ2_S", 256, 82),
        ("IQ3_XXS", 256, 98),
        ("IQ3_S", 256, 110),
        ("IQ4_NL", 32, 18),
        ("IQ4_XS", 256, 136),
        ("TQ1_0", 256, 54),
        ("TQ2_0", 256, 66),
        ("MXFP4", 32, 17),
        ("NVFP4", 64, 36),
    )
}
"""Every dtype whose size is known. Which of them the engine can compute with, `spec.validate` says."""


@frozen
class TensorInfo:
    """One tensor of a checkpoint.

    shape: outermost axis first, as numpy has it; a matrix is [outputs, inputs]. dtype: a name of
    `DTYPES`, or one that only the file knows. Its `nbytes` bytes begin `offset` bytes into file
    number `file` of the checkpoint.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    offset: int
    file: int = 0


def check_extents(path: Path, size: int, start: int, tensors: Iterable[TensorInfo]) -> None:
    """Check that the tensors of one file lie within [start, size) and apart from each other.

    Raises:
        CheckpointError: one does not; the message names the file and the tensor.
    """
    before, end = "the header", start
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset < end:
            raise CheckpointError(f"{path}: tensor {tensor.name!r:.80} overlaps {before}")
        before, end = f"tensor {tensor.name!r:.80}", tensor.offset + tensor.nbytes
        if end > size:
            raise CheckpointError(
                f"{path}: {before} ends at byte {end}, but the file has {size}; it was cut short or is"
                " damaged"
            )
