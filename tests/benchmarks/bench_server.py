"""The server in front of an engine that has every token ready: chunks a second, CPU a chunk, memory.

    python tests/benchmarks/bench_server.py [chunks] [memory] [prompt] [peer] [--llama FOLDER]

chunks: one-token frames a second over 32 streams, and the server's CPU time for each, beside a plain loop
of Python as a measure of the machine. memory: resident memory after 1,000 and after 10,000 requests of 64
clients, while 500 connections are idle. prompt: peak allocation while a prompt of about 20,000 tokens is
read, in bodies, and the longest time the event loop was held up. peer: deltas a second beside those of
llama-cpp-python's server in front of an engine as empty, which peer_server.py runs from FOLDER; it serves
one request after the other, so one stream is measured beside 32. Both answer the same request with the
same number of frames to the same client, on the same core, in rounds that alternate. Where others use the
machine, the ratio by CPU is the steadier one.

Prints numbers and asserts nothing. The server runs in a process of its own, pinned to one core.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import re
import selectors
import socket
import statistics
import subprocess
import sys
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

STREAMS, TOKENS = 32, 2000
ACTIVE, IDLE = 64, 500
PEER = Path(__file__).with_name("peer_server.py")
PEER_TOKENS = 500
CORES = os.sched_getaffinity(0)
NO_PEER = """peer: not measured; python -m pip install --target FOLDER \\
    'llama-cpp-python[server]==0.3.36' uvloop httptools
and give --llama FOLDER"""


def server(pipe, tokens, flags):
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
def servers_core():
    """Processes that start herein run on one core, and this one, from then on, on another."""
    os.sched_setaffinity(0, {max(CORES)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, {min(CORES)})


@contextmanager
def started(tokens, **flags):
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=server, args=(there, tokens, flags), daemon=True)
    with servers_core():
        process.start()
    there.close()
    try:
        yield psutil.Process(process.pid), here.recv()
    finally:
        process.terminate()
        process.join()


@contextmanager
def peer_started(folder, *engine):
    command = [sys.executable, "-I", "-S", PEER, folder, str(PEER_TOKENS), *engine]
    with servers_core():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            line = process.stdout.readline()
            if not line:
                sys.exit(f"{folder} lacks what the error above names.\n{NO_PEER}")
            said = json.loads(line)
            yield psutil.Process(process.pid), said["port"], said["made_of"]
        finally:
            process.terminate()


def request(**fields):
    body = {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100_000}
    data = json.dumps({**body, **fields}).encode()
    return head(len(data), b"%b") + data


def head(size, more=b""):
    line = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
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


def read_streams(port, count, tokens):
    """Read this many streams side by side; what came of each."""
    selector = selectors.DefaultSelector()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request(stream=True, max_tokens=tokens) % b"Connection: close\r\n")
        selector.register(connection, selectors.EVENT_READ, [])
    streams = []
    while selector.get_map():
        for key, _ in selector.select():
            data = key.fileobj.recv(1 << 18)
            key.data.append(data)
            if not data:
                streams.append(b"".join(key.data))
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return streams


def chunks():
    with started(TOKENS, kv_slots=16, max_queue=64) as (process, port):
        read_streams(port, 4, TOKENS)
        for _ in range(3):
            loop = plain_loop()
            before, began = cpu(process), time.perf_counter()
            streams = read_streams(port, STREAMS, TOKENS)
            seconds, used = time.perf_counter() - began, cpu(process) - before
            frames = sum(stream.count(b"data: ") for stream in streams)
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
    import colibri

    for family in sorted(colibri.load()):
        peak, late, size = await read_prompt(family)
        print(
            f"{family:20} body of {size:,} bytes: peak allocation {peak:.1f} bodies,"
            f" event loop held up for {1000 * late:.1f} ms at most"
        )


async def read_prompt(family):
    """A prompt of about 20,000 tokens: peak allocation in bodies, longest hold-up in seconds, body size."""
    from colibri.server.jobs import warm
    from tests.server.conftest import running
    from tests.server.scripted import ScriptedEngine, say

    words = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 25
    turns = [
        {"role": ("user", "assistant")[index % 2], "content": f"{index}: {words}"} for index in range(45)
    ]
    data = json.dumps({"messages": turns}).encode()
    del turns
    peaks, late = [], []
    async with running(ScriptedEngine(say("a")), family_name=family) as live:
        warm(live.app.served)
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
                peaks.append(tracemalloc.get_traced_memory()[1] / len(data))
                tracemalloc.stop()
            else:
                late.append(live.app.watch.longest)
    return min(peaks), max(late), len(data)


def rate(process, port, count):
    """STREAMS replies, this many at once: deltas a second, and microseconds of CPU that each took."""
    before, began = cpu(process), time.perf_counter()
    streams = [stream for _ in range(STREAMS // count) for stream in read_streams(port, count, PEER_TOKENS)]
    seconds, used = time.perf_counter() - began, cpu(process) - before
    for stream in streams:
        found = stream.count(b"data: "), stream.count(b'" token"')
        # Beside the deltas: the role, the reason of the end, [DONE].
        if found != (PEER_TOKENS + 3, PEER_TOKENS):
            sys.exit(f"{found[0]} frames with {found[1]} deltas: {stream[:2000].decode()}")
    deltas = STREAMS * PEER_TOKENS
    return deltas / seconds, 1e6 * used / deltas


def spread(values, form):
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def beside(ours, peers, count, rounds):
    """Measure both in turn and print what each does, and how many times the peer's ours is."""
    pairs = [(rate(*ours, count), rate(*peers, count)) for _ in range(rounds)]
    for name, measured in zip(("colibri", "peer"), zip(*pairs, strict=True), strict=True):
        speeds, costs = zip(*measured, strict=True)
        print(f"{count:2} at once, {name}: {spread(speeds, ',.0f')} deltas/s, {spread(costs, '.1f')} us CPU")
    faster = [us[0] / them[0] for us, them in pairs]
    cheaper = [them[1] / us[1] for us, them in pairs]
    print(f"{count:2} at once: {spread(faster, '.1f')} times the peer's, {spread(cheaper, '.1f')} by CPU")


def peer(folder):
    if folder is None:
        print(NO_PEER)
        return
    from colibri.models import fetch

    engines = {"every chunk ready": (7,), "its own Llama over ready tokens": (3, fetch("smollm2"))}
    with started(PEER_TOKENS, kv_slots=16, max_queue=64) as ours:
        for name, (rounds, *model) in engines.items():
            with peer_started(folder, *model) as (process, port, made_of):
                print(f"peer, {name}: {made_of}")
                for each in (port, ours[1]):
                    (stream,) = read_streams(each, 1, PEER_TOKENS)
                    print(next(line for line in stream.decode().splitlines() if '" token"' in line))
                for count in (STREAMS, 1):
                    beside(ours, (process, port), count, rounds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--llama", type=Path, metavar="FOLDER", help="site-packages of llama-cpp-python's server"
    )
    parts = {
        "chunks": lambda options: chunks(),
        "memory": lambda options: asyncio.run(memory()),
        "prompt": lambda options: asyncio.run(prompt()),
        "peer": lambda options: peer(options.llama),
    }
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}: all when absent")
    options = parser.parse_args()
    for name in options.parts or parts:
        parts[name](options)


if __name__ == "__main__":
    main()
