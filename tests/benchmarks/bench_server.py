"""The server in front of an engine that has every token ready: chunks a second, CPU a chunk, memory.

    python tests/benchmarks/bench_server.py [chunks|memory|prompt]

Prints numbers; asserts nothing. The server runs in a process of its own, pinned to one core.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import selectors
import socket
import sys
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

CLIENTS = 32
TOKENS = 2000


def server(ready, tokens, flags):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    async def main():
        from tests.server.conftest import running
        from tests.server.scripted import ScriptedEngine

        async with running(ScriptedEngine(lambda job: [" token"] * tokens), **flags) as live:
            ready.send(live.port)
            await asyncio.Event().wait()

    asyncio.run(main())


def start(tokens=TOKENS, **flags):
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=server, args=(there, tokens, flags), daemon=True)
    process.start()
    return process, psutil.Process(process.pid), here.recv()


def request(path="/v1/chat/completions", connection="close", **fields):
    body = {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100_000, **fields}
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def stream_all(port, clients):
    """Bytes and `data:` frames of this many streams read side by side."""
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request(stream=True))
        selector.register(connection, selectors.EVENT_READ)
    frames = left = clients
    frames = 0
    while left:
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 18)
            frames += data.count(b"data: ")
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
                left -= 1
    return frames


def cpu(process):
    times = process.cpu_times()
    return times.user + times.system


def chunks():
    process, measured, port = start(kv_slots=16, max_queue=64)
    stream_all(port, 4)
    for _ in range(3):
        before, began = cpu(measured), time.perf_counter()
        frames = stream_all(port, CLIENTS)
        seconds, used = time.perf_counter() - began, cpu(measured) - before
        print(f"{CLIENTS} clients: {frames / seconds:,.0f} chunks/s, {1e6 * used / frames:.1f} us of CPU each")
    process.terminate()


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    chosen = sys.argv[1:] or ["chunks"]
    for name in chosen:
        {"chunks": chunks}[name]()
