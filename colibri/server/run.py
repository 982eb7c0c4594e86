"""Running the server as a process: the port first, then the model, then requests until a signal."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from colibri.family import Family
from colibri.server.app import App
from colibri.server.jobs import warm
from colibri.server.pidfile import Running, record
from colibri.server.routes import ROUTES
from colibri.server.security import Keys, check_bind
from colibri.server.served import Served, with_settings
from colibri.server.settings import Settings, SettingsError
from colibri_engine.api import Engine
from colibri_engine.child import kill_children

__all__ = ["bind", "listen", "run_server"]

_COLLECTIONS = 2000, 20, 100
_BACKLOG = 1024


def run_server(
    settings: Settings,
    family: Family,
    open_engine: Callable[[], Awaitable[Engine]],
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until SIGTERM or SIGINT; a second signal ends the process and its engine at once.

    The port is bound before `open_engine` is called; until it returns, /health answers 503. `ready` is
    told the server's URL once requests are answered.

    Raises:
        SettingsError: the address cannot be listened on or is public without a key.
        EngineError: the model cannot be loaded.
    """
    for name in ("colibri", "colibri_engine"):
        logging.getLogger(name).setLevel(logging.INFO)
    asyncio.run(_run(settings, family, open_engine, ready))


def listen(settings: Settings) -> socket.socket:
    """The listening socket, if the server may be reached by those who can reach it.

    Raises:
        SettingsError: the address cannot be listened on or is public without a key, or there are no keys
            where the settings say.
    """
    check_bind(settings, Keys.load(settings))
    return bind(settings)


def bind(settings: Settings) -> socket.socket:
    """The listening socket of the settings' host and port.

    Raises:
        SettingsError: the port is taken, or the address is not this machine's.
    """
    host, port = settings.host, settings.port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no host name is like this"
        raise SettingsError(f"`host` {host} is no address of this machine ({reason})") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(f"`port` {port} on {host} is in use; choose another with --port") from None
        raise SettingsError(f"{host}:{port} cannot be listened on ({error.strerror})") from None
    return listener


async def _run(
    settings: Settings,
    family: Family,
    open_engine: Callable[[], Awaitable[Engine]],
    ready: Callable[[str], None],
) -> None:
    listener = listen(settings)
    app = App(settings, ROUTES)
    port = listener.getsockname()[1]
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _signalled, ending, number)
    with record(Running(os.getpid(), port, settings.drain_limit)):
        server = await loop.create_server(app.http, sock=listener, backlog=_BACKLOG)
        try:
            await _serve(app, family, open_engine, ending, lambda: ready(_url(settings.host, port)))
        finally:
            server.close()
            await app.shutdown(settings.drain_limit)


async def _serve(
    app: App,
    family: Family,
    open_engine: Callable[[], Awaitable[Engine]],
    ending: asyncio.Event,
    ready: Callable[[], None],
) -> None:
    """Load the model, answer until the end is asked for, and close the engine after the last request."""
    end = asyncio.create_task(ending.wait())
    loading = asyncio.ensure_future(open_engine())
    await asyncio.wait({end, loading}, return_when=asyncio.FIRST_COMPLETED)
    if not loading.done():
        loading.cancel()
        with suppress(asyncio.CancelledError):
            await loading
        return
    engine = loading.result()
    try:
        served = Served(with_settings(family, app.settings), engine, app.settings)
        await asyncio.to_thread(warm, served)
        gc.collect()
        # What is loaded by now stays, and a large body is many objects; walking over them holds up the loop.
        gc.freeze()
        gc.set_threshold(*_COLLECTIONS)
        app.serve(served)
        ready()
        await end
        await app.shutdown(app.settings.drain_limit)
    finally:
        end.cancel()
        await engine.close()


def _signalled(ending: asyncio.Event, number: int) -> None:
    if ending.is_set():
        kill_children()
        os._exit(128 + number)
    ending.set()


def _url(host: str, port: int) -> str:
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
