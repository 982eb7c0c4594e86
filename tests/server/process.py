"""A server as a process of its own, in front of a scripted engine: `python process.py JSON`.

JSON: {"flags": settings, "words": what is said, "pause": seconds before each word, "load": seconds}.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main():
    from colibri.server.run import run_server
    from colibri.server.settings import load_settings
    from tests.server.conftest import family
    from tests.server.scripted import ScriptedEngine

    told = {"words": ["yes"], "pause": 0.0, "load": 0.0, **json.loads(sys.argv[1])}
    steps = [step for word in told["words"] for step in (told["pause"], word)]
    logging.basicConfig(level=logging.INFO, format="%(message)s")

    async def load():
        await asyncio.sleep(told["load"])
        return ScriptedEngine(lambda job: steps)

    settings = load_settings(flags={"port": 0, "model_id": "qwen36", **told["flags"]})
    run_server(settings, family("qwen36"), load, lambda url: print(url, flush=True))


if __name__ == "__main__":
    main()
