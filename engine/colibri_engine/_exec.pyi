from collections.abc import Mapping, Sequence
from typing import Protocol

from .slots import State as SlotState
from .spec import ArchSpec
from .tensors import TensorInfo

class Source(Protocol):
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    def data(self, name: str) -> memoryview: ...

class State:
    def copy_prefix(self, other: SlotState, positions: int) -> None: ...

class Executor:
    def __init__(
        self,
        spec: ArchSpec,
        source: Source,
        *,
        context: int,
        threads: int = 1,
        max_rows: int = 128,
        max_wanted: int = 32,
    ) -> None: ...
    @property
    def vocab(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def max_rows(self) -> int: ...
    @property
    def max_wanted(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    def new_state(self) -> State: ...
    def cancel(self, cancelled: bool = True) -> None: ...
    def close(self) -> None: ...
    def run(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        states: Sequence[SlotState],
        wanted: Sequence[int],
    ) -> list[memoryview[float]] | None: ...
