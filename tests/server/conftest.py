"""A server on a free port in front of a scripted engine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager
from functools import cache

import aiohttp
import pytest
from attrs import define

import colibri
from colibri.server.app import App
from colibri.server.routes import ROUTES
from colibri.server.served import Served, with_settings
from colibri.server.settings import load_settings

from .scripted import ScriptedEngine


@cache
def family(name: str) -> colibri.Family:
    return colibri.load()[name]


async def eventually(condition, seconds=5.0):
    """Wait until `condition()` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


@define
class Live:
    """A running server, a client session for it, and its insides."""

    app: App
    engine: ScriptedEngine
    http: aiohttp.ClientSession
    url: str
    port: int

    async def json(self, method: str, path: str, **options):
        async with self.http.request(method, path, **options) as answer:
            return answer.status, await answer.json(), answer.headers

    async def chat(self, content="hi", **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"model": self.app.served.id, "messages": messages, **fields}
        return await self.json("POST", "/v1/chat/completions", json=body)

    async def frames(self, content="hi", **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"model": self.app.served.id, "messages": messages, "stream": True, **fields}
        async with self.http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return (await answer.text()).split("\n\n")[:-1]


@asynccontextmanager
async def running(engine=None, *, family_name="qwen36", keepalive=10.0, loaded=True, **flags):
    engine = engine or ScriptedEngine()
    app = App(load_settings(flags={"access_log": False, "model_id": family_name, **flags}), ROUTES, keepalive)
    if loaded:
        app.serve(Served(with_settings(family(family_name), app.settings), engine, app.settings))
    server = await asyncio.get_running_loop().create_server(app.http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession(url) as http:
            yield Live(app, engine, http, url, port)
    finally:
        server.close()
        await app.shutdown(0)


@pytest.fixture
def serve():
    """`async with serve(engine, **settings) as live` runs a server."""
    return running


@contextmanager
def process_with_model(path, state, *flags, **environment):
    """The address of `colibri serve` with the model at `path`, under the id "smollm2"."""
    command = [sys.executable, "-m", "colibri", "serve", "--model", path, "--model-id", "smollm2"]
    with (
        (state / "log").open("w+") as log,
        subprocess.Popen(
            [*command, "--port", "0", "--no-access-log", *flags],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(state), **environment},
        ) as server,
    ):
        try:
            place = server.stdout.readline()
            assert place, (state / "log").read_text()
            yield place.split()[-1].removesuffix("/v1")
        finally:
            server.kill()
