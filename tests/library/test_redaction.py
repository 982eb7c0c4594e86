"""Recordings without what they say are read in the same steps."""

import random
import re

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from colibri.recording import Chunk, Recording
from colibri.redaction import redacted, shape

from .replies import STARTS, THOROUGH, Case, cases, grammar, in_random_sizes, in_tokens, tools

KEPT = r"<tool_call>|\\.|\b(true|false|null|True|False|None)\b|\bnu?l?\Z"
each_case = pytest.mark.parametrize("case", cases(), ids=[case["id"] for case in cases()])


def recording(case: Case, raw: str, seed: int = 0, finish: str | None = None) -> Recording:
    return Recording(
        tuple(map(Chunk, in_random_sizes(raw, random.Random(seed)))),
        tools(case["tools"]),
        start=STARTS[case["thinking"]],
        finish=finish or case["finish_reason_in"],
    )


def check(case: Case, before: Recording) -> Recording:
    family = grammar(case["family"])
    after = redacted(before, family)
    assert [len(chunk.text) for chunk in after.chunks] == [len(chunk.text) for chunk in before.chunks]
    assert [chunk.control for chunk in after.chunks] == [chunk.control for chunk in before.chunks]
    assert shape(after.play(family)) == shape(before.play(family))
    assert redacted(after, family) == after
    return after


@each_case
def test_recorded_replies_keep_their_shape(case: Case) -> None:
    check(case, recording(case, case["raw"]))
    check(case, evolve(recording(case, case["raw"]), tools=()))
    told = in_tokens(case["raw"], grammar(case["family"]).special, 5)
    chunks = tuple(Chunk(text, control) for text, control in told)
    check(case, evolve(recording(case, case["raw"]), chunks=chunks))


@each_case
def test_mutilated_replies_keep_their_shape(case: Case) -> None:
    chooser = random.Random(len(case["raw"]))
    for _ in range(20 if THOROUGH else 3):
        at = chooser.randrange(len(case["raw"]))
        for finish in ("stop", "length"):
            check(case, recording(case, case["raw"][:at], finish=finish))
        check(case, recording(case, case["raw"][:at] + case["raw"][at + 1 :]))
        check(case, recording(case, case["raw"][:at] + case["raw"][at] + case["raw"][at:]))


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_no_letter_and_no_digit_of_the_text_stays(text: str) -> None:
    case = next(case for case in cases() if case["id"] == "glm47-single")
    before = recording(case, "a</think>" + text)
    after = check(case, before).raw.removeprefix("x</think>")
    plain = after.replace("<tool_call>", "")
    assert not re.search(
        r"[^\W\dx_]", re.sub(r"\\.|\b(true|false|null|True|False|None)\b|\bnu?l?\Z", "", plain)
    )


def test_what_a_tool_is_for_is_not_told() -> None:
    case = next(case for case in cases() if case["id"] == "glm47-single")
    declaration = {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Secret 42",
            "parameters": {
                "type": "object",
                "description": "Secret",
                "properties": {
                    "type": {"enum": ["secret", 7, 2.5, None], "default": {"type": "secret"}},
                    "name": {"$ref": "#/$defs/Box", "title": "Secret"},
                },
                "required": ["name"],
            },
        },
    }
    one = evolve(recording(case, "Ok."), tools=(type(tools(case["tools"])[0])(declaration),))
    (tool,) = redacted(one, grammar("glm47")).tools
    assert tool.declaration == {
        "type": "function",
        "function": {
            "name": "find",
            "description": "xxxxxx 11",
            "parameters": {
                "type": "object",
                "description": "xxxxxx",
                "properties": {
                    "type": {"enum": ["xxxxxx", 1, 1.5, None], "default": {"type": "xxxxxx"}},
                    "name": {"$ref": "#/$defs/Box", "title": "xxxxxx"},
                },
                "required": ["name"],
            },
        },
    }


def test_the_prompts_end_loses_its_words_and_keeps_its_marks() -> None:
    case = next(case for case in cases() if case["id"] == "qwen3_xml-single")
    name = tools(case["tools"])[0].name
    prime = f"<think>\nSecret\n</think>\n\n<tool_call>\n<function={name}"
    one = Recording((Chunk(">\n</function>\n</tool_call>"),), tools(case["tools"]), prime=prime)
    assert check(case, one).prime == prime.replace("Secret", "xxxxxx")
