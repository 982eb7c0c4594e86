"""A record of each running server, so that `colibri stop` finds it.

The record is locked as long as its server lives, so a stale one is never mistaken for a server.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from attrs import asdict, frozen

from colibri.errors import ColibriError

__all__ = ["NotRunning", "Running", "record", "running", "stop"]

_LOG = logging.getLogger("colibri.server")
_POLL_SECONDS = 0.05
_LAST_SECONDS = 5.0


class NotRunning(ColibriError):
    """No server of this user runs on the port."""

    code = "not_running"


@frozen
class Running:
    """A server: its process, its port, and the seconds that it gives requests to finish."""

    pid: int
    port: int
    drain_limit: float


def _path(port: int) -> Path:
    from platformdirs import user_state_path

    return user_state_path("colibri") / f"serve-{port}.json"


@contextmanager
def record(server: Running) -> Iterator[None]:
    """Keep the record of this process while the body runs; without a place for it, do without."""
    path = _path(server.port)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        _LOG.warning("%s cannot be written (%s); `colibri stop` will not find this server", path, error)
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # only a server that is just ending can hold it
        file.truncate(0)
        json.dump(asdict(server), file)
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running(port: int) -> Running:
    """The server that listens on `port`.

    Raises:
        NotRunning: there is none, or it belongs to another user.
    """
    try:
        with _path(port).open("r+", encoding="utf-8") as file:
            if not _held(file):
                raise NotRunning(f"the server that was on port {port} is gone")
            return Running(**json.load(file))
    except (OSError, ValueError, TypeError):
        raise NotRunning(f"no server of this user runs on port {port}; name its port with --port") from None


def _held(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def stop(server: Running) -> None:
    """End a server: ask it, wait as long as it gives its requests, then insist."""
    insist = (
        (signal.SIGTERM, server.drain_limit + _LAST_SECONDS),
        (signal.SIGTERM, 1.0),
        (signal.SIGKILL, 1.0),
    )
    for kind, patience in insist:
        try:
            os.kill(server.pid, kind)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            try:
                running(server.port)
            except NotRunning:
                return
