"""Frames of an engine's records of tokens, right and wrong, and what each wrong one is called."""

from __future__ import annotations

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

from colibri_engine.process import Command, ProcessEngine, ProcessSettings

ENGINE = Path(__file__).parent / "fake_workers" / "scripted.py"
TAIL, POSITION = "engine_logprob_tail_malformed", "engine_echo_position_malformed"
INCOMPLETE, PINNED = "engine_logprob_records_incomplete", "engine_pinned_prefix_not_echoed"
TWICE = "engine_duplicate_logprob_candidate"

TAILS = [
    "abc 0",
    "abc",
    "-1",
    "-1 x",
    "-1 -1",
    "-1 1.5",
    "-1 1",
    "-1 1 5",
    "-1 2 5 -1",
    "-1 1 5 -1 6 -2",
    "-1 1 x -1",
    "-1 1 -5 -1",
    "-1 1 5 x",
    "-1 0 5 -1",
    "-1 99999999999999999999",
    "-1 1 5 -1 cand=-,-",
    "-1 1 k=5 -1",
    "tok=5 -1 0",
]
"""Numeric tails that cannot be read."""

POSITIONS = ["x", "-1", "1.5", "0x1", "nan", "k=0", "123456789012345678901"]
"""Positions that cannot be read."""

MALFORMED = [
    *((f"DATA ID 2 {tail}\nhi", TAIL) for tail in TAILS),
    *((f"ECHO ID 2 0 {tail}\nhi", TAIL) for tail in ["", *TAILS]),
    *((f"ECHO ID 2 {position} nan 0\nhi", POSITION) for position in ["", *POSITIONS]),
]
"""Frames that make no sense, and their names."""

ORDERS = {
    (): INCOMPLETE,
    (0,): INCOMPLETE,
    (0, 1): INCOMPLETE,
    (0, 2): INCOMPLETE,
    (2, 0): INCOMPLETE,
    (0, 0, 1): INCOMPLETE,
    (0, 0, 1, 2): INCOMPLETE,
    (0, 1, 2, 2): INCOMPLETE,
    (0, 2, 2): INCOMPLETE,
    (0, 1, 2, 3): INCOMPLETE,
    (0, 1, 3): INCOMPLETE,
    (1, 2): PINNED,
    (2, 1): PINNED,
    (2,): PINNED,
    (1, 1, 2): INCOMPLETE,
}
"""Positions that are not those of three tokens, as they come, and how that is called."""

ACCEPT, DONE = "ACCEPT ID 3", "DONE ID STAT 1 1 0 0 3 0"
GOOD = "DATA ID 2 -0.5 1 7 -0.5\nhi"


def echo(position: int) -> str:
    return f"ECHO ID 1 {position} {-position if position else 'nan'} 1 {position} -1\n{chr(97 + position)}"


def spelled(*frames: str | None) -> str:
    """A prompt for which the engine writes these frames; for None it waits for STOP."""
    return f"<<<{json.dumps(frames)}>>>"


@asynccontextmanager
async def scripted(folder: Path):
    """The engine, and a function that tells what it has read."""
    log = folder / "log"
    command = Command([sys.executable, "-I", "-S", str(ENGINE), str(log)])
    engine = await ProcessEngine.start(command, ProcessSettings(drain_seconds=5.0))
    try:
        yield engine, lambda: log.read_text().splitlines()
    finally:
        await engine.close()
