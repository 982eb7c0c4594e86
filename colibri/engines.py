"""Opening engines: which kinds there are, and a model file with its family into a running engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from colibri.errors import CheckpointUnknown
from colibri.family import Family

if TYPE_CHECKING:
    from colibri_engine.api import Engine

__all__ = ["open_engine"]


def open_engine(
    path: str | os.PathLike[str],
    family: Family | None = None,
    *,
    context: int | None = None,
    threads: int | None = None,
    slots: int = 1,
) -> Engine:
    """Load a checkpoint, a .gguf file or a folder with config.json, into this process.

    `family` None finds the family of the checkpoint among the installed ones. `context` is the number of
    positions a slot holds, `threads` the number of compute threads; None leaves both to the engine.

    Raises:
        CheckpointUnknown: no installed family knows the checkpoint, or the family brings no network.
        colibri_engine.errors.EngineError: the checkpoint is damaged or needs what the engine lacks.
    """
    from colibri_engine.checkpoint import open_checkpoint
    from colibri_engine.local import open_local

    from colibri.registry import load

    if family is None:
        family = load().identify(path)
    with open_checkpoint(path) as checkpoint:
        network = family.network and family.network(checkpoint.config, checkpoint.tensors)
        if network is None:
            raise CheckpointUnknown(
                f"{os.fspath(path)}: family {family.id} brings no network that this engine can run; serve it"
                " with another engine"
            )
        return open_local(checkpoint, network, context=context, threads=threads, slots=slots)
