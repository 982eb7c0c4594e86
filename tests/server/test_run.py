"""The server as a process: binding, loading, signals, the record for `colibri stop`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from colibri.server import pidfile
from colibri.server.pidfile import NotRunning, Running
from colibri.server.run import bind
from colibri.server.settings import SettingsError, load_settings

PROCESS = Path(__file__).with_name("process.py")
BODY = {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
async def launch(tmp_path, monkeypatch):
    """`await launch(**told)` starts a server process whose state folder is the test's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    started = []

    async def start(**told):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROCESS),
            json.dumps({"flags": {}, **told}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def url_of(process):
    line = await asyncio.wait_for(process.stdout.readline(), 30)
    assert line, (await process.stderr.read()).decode()
    return line.decode().strip()


async def scheduler_shows(http, **numbers):
    """Wait until /health tells these numbers."""
    async with asyncio.timeout(10):
        while True:
            async with http.get("/health") as answer:
                told = (await answer.json())["scheduler"]
            if all(told[name] == number for name, number in numbers.items()):
                return
            await asyncio.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_sigterm_finishes_what_runs_and_admits_nothing(launch):
    process = await launch(words=["one", "two"], pause=1.0, flags={"access_log": True})
    url = await url_of(process)
    async with aiohttp.ClientSession(url) as http:
        running = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
        await scheduler_shows(http, active=1)
        waiting = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
        await scheduler_shows(http, active=1, queued=1)
        process.terminate()
        async with await waiting as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (503, "scheduler_closed")
        async with await running as answer:
            assert (await answer.json())["choices"][0]["message"]["content"] == "onetwo"
    assert await asyncio.wait_for(process.wait(), 10) == 0
    lines = [json.loads(line) for line in (await process.stderr.read()).decode().splitlines()]
    assert {line["status"] for line in lines} == {200, 503}
    assert all("hi" not in line.values() for line in lines)


async def test_the_drain_limit_ends_what_runs_and_says_so(launch):
    process = await launch(words=["x"] * 1000, pause=0.05, flags={"drain_limit": 0.2, "kv_slots": 2})
    url = await url_of(process)
    async with aiohttp.ClientSession(url) as http:
        whole = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
        async with http.post("/v1/chat/completions", json={**BODY, "stream": True}) as answer:
            await scheduler_shows(http, active=2)
            process.terminate()
            *frames, last, end = (await answer.text()).split("\n\n")
        assert all("content" in frame for frame in frames)
        assert end == ""
        async with await whole as answer:
            assert (answer.status, "Retry-After" in answer.headers) == (503, True)
            told = await answer.json()
        assert json.loads(last.removeprefix("data: ")) == told
        assert told["error"]["code"] == "scheduler_closed"
        assert "shut down" in told["error"]["message"]
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert "Traceback" not in (await process.stderr.read()).decode()


async def test_a_second_signal_ends_at_once(launch):
    process = await launch(words=["x"] * 1000, pause=0.05)
    url = await url_of(process)
    stream = {**BODY, "stream": True}
    async with aiohttp.ClientSession(url) as http, http.post("/v1/chat/completions", json=stream) as answer:
        await answer.content.readline()
        process.terminate()
        await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 5) == 128 + signal.SIGINT


async def test_the_port_answers_while_the_model_loads(launch):
    port = free_port()
    process = await launch(load=1.0, flags={"port": port})
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http:
        for _ in range(500):
            try:
                async with http.get("/health") as answer:
                    assert (answer.status, await answer.json()) == (503, {"status": "loading"})
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.02)
        await url_of(process)
        async with http.get("/health") as answer:
            assert answer.status == 200
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_signal_while_loading_ends(launch):
    port = free_port()
    process = await launch(load=60.0, flags={"port": port})
    for _ in range(500):
        try:
            pidfile.running(port)
            break
        except NotRunning:
            await asyncio.sleep(0.02)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_stop_finds_the_server_by_its_port(launch):
    process = await launch()
    port = int((await url_of(process)).rpartition(":")[2])
    found = pidfile.running(port)
    assert (found.pid, found.port) == (process.pid, port)
    ending = asyncio.create_task(asyncio.to_thread(pidfile.stop, found))
    assert await asyncio.wait_for(process.wait(), 10) == 0
    await asyncio.wait_for(ending, 10)
    with pytest.raises(NotRunning):
        pidfile.running(port)


def test_a_stale_record_is_no_server(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pidfile.record(Running(os.getpid(), 1, 1.0)):
        assert pidfile.running(1).pid == os.getpid()
        (record,) = (tmp_path / "colibri").iterdir()
        text = record.read_text()
    record.write_text(text)
    with pytest.raises(NotRunning, match="gone"):
        pidfile.running(1)
    record.write_text("{")
    with pytest.raises(NotRunning):
        pidfile.running(1)


def test_no_place_for_the_record_is_only_a_warning(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pidfile.record(Running(os.getpid(), 1, 1.0)):
        pass
    assert "cannot be written" in caplog.text


def test_addresses_that_cannot_be_bound():
    with bind(load_settings(flags={"port": 0})) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"`port` {port} on 127.0.0.1 is in use"):
            bind(load_settings(flags={"port": port}))
    with pytest.raises(SettingsError, match="cannot be listened on"):
        bind(load_settings(flags={"host": "192.0.2.1"}))
    for host in ("no.such.host.invalid", "a..b", "a" * 70, "127.0.0.1:80"):
        with pytest.raises(SettingsError, match=f"`host` {re.escape(host)} is no address of this machine"):
            bind(load_settings(flags={"host": host}))
