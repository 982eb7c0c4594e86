"""The server in front of an engine that has every token ready: chunks a second, CPU a chunk, memory.

    python tests/benchmarks/bench_server.py [chunks] [memory] [prompt]

chunks: one-token frames a second over 32 streams, and the server's CPU time for each, beside a plain loop
of Python as a measure of the machine. memory: resident memory after 1,000 and after 10,000 requests of 64
clients, while 500 connections are idle. prompt: peak allocation while a prompt of about 20,000 tokens is
read, in bodies, and the longest time the event loop was held up.

Prints numbers and asserts nothing. The server runs in a process of its own, pinned to one core.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import re
import selectors
import socket
import sys
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

STREAMS, TOKENS = 32, 2000
ACTIVE, IDLE = 64, 500


def server(pipe, tokens, flags):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    async def main():
        from tests.server.conftest import running
        from tests.server.scripted import ScriptedEngine

        async with running(ScriptedEngine(lambda job: [" token"] * tokens), **flags) as live:
            live.engine.jobs = _Forgetful()
            pipe.send(live.port)
            await asyncio.Event().wait()

    asyncio.run(main())


class _Forgetful(list):
    """The engine's list of jobs, which would grow and be taken for a leak of the server."""

    def append(self, job):
        pass


@contextmanager
def started(tokens, **flags):
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=server, args=(there, tokens, flags), daemon=True)
    process.start()
    there.close()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        yield psutil.Process(process.pid), here.recv()
    finally:
        process.terminate()
        process.join()


def request(**fields):
    body = {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100_000}
    data = json.dumps({**body, **fields}).encode()
    return head(len(data), b"%b") + data


def head(size, more=b""):
    line = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
    return line + f"Content-Length: {size}\r\n".encode() + more + b"\r\n"


def cpu(process):
    times = process.cpu_times()
    return times.user + times.system


def plain_loop():
    """Nanoseconds of one turn of a small loop: what this machine makes of Python just now."""
    began = time.process_time()
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    return 1000 * (time.process_time() - began)


def read_streams(port, count):
    """Read this many streams side by side; the number of their frames."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request(stream=True) % b"Connection: close\r\n")
        selector.register(connection, selectors.EVENT_READ)
    frames = 0
    while selector.get_map():
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 18)
            frames += data.count(b"data: ")
            if not data:
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return frames


def chunks():
    with started(TOKENS, kv_slots=16, max_queue=64) as (process, port):
        read_streams(port, 4)
        for _ in range(3):
            loop = plain_loop()
            before, began = cpu(process), time.perf_counter()
            frames = read_streams(port, STREAMS)
            seconds, used = time.perf_counter() - began, cpu(process) - before
            each = 1e6 * used / frames
            print(
                f"{STREAMS} streams: {frames / seconds:,.0f} chunks/s, {each:.1f} us of CPU a chunk,"
                f" {1000 * each / loop:.0f} turns of a plain loop ({loop:.0f} ns)"
            )


async def keep_asking(port, counter, limit):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = request() % b""
    while counter["sent"] < limit:
        counter["sent"] += 1
        writer.write(data)
        answer = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", answer)[1]))
        counter["ok"] += b" 200 " in answer.partition(b"\r\n")[0]
    writer.close()


async def memory():
    flags = {
        "kv_slots": 16,
        "max_queue": ACTIVE,
        "max_connections": 2 * (ACTIVE + IDLE),
        "read_deadline": 3600.0,
    }
    with started(20, **flags) as (process, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(IDLE)]
        counter, sizes = {"sent": 0, "ok": 0}, []
        for limit in (1000, 10_000):
            began = time.perf_counter()
            await asyncio.gather(*(keep_asking(port, counter, limit) for _ in range(ACTIVE)))
            sizes.append(process.memory_info().rss)
            print(
                f"after {counter['ok']:,} answers of {counter['sent']:,}: {sizes[-1] / 1e6:.1f} MB,"
                f" {time.perf_counter() - began:.1f} s"
            )
        print(f"growth: {100 * (sizes[1] / sizes[0] - 1):+.2f} %")
        for _, writer in idle:
            writer.close()


async def prompt():
    from colibri.server.jobs import warm
    from tests.server.conftest import running
    from tests.server.scripted import ScriptedEngine, say

    words = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 25
    turns = [
        {"role": ("user", "assistant")[index % 2], "content": f"{index}: {words}"} for index in range(45)
    ]
    fields = {"model": "qwen36", "messages": turns}
    size = len(json.dumps(fields))
    async with running(ScriptedEngine(say("a"))) as live:
        warm(live.app.served)
        data = json.dumps(fields).encode()
        del turns, fields
        peaks = []
        for measured in (False, False, True, True):
            if measured:
                tracemalloc.start()
            live.app.watch.longest = 0.0
            reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
            writer.write(head(len(data)))
            for at in range(0, len(data), 1 << 16):
                writer.write(data[at : at + (1 << 16)])
                await writer.drain()
            assert b" 200 " in await reader.readline()
            writer.close()
            if measured:
                peaks.append(tracemalloc.get_traced_memory()[1] / size)
                tracemalloc.stop()
            else:
                print(f"longest hold-up of the event loop: {1000 * live.app.watch.longest:.1f} ms")
        print(f"body of {size:,} bytes: peak allocation {min(peaks):.1f} bodies")


PARTS = {"chunks": chunks, "memory": lambda: asyncio.run(memory()), "prompt": lambda: asyncio.run(prompt())}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
