"""Recorded replies with one character dropped, doubled or swapped are still read whole."""

import random
from collections.abc import Iterator

import pytest

from colibri.reply import fold

from .replies import THOROUGH, Case, cases, check_laws, in_random_sizes, read_case

SAMPLE = 5


def mutations(text: str) -> Iterator[str]:
    for at in range(len(text)):
        yield text[:at] + text[at + 1 :]
        yield text[: at + 1] + text[at:]
        if at + 1 < len(text) and text[at] != text[at + 1]:
            yield text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def sampled(text: str, chooser: random.Random) -> list[str]:
    every = list(mutations(text))
    return every if THOROUGH else chooser.sample(every, min(SAMPLE, len(every)))


@pytest.mark.parametrize("case", cases(), ids=[case["id"] for case in cases()])
def test_a_reply_with_one_mistake(case: Case) -> None:
    chooser = random.Random(case["id"])
    for raw in sampled(case["raw"], chooser):
        for reason in ("stop", "length"):
            mutant = {**case, "raw": raw, "finish_reason_in": reason}
            whole = read_case(mutant, [raw])
            check_laws(whole, raw)
            assert read_case(mutant, in_random_sizes(raw, chooser)) == whole, raw


@pytest.mark.parametrize("case", cases(), ids=[case["id"] for case in cases()])
def test_a_reply_cut_short(case: Case) -> None:
    """Wherever a reply stops, what was finished is whole and nothing is made up."""
    raw = case["raw"]
    finished = [(call.name, call.arguments) for call in fold(read_case(case)).tool_calls]
    ends = range(1, len(raw)) if THOROUGH else sorted(random.Random(raw).sample(range(1, len(raw)), SAMPLE))
    for end in ends:
        for reason in ("stop", "length"):
            short = {**case, "raw": raw[:end], "finish_reason_in": reason}
            events = read_case(short, [raw[:end]])
            check_laws(events, raw[:end])
            assert read_case(short, list(raw[:end])) == events
            calls = [(call.name, call.arguments) for call in fold(events).tool_calls]
            if reason == "length":
                assert calls == finished[: len(calls)]
