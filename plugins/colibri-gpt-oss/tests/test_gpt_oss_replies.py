"""Replies with their right meaning, however they are cut and whether or not tokens are told apart."""

import json
from pathlib import Path

import pytest

import colibri
from colibri.testing import told_cuts

FAMILY = colibri.load(["colibri-gpt-oss"])["gpt_oss"]
DATA = Path(__file__).parent / "data"
CASES = {
    case["id"]: case
    for case in map(json.loads, (DATA / "replies.jsonl").read_text(encoding="utf-8").splitlines())
}
TOOL_SETS = json.loads((DATA / "tool_sets.json").read_text(encoding="utf-8"))
STARTS = {"prompt_open": "reasoning", "off": "text", "model_opens": None}


def read(case, pieces):
    tools = colibri.conversation_from_openai(
        [{"role": "user", "content": "u"}], TOOL_SETS[case["tools"]]
    ).tools
    parser = FAMILY.new_parser(tools, start=STARTS[case["thinking"]])
    events = [event for text, control in pieces for event in parser.feed(text, control)]
    return colibri.fold([*events, *parser.finish(case["finish_reason_in"])])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reply(case):
    expect = case["expect"]
    shown = str if case["compare"] == "exact" else str.strip
    for plan, pieces in told_cuts(case["raw"], FAMILY.grammar.special):
        said = read(case, pieces)
        calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in said.tool_calls]
        assert said.reasoning.strip() == expect["reasoning"].strip(), plan
        assert shown(said.content) == shown(expect["content"]), plan
        assert calls == expect["tool_calls"], plan
        assert said.finish_reason == expect["finish_reason"], plan
