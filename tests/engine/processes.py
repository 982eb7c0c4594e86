"""Engines that are processes, for tests."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from colibri_engine.api import Job, Piece, SamplingParams
from colibri_engine.process import Command, ProcessEngine, ProcessSettings

FAKE = Path(__file__).parent / "fake_workers" / "engine.py"
PLAIN = SamplingParams(temperature=0, top_p=1)


def fake_argv(*arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(FAKE), *map(str, arguments)]


@asynccontextmanager
async def fake(*arguments: str, **settings):
    given = {"slots": 2, "drain_seconds": 5.0, **settings}
    engine = await ProcessEngine.start(Command(fake_argv(*arguments)), ProcessSettings(**given))
    try:
        async with asyncio.timeout(30):
            yield engine
    finally:
        pid = engine.pid
        await engine.close()
        assert not os.path.exists(f"/proc/{pid}")


def job(prompt="abc", max_tokens=5, **fields) -> Job:
    return Job(prompt, max_tokens, sampling=fields.pop("sampling", PLAIN), **fields)


async def collect(engine, job) -> list[object]:
    return [event async for event in engine.generate(job)]


async def reply(engine, job) -> bytes:
    return b"".join(event.data for event in await collect(engine, job) if isinstance(event, Piece))


def with_argument(word) -> list[int]:
    """The processes that have this word among their arguments; zombies have none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(word).encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


async def eventually(condition, seconds=10.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
