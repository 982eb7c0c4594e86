"""Calls are read back as they were written, and odd replies as they are best understood."""

import json

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colibri
from colibri.conversation import Text, ToolCall, Turn
from colibri.events import ToolCallDelta
from colibri.testing import told_cuts

FAMILY = colibri.load(["colibri-gemma4"])["gemma4"]
SPECIAL = FAMILY.grammar.special
ASKED = colibri.conversation_from_openai(
    [{"role": "user", "content": "u"}],
    [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}],
)
PROMPT = FAMILY.render(ASKED)

# A bare key holds no punctuation of the format, and a string not the mark that ends it.
KEYS = st.from_regex(r"[A-Za-zß_][A-Za-z0-9ß_.\-]{0,8}", fullmatch=True)
TEXTS = st.lists(
    st.sampled_from(
        ["a", "é", "日本", " ", "\n", '"', "\\", "'", ",", ":", "{", "}", "[", "]", "<", "|", "0042"]
    )
).map("".join)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def read(pieces, reason="stop", tools=ASKED.tools):
    parser = FAMILY.new_parser(tools, PROMPT)
    events = [event for text, control in pieces for event in parser.feed(text, control)]
    return colibri.fold([*events, *parser.finish(reason)])


def calls(said):
    return [(call.name, json.loads(call.arguments)) for call in said.tool_calls]


@settings(derandomize=True, deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=2))
def test_arguments_are_read_back_as_they_were_written(arguments):
    asks = tuple(ToolCall("f", json.dumps(each, ensure_ascii=False)) for each in arguments)
    said = evolve(ASKED, turns=(*ASKED.turns, Turn("assistant", (Text(""), *asks))))
    whole = FAMILY.render(said, cue=False).text
    reply = whole.removeprefix(PROMPT.text).removesuffix("<|tool_response>")
    for plan, pieces in told_cuts(reply, SPECIAL):
        assert calls(read(pieces)) == [("f", each) for each in arguments], plan


THOUGHT = "<|channel>thought\nwhy\n<channel|>"
CALL = '<|tool_call>call:f{k:<|"|>v<|"|>,n:3}<tool_call|>'


@pytest.mark.parametrize(
    ("raw", "reasoning", "content", "arguments"),
    [
        ("Hi.", "", "Hi.", []),
        (THOUGHT + "Hi.", "why", "Hi.", []),
        ("<|channel>thought\n<channel|>Hi.", "", "Hi.", []),
        (THOUGHT + CALL, "why", "", [{"k": "v", "n": 3}]),
        ("One moment." + CALL + CALL, "", "One moment.", [{"k": "v", "n": 3}] * 2),
        (THOUGHT + "A. " + THOUGHT + "B.", "whywhy", "A. B.", []),
        ("<|tool_call>call:f{}<tool_call|>", "", "", [{}]),
        (CALL.removesuffix("<tool_call|>"), "", "", [{"k": "v", "n": 3}]),
        (
            '<|tool_call>call:f{a:[1,<|"|>,}<|"|>],o:{i:null}}<tool_call|>',
            "",
            "",
            [{"a": [1, ",}"], "o": {"i": None}}],
        ),
        ('<|tool_call>call:f{k:<|"|>a<|"|>b<|"|>}<tool_call|>', "", "", [{"k": 'a<|"|>b'}]),
        ("<|tool_call>call:f{k:0042,b:True}<tool_call|>", "", "", [{"k": "0042", "b": True}]),
        ("It is spelled <|tool_call> there.", "", "It is spelled <|tool_call> there.", []),
    ],
)
def test_reply(raw, reasoning, content, arguments):
    for plan, pieces in told_cuts(raw, SPECIAL):
        if plan == "tokens" and content.count("<|"):
            continue
        said = read(pieces)
        assert (said.reasoning, said.content) == (reasoning, content), plan
        assert calls(said) == [("f", each) for each in arguments], plan
        assert not said.broken, plan


def test_what_the_limit_cut_is_no_finished_call():
    for end in range(len("<|tool_call>"), len(CALL) - len("<tool_call|>") - 1):
        for plan, pieces in told_cuts(CALL[:end], SPECIAL):
            said = read(pieces, "length")
            assert (said.content, said.tool_calls, said.finish_reason) == ("", (), "length"), (end, plan)


def test_without_tools_nothing_is_a_call():
    assert read([(CALL, None)], tools=()).tool_calls == ()


def test_a_string_is_passed_on_as_it_comes():
    parser = FAMILY.new_parser(ASKED.tools, PROMPT)
    text = "<|tool_call>call:f{k:" + '<|"|>' + "word " * 20
    events = [event for character in text for event in parser.feed(character)]
    assert len([event for event in events if isinstance(event, ToolCallDelta)]) >= 100
