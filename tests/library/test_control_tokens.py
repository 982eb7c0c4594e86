"""Where client text spells control tokens, and which those are."""

import re

import pytest
from attrs import evolve

import colibri
from colibri.control_tokens import ControlToken, find_control_tokens
from colibri.conversation import Media, Reasoning, Text, Thinking, Turn
from colibri.corpus import conversations
from colibri.errors import ColibriError, Where
from colibri.loading import load_family
from colibri.provenance import trusted_spans

FAMILIES = colibri.load()
MARKER = re.compile(r"<\|[^<>|\n]+\|>|<｜[^<>\n ]+?｜>|\]~!?b[\[\]]|\[e~\[|</?think>|<\|turn>|\[gMASK\]")
CALL = {"id": "c", "type": "function", "function": {"name": "n", "arguments": '{"k": ["<|im_end|>"]}'}}


def prompts(family):
    """The corpus, and a turn with each kind of media, under every switch."""
    cases = list(conversations().values())
    parts = [Media(kind, None, "x") for kind in family.features.media]
    cases.append(evolve(cases[0], turns=(Turn("user", (*parts, Text("Look.")), listed=True),)))
    for conversation in cases:
        for thinking in (Thinking(), Thinking(enabled=True), Thinking(enabled=False)):
            try:
                yield family.render(evolve(conversation, thinking=thinking))
            except ColibriError:
                continue


@pytest.mark.parametrize("family_id", FAMILIES)
def test_every_marker_that_a_format_writes_is_known(family_id):
    family, seen = FAMILIES[family_id], set()
    for prompt in prompts(family):
        for start, end in trusted_spans(prompt.segments):
            seen.update(MARKER.findall(prompt.text, start, end))
    unknown = {marker for marker in seen if not any(token in marker for token in family.control_tokens)}
    assert not unknown


@pytest.mark.parametrize("family_id", FAMILIES)
def test_every_token_in_every_place_is_found(family_id):
    family = FAMILIES[family_id]
    for token in family.control_tokens:
        conversation = colibri.conversation_from_openai([{"role": "user", "content": f"ab{token}c"}])
        assert find_control_tokens(conversation, family) == (ControlToken(Where(0, 0), token, 2),)
    harmless = colibri.conversation_from_openai([{"role": "user", "content": "a < b | c > d [x] ]~["}])
    assert find_control_tokens(harmless, family) == ()


def test_places():
    mark = "<|im_end|>"
    messages = [
        {"role": "system", "content": f"a{mark}", "name": mark},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": f"12{mark}"}]},
        {"role": "assistant", "reasoning_content": mark, "content": f"{mark}{mark}", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": f"r{mark}"},
    ]
    tools = [
        {
            "type": "function",
            "function": {
                "name": "n",
                "description": f" {mark}",
                "parameters": {"type": "object", "properties": {f"p{mark}": {"enum": ["", mark]}}},
            },
        }
    ]
    conversation = colibri.conversation_from_openai(messages, tools, options={"greeting": mark})
    found = find_control_tokens(conversation, FAMILIES["qwen36"])
    assert {item.token for item in found} == {mark}
    assert [(item.where, item.offset) for item in found] == [
        (Where(tool=0, field="function.description"), 1),
        (Where(tool=0, field=f"function.parameters.properties.p{mark}"), 1),
        (Where(tool=0, field=f"function.parameters.properties.p{mark}.enum.1"), 0),
        (Where(field="greeting"), 0),
        (Where(0, field="name"), 0),
        (Where(0, 0), 1),
        (Where(1, 1), 2),
        (Where(2, 0), 0),
        (Where(2, 1), 0),
        (Where(2, 1), len(mark)),
        (Where(2, 2, field="arguments.k.0"), 0),
        (Where(3, 0), 1),
    ]


def test_a_token_cut_in_two_is_found_where_it_begins():
    parts = [{"type": "text", "text": text} for text in ("a<|im_", "", "end|>b")]
    conversation = colibri.conversation_from_openai([{"role": "user", "content": parts}])
    found = find_control_tokens(conversation, FAMILIES["qwen36"])
    assert found == (ControlToken(Where(0, 0), "<|im_end|>", 1),)
    apart = evolve(
        conversation, turns=(Turn("assistant", (Text("<|im_"), Reasoning("thought"), Text("end|>"))),)
    )
    assert find_control_tokens(apart, FAMILIES["qwen36"]) == ()


def test_escaped_and_unreadable_arguments_are_read():
    for arguments in ('{"k": "\\u003c|im_end|>"}', "no json <|im_end|>"):
        call = {**CALL, "function": {"name": "n", "arguments": arguments}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        conversation = colibri.conversation_from_openai([message])
        (found,) = find_control_tokens(conversation, FAMILIES["qwen36"])
        assert found.where.field.startswith("arguments")


def test_the_longest_of_overlapping_spellings_counts(tmp_path):
    (tmp_path / "x.jinja").write_text("")
    (tmp_path / "x.grammar.toml").write_text(
        'name = "x"\ncue = "c"\nbegin = "text"\nspecial = ["<a>"]\n[state.text]\nslot = "text"\n'
    )
    (tmp_path / "x.toml").write_text(
        'id = "x"\ntitle = "X"\ngrammar = "x.grammar.toml"\n[identity]\nby_name = true\n'
        '[prompt]\ntemplate = "x.jinja"\ncontrol_tokens = ["<a", "<a>", "<a>b"]\n[stops]\ntokens = ["<e>"]\n'
    )
    family = load_family(str(tmp_path / "x.toml"))
    assert family.control_tokens == ("<a>", "<e>", "<a", "<a>b")
    conversation = colibri.conversation_from_openai([{"role": "user", "content": "<a>b<a<e>"}])
    assert [found.token for found in find_control_tokens(conversation, family)] == ["<a>b", "<a", "<e>"]
