"""Replies with their right meaning, however they are cut and whether or not tokens are told apart."""

import json
import re
from pathlib import Path

import pytest

import colibri
from colibri.testing import cuts

FAMILY = colibri.load(["colibri-minimax"])["minimax_m3"]
DATA = Path(__file__).parent / "data"
CASES = {
    case["id"]: case
    for case in map(json.loads, (DATA / "replies.jsonl").read_text(encoding="utf-8").splitlines())
}
TOOL_SETS = json.loads((DATA / "tool_sets.json").read_text(encoding="utf-8"))
STARTS = {"prompt_open": "reasoning", "off": "text", "model_opens": None}
SPECIAL = re.compile("(" + "|".join(map(re.escape, FAMILY.grammar.special)) + ")")


def plans(raw):
    """Ways a reply may arrive; a piece is its text and whether it is a control token."""
    for plan, pieces in cuts(raw):
        yield plan, [(piece, None) for piece in pieces]
    for size in (1, 3, 7, len(raw)):
        pieces = []
        for part in SPECIAL.split(raw):
            if SPECIAL.fullmatch(part):
                pieces.append((part, True))
            else:
                pieces += [(part[at : at + size], False) for at in range(0, len(part), size)]
        yield f"tokens by {size}", pieces


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
    for plan, pieces in plans(case["raw"]):
        said = read(case, pieces)
        calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in said.tool_calls]
        assert said.reasoning.strip() == expect["reasoning"].strip(), plan
        assert shown(said.content) == shown(expect["content"]), plan
        assert calls == expect["tool_calls"], plan
        assert said.finish_reason == expect["finish_reason"], plan
        if cut := expect.get("truncated_call"):
            (broken,) = said.broken
            assert broken.name == cut["name"], plan
            assert json.dumps(cut["arguments_prefix"], ensure_ascii=False).startswith(broken.arguments), plan
