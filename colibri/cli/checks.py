"""What `colibri doctor` looks at: each check tells what it found, and how to repair what would fail."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from attrs import frozen

from colibri.cli.common import DEFAULT_MODEL, model_on_disk
from colibri.cli.output import size_words
from colibri.cli.serve import opener
from colibri.errors import ColibriError, DuplicateClaim
from colibri.models import CACHE, cache_folder, cached, known_models
from colibri.registry import Registry, load
from colibri.server import pidfile
from colibri.server.run import bind
from colibri.server.security import Keys, check_bind
from colibri.server.settings import Settings, SettingsError
from colibri_engine.checkpoint import Checkpoint, open_checkpoint
from colibri_engine.constraint import available
from colibri_engine.errors import EngineError

__all__ = ["Finding", "State", "examine"]

State: TypeAlias = Literal["ok", "note", "fails"]

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_INSTALL = "install the package again, with a C compiler: pip install --force-reinstall colibri-llm"


@frozen
class Finding:
    """One check: `note` is worth knowing, `fails` keeps something from working; `repair` says what to do."""

    name: str
    state: State
    found: str
    repair: str = ""


def examine(settings: Settings, disabled: list[str]) -> Iterator[Finding]:
    """Check this machine and what is installed, for a server with these settings."""
    yield _machine()
    yield _engine()
    yield _constraint()
    yield _memory()
    yield _cache(settings.model)
    registry, findings = _plugins(disabled)
    yield from findings
    yield from _model(settings, registry)
    yield _keys(settings)
    yield _port(settings)


def _machine() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    system = f"{platform.system()} {platform.machine()}"
    return Finding("machine", "ok", f"{system}, {cores} cores, Python {platform.python_version()}")


def _engine() -> Finding:
    """The compiled core, and which of its kernels this CPU runs."""
    try:
        from colibri_engine import local  # noqa: F401  all of the compiled modules
        from colibri_engine._kernels import cpu_level, cpu_levels
    except ImportError as error:
        return Finding("engine", "fails", str(error), _INSTALL)
    try:
        level = cpu_level()
    except EngineError as error:
        return Finding(
            "engine", "fails", error.message, "change or unset the environment variable COLIBRI_CPU"
        )
    if level == "base":
        repair = "unset COLIBRI_CPU" if len(cpu_levels()) > 1 else "use a CPU that has AVX2"
        return Finding("engine", "note", "portable kernels, which are slow", repair)
    return Finding("engine", "ok", f"kernels for {level}")


def _constraint() -> Finding:
    """Whether replies can be held to a schema while they are written."""
    if available():
        return Finding("constraint", "ok", "llguidance holds replies to a schema while they are written")
    found = "llguidance is not installed: replies are held to a schema only after they are written"
    return Finding("constraint", "note", found, "pip install 'colibri-llm[constrain]'")


def _memory() -> Finding:
    free = _available_memory()
    if free is None:
        return Finding("memory", "note", "how much is free cannot be told on this system")
    return Finding("memory", "ok", f"{size_words(free)} available")


def _available_memory() -> int | None:
    """Bytes that this process may still take, by the system and by its control group; None if unknown."""
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(free, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no control group, or one without a limit
        return free


def _cache(model: str | None) -> Finding:
    """Whether models can be kept; one that is there already needs no room."""
    folder = cache_folder()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        return Finding("cache", "fails", f"{there} cannot be written", f"name another folder in {CACHE}")
    wanted = known_models().get(model or DEFAULT_MODEL)
    free = shutil.disk_usage(there).free
    if wanted is not None and cached(wanted) is None:
        needed = 2 * wanted.wheel_size + wanted.size
        if free < needed:
            repair = f"free {size_words(needed)}, or name another folder in {CACHE}"
            return Finding("cache", "fails", f"{folder} has {size_words(free)} free", repair)
    return Finding("cache", "ok", f"{folder}, {size_words(free)} free")


def _plugins(disabled: list[str]) -> tuple[Registry | None, list[Finding]]:
    """The installed families, if they can be told, and what is wrong with plugins."""
    try:
        registry = load(disabled=disabled)
    except ColibriError as error:
        repair = "uninstall one of them" if isinstance(error, DuplicateClaim) else "install it, or unset that"
        return None, [Finding("plugins", "fails", error.message, repair)]
    findings = [
        Finding(
            f"plugin {info.distribution}",
            "fails",
            info.error,
            f"update it, or leave it out with --disable-plugin {info.distribution}",
        )
        for info in registry.plugins()
        if info.error is not None
    ]
    names = [info.distribution for info in registry.plugins() if info.error is None and not info.builtin]
    return registry, [*findings, Finding("plugins", "ok", ", ".join(names) or "none beside what is built in")]


def _model(settings: Settings, registry: Registry | None) -> Iterator[Finding]:
    """The checkpoint, its family, and whether the engine can run it here."""
    model = settings.model
    if settings.engine_cmd is not None and model is None:
        yield Finding("model", "ok", "what the engine brings")
        if registry is not None:
            yield from _family(None, settings, registry)
        return
    try:
        path = model_on_disk(model)
    except ColibriError as error:
        yield Finding("model", "fails", error.message, "name another with --model")
        return
    if path is None:
        name = model or DEFAULT_MODEL
        yield Finding(
            "model", "note", f"{name} is not fetched yet", f"it will be on first use: colibri pull {name}"
        )
        return
    try:
        with open_checkpoint(path) as checkpoint:
            yield _size(checkpoint)
            if registry is not None:
                yield from _family(checkpoint, settings, registry)
    except (EngineError, OSError) as error:
        yield Finding("model", "fails", getattr(error, "message", str(error)), "fetch or copy it again")


def _size(checkpoint: Checkpoint) -> Finding:
    size, free = sum(file.size for file in checkpoint.files), _available_memory()
    found = f"{checkpoint.path}: {checkpoint.architecture}, {size_words(size)}"
    if free is not None and size > free:
        repair = "stop other programs, or use a smaller model or a coarser quantisation of it"
        return Finding(
            "model", "fails", f"{found}, more than the {size_words(free)} that are available", repair
        )
    return Finding("model", "ok", found)


def _family(checkpoint: Checkpoint | None, settings: Settings, registry: Registry) -> Iterator[Finding]:
    """The family of the settings or of the checkpoint, and whether an engine can run it."""
    path = None if checkpoint is None else checkpoint.path
    try:
        if settings.family is not None:
            family = registry[settings.family]
        elif path is not None:
            family = registry.identify(path)
        else:
            raise SettingsError("`engine_cmd` needs `model` or `family`, to know how prompts are written")
    except ColibriError as error:
        yield Finding("family", "fails", error.message, "install the plugin that knows it, or name --family")
        return
    served = settings.model_id or family.served_as
    found = f"{family.title} ({family.id}), from {registry.distribution(family.id)}, served as {served}"
    yield Finding("family", "ok", found)
    try:
        opener(settings, path, family)
    except (ColibriError, EngineError) as error:
        repair = "serve it with another engine; prompts and replies work with any"
        yield Finding("network", "fails", error.message, repair)
    else:
        ran_by = "this engine" if settings.engine_cmd is None else settings.engine_cmd
        yield Finding("network", "ok", f"{family.title} can be run by {ran_by}")


def _keys(settings: Settings) -> Finding:
    """Whether only those may use the model who should."""
    try:
        keys = Keys.load(settings)
        check_bind(settings, keys)
    except SettingsError as error:
        return Finding("key", "fails", error.message, "change that setting")
    return Finding("key", "ok", "needed" if keys.required else f"none; reachable at {settings.host}")


def _port(settings: Settings) -> Finding:
    """Whether a server could listen; one of ours that does is told."""
    port = settings.port
    try:
        bind(settings).close()
    except SettingsError as error:
        try:
            server = pidfile.running(port)
        except pidfile.NotRunning:
            return Finding(
                "port", "fails", error.message, "choose another with --port, or end what listens there"
            )
        found = f"{port} is served by process {server.pid} of this user"
        return Finding("port", "note", found, f"to end it: colibri stop --port {port}")
    return Finding("port", "ok", f"{port} is free" if port else "a free one will be taken")
