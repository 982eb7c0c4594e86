"""What holding a reply to a grammar costs: preparing it, and every token.

    python tests/benchmarks/bench_constraint.py

Prints numbers; asserts nothing. Free and constrained replies of SmolLM2 take turns and have the same length.
"""

from __future__ import annotations

import asyncio
import json
import time
from statistics import median

from colibri.engines import open_engine
from colibri.models import fetch
from colibri_engine.api import Engine, Job, SamplingParams
from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.constraint import Grammars
from colibri_engine.tokenizer import load_tokenizer

TOKENS, TURNS = 64, 7
PROMPT = "<|im_start|>user\nTell me about ten cities as JSON.<|im_end|>\n<|im_start|>assistant\n"
CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "people": {"type": "integer"}, "capital": {"type": "boolean"}},
    "required": ["name", "people", "capital"],
    "additionalProperties": False,
}
SCHEMA = json.dumps({"type": "array", "items": CITY, "minItems": 10})


def preparation(path: str) -> None:
    with open_checkpoint(path) as checkpoint:
        tokenizer = load_tokenizer(checkpoint)
    grammars = Grammars(tokenizer)
    for name in ("the first grammar of a model", "one more grammar"):
        began = time.perf_counter()
        way = grammars.compile("json_schema", SCHEMA)
        print(f"{name}: {1e3 * (time.perf_counter() - began):.1f} ms")
    masks = []
    for token in tokenizer.encode('[{"name": "Paris", "people": 2100000, "capital": true}, {"name": "Lima"'):
        began = time.perf_counter()
        way.mask(tokenizer.eos)
        masks.append(1e6 * (time.perf_counter() - began))
        way.accept(token)
    print(f"a token's mask: median {median(masks):.0f} us, longest {max(masks):.0f} us")


async def token_seconds(engine: Engine, constrained: bool, streams: int) -> float:
    """The time of a decode step, in which each of the streams gets a token."""
    job = Job(
        PROMPT,
        TOKENS,
        sampling=SamplingParams(temperature=0, logit_bias={0: -100.0, 2: -100.0}),
        grammar=("json_schema", SCHEMA) if constrained else None,
    )

    async def run() -> float:
        async for event in engine.generate(job):
            last = event
        return last.decode_seconds / last.completion_tokens

    return median(await asyncio.gather(*(run() for _ in range(streams))))


async def main() -> None:
    path = fetch("smollm2")
    preparation(path)
    engine = open_engine(path, context=512, slots=4)
    for streams in (1, 4):
        turns = []
        for _ in range(TURNS):
            turns.append([await token_seconds(engine, constrained, streams) for constrained in (False, True)])
        ratio = median(held / free for free, held in turns)
        free, held = (1e3 * median(turn[kind] for turn in turns) for kind in (0, 1))
        print(f"{streams} at a time: a step {free:.2f} ms free, {held:.2f} ms constrained: {ratio:.3f}")
    await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
