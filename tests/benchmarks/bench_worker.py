"""What a process between server and engine costs a token: the same scripted engine here and behind a worker.

    python tests/benchmarks/bench_worker.py

Prints numbers; asserts nothing. "ready" tokens are all there at once: the time for all of them, shared out.
"paced" tokens come one at a time: the median time from when one is made to when it is read. The two engines
take turns.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from statistics import median

from colibri_engine.api import Accepted, Candidate, Capabilities, Done, EngineEvent, Job, Piece
from colibri_engine.process import Command, ProcessEngine
from colibri_engine.worker import serve

READY, PACED = 2000, 200
TURNS = 7
PACE = 0.002


class ReadyEngine:
    """Has every token ready; each says when it was made. A "paced" prompt has them come one at a time."""

    capabilities = Capabilities(context_length=1 << 20, slots=16, max_logprobs=32, candidates_spelled=True)

    async def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        top = tuple(Candidate(index, -1.5 - index, b" token") for index in range(job.logprobs or 0))
        yield Accepted(1)
        for index in range(job.max_tokens):
            if job.prompt == "paced":
                await asyncio.sleep(PACE)
            made = b"%d" % time.monotonic_ns()
            yield Piece(made, index, False, None if job.logprobs is None else -0.5, top)
        yield Done("length", 1, job.max_tokens)

    async def close(self) -> None:
        pass


async def measure(engine, job: Job, streams: int) -> float:
    """Nanoseconds of a token."""
    waits: list[int] = []

    async def read() -> None:
        async for event in engine.generate(job):
            if isinstance(event, Piece):
                waits.append(time.monotonic_ns() - int(event.data))

    began = time.monotonic_ns()
    await asyncio.gather(*(read() for _ in range(streams)))
    return median(waits) if job.prompt == "paced" else (time.monotonic_ns() - began) / len(waits)


async def compare() -> None:
    command = Command([sys.executable, str(Path(__file__).resolve()), "worker"])
    async with await ProcessEngine.start(command) as there:
        print(f"{'microseconds a token':34}{'here':>10}{'worker':>10}{'added':>10}")
        for prompt, tokens in (("ready", READY), ("paced", PACED)):
            for streams in (1, 4):
                for logprobs in (None, 5):
                    job = Job(prompt, tokens, logprobs=logprobs)
                    turns = [
                        [await measure(engine, job, streams) / 1000 for engine in (ReadyEngine(), there)]
                        for _ in range(TURNS)
                    ]
                    here, worker = (median(times) for times in zip(*turns, strict=True))
                    name = f"{prompt}, {streams} streams, logprobs {logprobs}"
                    print(f"{name:34}{here:10.1f}{worker:10.1f}{worker - here:10.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        asyncio.run(serve(ReadyEngine(), 0, 1))
    else:
        asyncio.run(compare())
