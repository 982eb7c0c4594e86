"""What a remembered beginning saves: from a job to its first token, cold and with all but a token known.

    python tests/benchmarks/bench_prefix.py

Prints numbers; asserts nothing. Each kind of memory takes its turn: the slot's own, that of another slot,
a pinned prompt, and a file that another engine left. SmolLM2, a prompt of 1024 tokens.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from colibri.engines import open_engine
from colibri.models import fetch
from colibri_engine.api import Accepted, Engine, Job, Piece, SamplingParams

TOKENS, TURNS = 1024, 5
NEVER_ENDS = SamplingParams(temperature=0, logit_bias={0: -100.0, 2: -100.0})


async def first_token(
    engine: Engine, prompt: list[int], slot: int, *, pin: bool = False
) -> tuple[float, int]:
    """Seconds to the first token, and how many of the prompt were known."""
    began, cached, seconds = time.perf_counter(), 0, 0.0
    async for event in engine.generate(Job(prompt, 1, sampling=NEVER_ENDS, slot=slot, pin=pin)):
        if isinstance(event, Accepted):
            cached = event.cached_tokens
        elif isinstance(event, Piece):
            seconds = time.perf_counter() - began
    return seconds, cached


def prompt_of(turn: int, kind: int = 0) -> list[int]:
    """A prompt of its own."""
    return [1000 + (turn * 7919 + kind * 104729 + at * 31) % 40000 for at in range(TOKENS)]


async def turn_of(path: Path, turn: int, folder: Path) -> dict[str, tuple[float, int]]:
    """One measurement of each kind."""
    prompt, other = prompt_of(turn), prompt_of(turn, 1)
    async with open_engine(path, context=2048, slots=2, kv_folder=folder) as engine:
        found = {"cold": await first_token(engine, prompt, 0)}
        found["own slot"] = await first_token(engine, [*prompt, 5], 0)
        found["other slot"] = await first_token(engine, [*prompt, 6], 1)
        await first_token(engine, prompt, 0, pin=True)
        for slot in (0, 1):
            await first_token(engine, other, slot)
        found["pinned"] = await first_token(engine, [*prompt, 7], 0)
    async with open_engine(path, context=2048, slots=2, kv_folder=folder) as engine:
        found["from a file"] = await first_token(engine, [*prompt, 8], 0)
    return found


async def main() -> None:
    path = fetch("smollm2")
    with TemporaryDirectory() as folder:
        turns = [await turn_of(path, turn, Path(folder)) for turn in range(TURNS)]
    for kind in turns[0]:
        seconds = median(turn[kind][0] for turn in turns)
        share = median(turn[kind][0] / turn["cold"][0] for turn in turns)
        print(f"{kind:>12}: {1e3 * seconds:8.1f} ms, {share:6.4f} of cold; known {turns[0][kind][1]}")


if __name__ == "__main__":
    asyncio.run(main())
