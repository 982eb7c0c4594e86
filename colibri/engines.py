"""Opening engines: which kinds there are, and a model file with its family into a running engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from colibri.errors import CheckpointUnknown
from colibri.family import Family

if TYPE_CHECKING:
    from colibri_engine.checkpoint import Checkpoint
    from colibri_engine.local import LocalEngine
    from colibri_engine.process import ProcessEngine
    from colibri_engine.spec import ArchSpec
    from colibri_engine.tokenizer import Tokenizer

__all__ = ["network_of", "open_command", "open_engine", "open_process"]


def open_engine(
    path: str | os.PathLike[str],
    family: Family | None = None,
    *,
    context: int | None = None,
    threads: int | None = None,
    slots: int = 1,
    kv_folder: str | os.PathLike[str] | None = None,
) -> LocalEngine:
    """Load a checkpoint, a .gguf file or a folder with config.json, into this process.

    `family` None finds the family of the checkpoint among the installed ones. `context` is the number of
    positions a slot holds, `threads` the number of compute threads; None leaves both to the engine. In
    `kv_folder` the slots outlive the engine, which is an asynchronous context manager.

    Raises:
        CheckpointUnknown: no installed family knows the checkpoint, or the family brings no network.
        colibri_engine.errors.EngineError: the checkpoint is damaged or needs what the engine lacks.
    """
    from colibri_engine.checkpoint import open_checkpoint
    from colibri_engine.local import open_local

    with open_checkpoint(path) as checkpoint:
        network = _network(checkpoint, family)
        return open_local(
            checkpoint, network, context=context, threads=threads, slots=slots, kv_folder=kv_folder
        )


async def open_process(
    path: str | os.PathLike[str],
    family: Family | None = None,
    *,
    context: int | None = None,
    threads: int | None = None,
    slots: int = 1,
    kv_folder: str | os.PathLike[str] | None = None,
    drain_seconds: float = 30.0,
) -> ProcessEngine:
    """Load a checkpoint into a process of its own, which is started again if it ends; see `open_engine`.

    `drain_seconds` is how long it has to end when it is closed. The engine is an asynchronous context
    manager and belongs to the running event loop.

    Raises:
        CheckpointUnknown: no installed family knows the checkpoint, or the family brings no network.
        colibri_engine.errors.EngineError: the checkpoint is damaged or needs what the engine lacks, or the
            process ended before it was ready.
    """
    from colibri_engine.process import ProcessEngine, ProcessSettings, worker_command

    network = await asyncio.to_thread(network_of, path, family, context=context)
    command = worker_command(
        path, network, context=context, threads=threads, slots=slots, kv_folder=kv_folder
    )
    settings = ProcessSettings(tokenizer=partial(_tokenizer_of, path), drain_seconds=drain_seconds)
    return await ProcessEngine.start(command, settings)


async def open_command(
    argv: Sequence[str],
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    context: int | None = None,
    slots: int = 1,
    drain_seconds: float = 30.0,
) -> ProcessEngine:
    """Run a program that speaks the serve line protocol as an engine; see `open_process`.

    `checkpoint` is told to the program, and its tokenizer is used here. `context` and `slots` hold for
    programs that do not announce how many positions a slot holds and how many slots there are.

    Raises:
        colibri_engine.errors.EngineError: the program cannot be run, cannot load its model, or ended before
            it was ready.
    """
    from colibri_engine.process import ProcessEngine, ProcessSettings, foreign_command

    settings = ProcessSettings(
        slots=slots,
        tokenizer=None if checkpoint is None else partial(_tokenizer_of, checkpoint),
        drain_seconds=drain_seconds,
    )
    if context is not None:
        settings = evolve(settings, context=context)
    return await ProcessEngine.start(foreign_command(argv, checkpoint=checkpoint, slots=slots), settings)


def _network(checkpoint: Checkpoint, family: Family | None) -> ArchSpec:
    """What the engine executes for a checkpoint."""
    from colibri.registry import load

    family = family or load().identify(checkpoint.path)
    network: ArchSpec | None = family.network and family.network(checkpoint.config, checkpoint.tensors)
    if network is None:
        raise CheckpointUnknown(
            f"{checkpoint.path}: family {family.id} brings no network that this engine can run; serve it"
            " with another engine"
        )
    return network


def network_of(
    path: str | os.PathLike[str], family: Family | None = None, *, context: int | None = None
) -> ArchSpec:
    """What the engine executes for a checkpoint, none of whose weights are read; see `open_engine`.

    Raises:
        CheckpointUnknown: no installed family knows the checkpoint, or the family brings no network.
        colibri_engine.errors.EngineError: the checkpoint is damaged, or its network is not made for so many
            positions.
    """
    from colibri_engine.checkpoint import open_checkpoint
    from colibri_engine.limits import check_context

    with open_checkpoint(path) as checkpoint:
        network = _network(checkpoint, family)
    check_context(context, network)
    return network


def _tokenizer_of(path: str | os.PathLike[str]) -> Tokenizer:
    from colibri_engine.checkpoint import open_checkpoint
    from colibri_engine.tokenizer import load_tokenizer

    with open_checkpoint(path) as checkpoint:
        return load_tokenizer(checkpoint)
