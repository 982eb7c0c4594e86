"""The checks for engine authors: our own worker passes them, and each planted fault is found."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from colibri_engine.conformance import CHECKS, run_checks
from colibri_engine.process import Command, worker_command

from .fake_workers.engine import FAULTS
from .processes import fake_argv, with_argument
from .tiny_checkpoints import write_tiny

CAUGHT_BY = {
    "wrong-ready": "becomes ready",
    "silent-exit": "becomes ready",
    "load-nomem": "becomes ready",
    "load-io": "becomes ready",
    "load-format": "becomes ready",
    "load-unsupported": "becomes ready",
    "no-accept": "answers a job",
    "second-accept": "answers a job",
    "wrong-count": "answers a job",
    "no-done": "answers a job",
    "no-stop": "stops",
    "no-cancel": "cancels",
    "wrong-tokens": "answers a job",
    "wrong-prompt": "answers a job",
    "wrong-limit": "keeps to max_tokens",
    "too-long": "keeps to max_tokens",
    "slot-mixing": "keeps slots apart",
    "random": "answers the same again",
    "garbage": "answers a job",
    "bad-frame": "answers a job",
    "unknown-exit": "passes over unknown lines and ids",
    "bad-request-exit": "refuses a senseless request only",
    "no-context-limit": "refuses what does not fit",
    "no-drain": "finishes at the end of its input",
    "no-exit": "finishes at the end of its input",
    "newline-blind": "reads prompts by their length",
    "old-words": "speaks version 1 if asked to",
    "any-words": "speaks version 2",
    "no-token-ids": "speaks version 2",
    "exits-in-prefill": "answers a job",
    "exits-in-decode": "answers a job",
    "closes-output": "answers a job",
}


async def outcomes(argv, **options):
    return {result.name: result async for result in run_checks(Command(argv), **options)}


@pytest.mark.parametrize("version", ["1", "2"])
async def test_a_good_engine_passes(version):
    results = await outcomes(fake_argv("--version", version))
    assert [result for result in results.values() if result.passed is False] == []
    assert list(results) == list(CHECKS)
    skipped = {name for name, result in results.items() if result.passed is None}
    assert skipped == {"reports log probabilities", "echoes the prompt"} | (
        {"speaks version 1 if asked to", "speaks version 2", "honours a seed"} if version == "1" else set()
    )


def test_every_fault_is_planned_for():
    assert CAUGHT_BY.keys() == FAULTS.keys()
    assert set(CAUGHT_BY.values()) <= CHECKS.keys()


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_planted_fault_is_found(fault, tmp_path):
    command = Command(fake_argv(fault, tmp_path))
    patience = 1.0 if fault == "wrong-ready" else 30.0
    async with aclosing(run_checks(command, seconds=0.5, load_seconds=patience)) as results:
        async for result in results:
            if result.name == CAUGHT_BY[fault]:
                break
    assert (result.name, result.passed) == (CAUGHT_BY[fault], False)
    assert result.detail
    assert "\n" not in result.detail
    assert not with_argument(tmp_path)


async def test_our_own_worker_passes(tmp_path):
    spec = write_tiny(tmp_path / "tiny.gguf")
    command = worker_command(tmp_path / "tiny.gguf", spec, threads=1, slots=3)
    results = [result async for result in run_checks(command)]
    assert [result for result in results if not result.passed] == []
    assert [result.name for result in results] == list(CHECKS)
