"""Explanations of replies: none fails, they cover the reply, and they name the reason."""

import json
from typing import Any

import pytest
from attrs import asdict, evolve

from colibri.explain import Explanation, explain
from colibri.recording import Chunk, Recording
from colibri.reply import fold
from colibri.steps import Step

from .replies import STARTS, Case, cases, grammar, in_sizes, in_tokens, tools

COMMENTS = ("refused", "ignored", "held")
each_case = pytest.mark.parametrize("case", cases(), ids=[case["id"] for case in cases()])


def recording(case: Case, size: int | None = None) -> Recording:
    pieces = in_sizes(case["raw"], size) if size else [case["raw"]]
    return Recording(
        tuple(map(Chunk, pieces)),
        tools(case["tools"]),
        start=STARTS[case["thinking"]],
        finish=case["finish_reason_in"],
    )


def explained(family: str, raw: str, set_of_tools: str | None = None, **fields: Any) -> Explanation:
    declared = tools(set_of_tools) if set_of_tools else ()
    return explain(grammar(family), Recording((Chunk(raw),), declared, **fields))


def check(explanation: Explanation, raw: str) -> None:
    """Rows cover the reply without gaps, say what stands there, and are in order."""
    at = 0
    for row in explanation.rows:
        assert row.detail
        assert row.text == raw[max(row.start, 0) : max(row.end, 0)]
        if row.what not in COMMENTS and row.end > row.start:
            assert row.start == at, row
            at = row.end
    assert at == len(raw)
    starts = [row.start for row in explanation.rows]
    assert starts == sorted(starts)


@each_case
def test_every_reply_can_be_explained(case: Case) -> None:
    explanation = explain(grammar(case["family"]), recording(case, 4))
    check(explanation, case["raw"])
    assert len(explanation.reply.tool_calls) == len(case["expect"]["tool_calls"])
    assert len([row for row in explanation.rows if row.what == "called"]) == len(explanation.reply.tool_calls)
    broken = [row for row in explanation.rows if row.what == "broken"]
    assert len(broken) == len(explanation.reply.broken)


@each_case
def test_chunks_change_nothing_but_what_is_held(case: Case) -> None:
    whole, cut = (explain(grammar(case["family"]), recording(case, size)) for size in (None, 1))
    kept = [[row for row in one.rows if row.what != "held"] for one in (whole, cut)]
    assert kept[0] == kept[1]


