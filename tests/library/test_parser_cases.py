"""Every recorded reply means what it should, however it is cut."""

import json
import random
from typing import Any

import pytest

from colibri.events import ToolCallStart
from colibri.reply import BrokenCall, fold

from .replies import Case, cases, check_laws, grammar, plans, read_bytes, read_case

each_case = pytest.mark.parametrize("case", cases(), ids=[case["id"] for case in cases()])


def equal(mine: Any, theirs: Any) -> bool:
    """Equal as JSON: 1e2 is 100, but true is not 1."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return mine.keys() == theirs.keys() and all(equal(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(equal, mine, theirs))
    return mine == theirs and isinstance(mine, bool) == isinstance(theirs, bool)


def is_prefix(call: BrokenCall, meant: dict[str, Any]) -> bool:
    """Whether a broken call's fragments may be the beginning of what was meant."""
    whole = json.dumps(meant["arguments_prefix"], ensure_ascii=False)
    spaceless = whole.replace('": "', '":"').replace('", "', '","')
    given = call.arguments.rstrip("}")
    return call.name == meant["name"] and (whole.startswith(given) or spaceless.startswith(given))


@pytest.mark.parametrize("name", ["glm47", "qwen3_xml", "mimo_v2", "deepseek_v4"])
def test_the_end_of_reasoning_is_no_content_behind_a_call_that_ended_it(name: str) -> None:
    case = next(
        case
        for case in cases()
        if case["family"] == name and case["kind"] == "single_call" and "</think>" in case["raw"]
    )
    raw = case["raw"].replace("</think>", "", 1) + "</think>Done."
    reply = fold(read_case({**case, "raw": raw}))
    assert [call.name for call in reply.tool_calls] == [call["name"] for call in case["expect"]["tool_calls"]]
    assert reply.content.strip() == "Done."


@each_case
def test_meaning(case: Case) -> None:
    expected = case["expect"]
    reply = fold(read_case(case))
    assert reply.reasoning.strip() == (expected["reasoning"] or "").strip()
    content = expected["content"] or ""
    exact = case["compare"] == "exact"
    assert (reply.content if exact else reply.content.strip()) == (content if exact else content.strip())
    assert [call.name for call in reply.tool_calls] == [call["name"] for call in expected["tool_calls"]]
    for mine, theirs in zip(reply.tool_calls, expected["tool_calls"], strict=True):
        assert equal(json.loads(mine.arguments), theirs["arguments"])
    assert reply.finish_reason == expected["finish_reason"]
    if "truncated_call" in expected:
        assert all(is_prefix(call, expected["truncated_call"]) for call in reply.broken)
    else:
        assert all(call.name is None for call in reply.broken)


@each_case
def test_cutting_makes_no_difference(case: Case) -> None:
    whole = read_case(case)
    check_laws(whole, case["raw"])
    for plan, pieces in plans(case["raw"], grammar(case["family"]).special, seed=len(case["raw"])):
        assert read_case(case, pieces) == whole, plan


@each_case
def test_bytes_cut_inside_code_points(case: Case) -> None:
    data = case["raw"].encode()
    whole = read_case(case)
    assert read_bytes(case, [data[at : at + 1] for at in range(len(data))]) == whole
    chooser = random.Random(len(data))
    chunks, at = [], 0
    while at < len(data):
        size = chooser.randint(1, 5)
        chunks.append(data[at : at + size])
        at += size
    assert read_bytes(case, chunks) == whole


@each_case
def test_streaming_shape(case: Case) -> None:
    """Indexes are dense, ids differ, and a name comes once before its arguments."""
    starts = [event for event in read_case(case, list(case["raw"])) if isinstance(event, ToolCallStart)]
    assert [event.index for event in starts] == list(range(len(starts)))
    assert len({event.id for event in starts}) == len(starts)
    assert all(event.name and event.name == event.name.strip() for event in starts)
