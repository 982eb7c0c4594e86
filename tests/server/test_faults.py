"""Clients that go away at any moment, arrive in crumbs, or push; clocks that jump."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import time
from contextlib import suppress

from .conftest import eventually
from .scripted import ScriptedEngine, say

ABORTS = 10_000
AT_ONCE = 20


def request_bytes(**fields):
    data = json.dumps({"model": "qwen36", "messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def reset(writer):
    """Close with a reset instead of an end of stream."""
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def abort(live, dice):
    """One request that is given up at a random moment in a random way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    data = request_bytes(stream=dice.random() < 0.7)
    sent = dice.choice([0, 10, len(data) - 5, len(data), len(data), len(data)])
    writer.write(data[:sent])
    if sent == len(data):
        wait = dice.choice([0, 1, 200, 500])
        with suppress(TimeoutError, ConnectionError):
            await asyncio.wait_for(reader.read(wait), 0.02) if wait else await asyncio.sleep(0)
    if dice.random() < 0.4:
        reset(writer)
    elif dice.random() < 0.3 and writer.can_write_eof():
        writer.write_eof()
    writer.close()


async def test_aborted_requests_leave_nothing_behind(serve):
    engine = ScriptedEngine(say("a", 0.001, "b", 0.004, *["c"] * 30))
    dice = random.Random(7)
    async with serve(engine, kv_slots=4, max_queue=64) as live:
        assert (await live.chat())[0] == 200
        tasks = len(asyncio.all_tasks())
        for _ in range(ABORTS // AT_ONCE):
            await asyncio.gather(*(abort(live, dice) for _ in range(AT_ONCE)))
        await eventually(lambda: len(live.app.http.connections) <= 1, 30)
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks, 30)
        counts = live.app.scheduler.counters()
        assert (counts.active, counts.queued, engine.running) == (0, 0, 0)
        assert counts.failed == counts.rejected == counts.timed_out == 0
        assert len(engine.jobs) <= counts.admitted <= counts.completed + counts.cancelled
        assert len(engine.jobs) == engine.finished + engine.cancelled
        assert engine.cancelled > ABORTS // 20
        assert (await live.chat())[0] == 200


async def test_a_request_in_crumbs_is_answered(serve):
    async with serve(ScriptedEngine(say("a"))) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        for byte in request_bytes():
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 5)
        writer.close()


async def test_wall_clock_jumps_change_nothing_but_the_date(serve, monkeypatch):
    gate = asyncio.Event()
    async with serve(ScriptedEngine(say(gate, "a"))) as live:
        now = time.time()
        running = asyncio.create_task(live.chat())
        await eventually(lambda: live.engine.running == 1)
        waiting = asyncio.create_task(live.chat())
        await eventually(lambda: live.app.scheduler.counters().queued == 1)
        for jump in (-1e8, 1e8):
            monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
            await asyncio.sleep(0.01)
        gate.set()
        assert (await running)[0] == (await waiting)[0] == 200
        _, body, headers = await live.chat()
        assert body["created"] == int(now + 1e8)
        assert int(headers["x-colibri-queue-wait-ms"]) < 10_000


async def test_many_pipelined_requests_are_answered_in_order(serve):
    async with serve(ScriptedEngine(say("a"))) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(request_bytes() * 50)
        for _ in range(50):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert b" 200 " in head.splitlines()[0]
            size = next(line for line in head.splitlines() if line.lower().startswith(b"content-length"))
            await reader.readexactly(int(size.split()[1]))
        writer.close()
