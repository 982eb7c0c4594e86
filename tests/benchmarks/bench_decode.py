"""Decode and prefill rates of the local engine, in one run with llama.cpp where it can be had.

    python tests/benchmarks/bench_decode.py [SmolLM2.gguf] [--threads 2] [--llama DIR]

DIR is a site-packages folder that has llama-cpp-python. Rounds of both alternate, because a shared
machine's speed changes from minute to minute; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from colibri.models import fetch
from colibri_engine._exec import Executor
from colibri_engine.checkpoint import open_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1] / "engine"))
from builders import llama_gguf

PROMPT, REPLY, SLOTS = 128, 64, (1, 4)


def ours(path: Path, threads: int) -> Iterator[dict[str, float]]:
    """Rounds of the local engine's executor, in tokens a second."""
    with open_checkpoint(path) as checkpoint:
        spec = llama_gguf(checkpoint.config, checkpoint.tensors)
        executor = Executor(spec, checkpoint, context=PROMPT + REPLY, threads=threads)
    prompt = np.random.default_rng(0).integers(100, 40_000, PROMPT).tolist()
    states = [executor.new_state() for _ in range(max(SLOTS))]
    while True:
        rates = {}
        for state in states:
            began = time.perf_counter()
            (logits,) = executor.run(prompt, range(PROMPT), [state] * PROMPT, [PROMPT - 1])
            rates["prefill"] = PROMPT / (time.perf_counter() - began)
        for count in SLOTS:
            tokens = [int(np.argmax(logits))] * count
            began = time.perf_counter()
            for position in range(PROMPT, PROMPT + REPLY):
                rows = executor.run(tokens, [position] * count, states[:count], range(count))
                tokens = [int(np.argmax(row)) for row in rows]
            name = "decode" if count == 1 else f"decode, {count} slots"
            rates[name] = count * REPLY / (time.perf_counter() - began)
        yield rates


def llama(path: Path, threads: int) -> Iterator[dict[str, float]]:
    """Rounds of llama.cpp through its Python binding, driven below its sampling."""
    from llama_cpp import Llama

    model = Llama(
        str(path),
        n_ctx=PROMPT + REPLY,
        n_batch=PROMPT,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    prompt = np.random.default_rng(0).integers(100, 40_000, PROMPT).tolist()
    while True:
        model.reset()
        began = time.perf_counter()
        model.eval(prompt)
        prefill = PROMPT / (time.perf_counter() - began)
        began = time.perf_counter()
        for _ in range(REPLY):
            model.eval([1000])
        yield {"prefill": prefill, "decode": REPLY / (time.perf_counter() - began)}


def main() -> None:
    """Alternate rounds and print medians with their spread, and ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", help="a .gguf file; SmolLM2 when absent")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--llama", type=Path, help="a site-packages folder that has llama-cpp-python")
    options = parser.parse_args()
    checkpoint = options.model or fetch("smollm2")
    engines = {"colibri": ours(checkpoint, options.threads)}
    if options.llama:
        sys.path.append(str(options.llama))
        engines["llama.cpp"] = llama(checkpoint, options.threads)
    rounds = [{name: next(engine) for name, engine in engines.items()} for _ in range(options.rounds + 1)][1:]
    medians = {}
    for name in engines:
        for what in rounds[0][name]:
            rates = sorted(each[name][what] for each in rounds)
            medians[name, what] = statistics.median(rates)
            print(
                f"{name:10} {what:16} {medians[name, what]:8.1f} tokens/s ({rates[0]:.1f} to {rates[-1]:.1f})"
            )
    print(f"four slots to one: {medians['colibri', 'decode, 4 slots'] / medians['colibri', 'decode']:.2f}")
    if options.llama:
        for what in ("decode", "prefill"):
            ratios = [each["colibri"][what] / each["llama.cpp"][what] for each in rounds]
            print(f"{what}: {statistics.median(ratios):.2f} times llama.cpp")


if __name__ == "__main__":
    main()