@each_case
def test_a_call_that_is_none_has_a_reason(case: Case) -> None:
    """Without tools, cut in the middle, and with spelled tokens, every reply says what was no call."""
    family, raw = grammar(case["family"]), case["raw"]
    whole = recording(case)
    openers = {mark.at for state in family.states.values() for mark in state.marks if mark.tools}
    variants = {
        "no tools": evolve(whole, tools=()),
        "half": evolve(whole, chunks=(Chunk(raw[: len(raw) // 2]),), finish="length"),
        "ordinary text": evolve(whole, chunks=(Chunk(raw, False),)),
    }
    for name, variant in variants.items():
        explanation = explain(family, variant)
        check(explanation, variant.raw)
        shown = explanation.reply.content + explanation.reply.reasoning
        if name == "no tools" and any(opener in shown for opener in openers):
            assert any("declares no tools" in row.detail for row in explanation.not_calls)


def test_authentic_tokens_are_told_apart() -> None:
    case = next(case for case in cases() if case["id"] == "glm47-single")
    told = in_tokens(case["raw"], grammar("glm47").special, 3)
    chunks = tuple(Chunk(text, control) for text, control in told)
    explanation = explain(grammar("glm47"), evolve(recording(case), chunks=chunks))
    check(explanation, case["raw"])
    assert len(explanation.reply.tool_calls) == 1


@pytest.mark.parametrize(
    ("family", "declared", "fields", "raw", "reason"),
    [
        ("glm47", None, {}, "<tool_call>list_stacks</tool_call>", "the request declares no tools"),
        (
            "glm47",
            "tools3",
            {"start": "reasoning"},
            "I use <tool_call>nothing</tool_call>",
            "'nothing' is none of the declared tools (",
        ),
        ("glm47", "tools3", {}, "<tool_call>two words</tool_call>", "'two words' cannot be a tool's name"),
        ("glm47", "tools3", {}, "Use <tool_call>", "the reply ends before a tool's name is whole"),
        ("glm47", "tools3", {}, "Use <tool_call> for " + "y" * 300, "is no tool's name with '<arg_key>'"),
        ("qwen3_xml", "tools3", {}, '<tool_call>\n{"name": 1}', "'<function=' must follow, not '{\"name\""),
        ("qwen3_xml", "tools3", {}, "<tool_call>" + " " * 300, "only white space follows for 256 characters"),
        ("qwen3_xml", "tools3", {}, "<tool_call>\n<func", "the reply ends inside '<function='"),
        ("qwen3_xml", "tools3", {}, "a</tool_call>", "means nothing in state text, only in args or close"),
        (
            "qwen3_xml",
            "tools3",
            {},
            "<tool_call>\n<function=a b>",
            "'<function=' follows, but behind it 'a b' cannot be a tool's name",
        ),
        (
            "qwen3_xml",
            "tools3",
            {},
            "<tool_call>\n<function=list_stacks>\n<parameter=a>\n1",
            "call 0: the reply ends in state value, before '</parameter>'",
        ),
        (
            "qwen3_xml",
            "tools3",
            {"finish": "length"},
            "<tool_call>\n<function=list_stacks>\n<para",
            "call 0: the token limit cut it",
        ),
        (
            "hermes_json",
            "tools3",
            {},
            '<tool_call>\n{"name": "list_stacks", "arguments": {"a": 01}}\n</tool_call>',
            "call 0: its arguments are not one whole JSON object (Expecting ',' delimiter, character 7)",
        ),
        (
            "hermes_json",
            "tools3",
            {},
            '<tool_call>\n{"title": "list_stacks"}\n</tool_call>',
            "the JSON object has no string `name`",
        ),
    ],
)
def test_the_reason_is_named(
    family: str, declared: str | None, fields: dict[str, Any], raw: str, reason: str
) -> None:
    explanation = explained(family, raw, declared, **fields)
    check(explanation, raw)
    assert any(reason in row.detail for row in explanation.not_calls), explanation.not_calls


def test_what_was_held_is_told_with_its_chunks() -> None:
    pieces = ("Hm.\n</th", "ink>\n\nOk <tool_call>", "\n no")
    explanation = explain(
        grammar("qwen3_xml"), Recording(tuple(map(Chunk, pieces)), tools("tools3"), start="reasoning")
    )
    held = [(row.text, row.detail) for row in explanation.rows if row.what == "held"]
    assert held == [
        ("\n</th", "not given with chunk 1: '</think>' may be coming"),
        ("<tool_call>", "not given with chunk 2: what follows tells whether '<tool_call>' counts"),
    ]


def test_the_prompts_end_is_part_of_it() -> None:
    explanation = explain(
        grammar("qwen3_xml"),
        Recording(
            (Chunk(">\n</function>\n</tool_call>"),),
            tools("tools3"),
            prime="<tool_call>\n<function=list_stacks",
        ),
    )
    assert [call.name for call in explanation.reply.tool_calls] == ["list_stacks"]
    marks = [(row.start, row.text) for row in explanation.rows if row.what == "mark"]
    assert marks[:2] == [(-33, "<tool_call>"), (-21, "<function=")]


def test_types_of_arguments_are_told() -> None:
    case = next(case for case in cases() if case["id"] == "glm47-typed")
    details = [row.detail for row in explain(grammar("glm47"), recording(case)).rows]
    assert any("integer by its schema" in detail for detail in details)
    assert any("null or string by its schema" in detail for detail in details)


SHOWN = ("glm-lit-argclose", "qw-mention-think", "inkling-parallel", "minimax_m3-cut-arg", "ds32-json-body")


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_told(name: str, snapshot: Any) -> None:
    case = next(case for case in cases() if case["id"] == name)
    rows = explain(grammar(case["family"]), recording(case, 5)).rows
    assert "\n".join(json.dumps(list(asdict(row).values()), ensure_ascii=False) for row in rows) == snapshot


def test_an_observer_does_not_change_the_reading() -> None:
    steps: list[Step] = []
    for case in cases():
        one = recording(case, 3)
        number = iter(range(1000))
        watched = one.play(grammar(case["family"]), ids=lambda n=number: str(next(n)), observer=steps.append)
        number = iter(range(1000))
        alone = one.play(grammar(case["family"]), ids=lambda n=number: str(next(n)))
        assert watched == alone
        assert fold(watched) == fold(alone)
