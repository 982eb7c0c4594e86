"""Grammar files: what is refused and in which words, inheritance, and where a prompt leaves the reply."""

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from colibri.errors import FamilyFileError
from colibri.grammar import Grammar, load_grammar
from colibri.parser import Parser
from colibri.reply import fold
from colibri.states import SLOTS, Mark, State

from .replies import FAMILIES, grammar, tools

TABLE: dict[str, Any] = {
    "name": "toy",
    "cue": "<bot>",
    "begin": "text",
    "starts": {"text": "text"},
    "special": ["<call>"],
    "vars": {"TAG": "call"},
    "group": {"openers": [{"at": "<{TAG}>", "to": "name", "confirm": True, "tools": True}]},
    "state": {
        "text": {"slot": "text", "use": ["openers"]},
        "name": {"slot": "name", "final": True, "marks": [{"at": "</{TAG}>", "to": "gap", "end": True}]},
        "gap": {"else": "text", "use": ["openers"]},
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    table = deepcopy(TABLE)
    *steps, last = path.split(".")
    place: Any = table
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return table


ERRORS = [
    ("name", None, "`name` is required and must be a string"),
    ("cue", 3, "`cue` must be a string, not 3"),
    (
        "begin",
        "nowhere",
        "`begin` leads to the state 'nowhere', which does not exist; known: gap, name, text",
    ),
    ("starts.text", "nowhere", "`starts.text` leads to the state 'nowhere'"),
    ("starts.middle", "text", "`starts.middle` is not known; the starts are reasoning and text"),
    ("starts.text", 1, "`starts.text` must be a string"),
    ("stats", {}, "`stats` is not known; did you mean `starts`?"),
    ("special", ["<a>", "<a>"], "`special` must hold different texts"),
    ("special", [""], "`special` must hold different texts of 1 to 64 characters, not ''"),
    ("special", [1], "`special` must be a list of strings"),
    ("vars.TAG", None, "names the variable 'TAG', which `vars` does not define"),
    ("vars.TAG", 2, "`vars.TAG` must be a string"),
    ("group.openers", {}, "`group.openers` must be a list of marks"),
    ("group.openers", ["x"], "`group.openers.0` must be a table"),
    ("group.openers.0.at", "", "`group.openers.0.at` must not be empty"),
    ("group.openers.0.at", "x" * 65, "`group.openers.0.at` must have at most 64 characters, not 65"),
    ("group.openers.0.at", None, "`group.openers.0.at` is required"),
    ("group.openers.0.to", "nowhere", "leads to the state 'nowhere', which does not exist"),
    ("group.openers.0.confirm", "yes", "`group.openers.0.confirm` must be true or false, not 'yes'"),
    ("group.openers.0.until", "x", "`group.openers.0.until` is not known"),
    (
        "state.text.slot",
        "words",
        f"`state.text.slot` must be one of {', '.join(map(repr, SLOTS))}, not 'words'",
    ),
    ("state.text.use", ["closers"], "`state.text.use` names the group 'closers'; known: openers"),
    ("state.text.else", "gap", "`state.text.else` is only for states whose slot is skip"),
    ("state.text.as", "string", "`state.text.as` is only for states whose slot is value"),
    ("state.text.as", "number", "`state.text.as` must be one of"),
    ("state.text.match", "(?P<name>.)", "`state.text.match` is only for states whose slot is name"),
    ("state.name.match", "(", "`state.name.match` must be a regular expression"),
    ("state.name.match", ".", "`state.name.match` must have a group called `name`"),
    ("state.text.decode", [["a", "b"]], "`state.text.decode` is only for names and keys"),
    ("state.name.decode", [["a"]], "`state.name.decode` must be a list of pairs of strings"),
    ("state.text.within", 3, "`state.text.within` is only for states with `else`"),
    ("state.gap.within", 300, "`state.gap.within` must be between 0 and 256"),
    ("state.gap.quote", [""], "`state.gap.quote` must not hold an empty delimiter"),
    (
        "state.gap.quote",
        ["<"],
        "`state.gap.marks` must not begin with a delimiter of `quote`, as '<call>' does",
    ),
    ("state.gap.else", "nowhere", "`state.gap.else` leads to the state 'nowhere'"),
    ("state.gap.else", "gap", "`state.gap.else` must lead to a state that has no `else` itself"),
    ("state.island", {}, "`state.island` cannot be reached; some mark, `else` or start must lead to it"),
    ("state.text", "x", "`state.text` must be a table"),
    (
        "state.name.marks",
        [{"at": "a", "to": "gap"}] * 2,
        "`state.name.marks` must not hold two marks with the same",
    ),
    ("state.name.final", "yes", "`state.name.final` must be true or false"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"), ERRORS, ids=[f"{path}={value!r}"[:60] for path, value, _ in ERRORS]
)
def test_a_mistake_is_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(FamilyFileError, match=re.escape(message)) as caught:
        load_grammar(changed(path, value), file="toy.grammar.toml")
    assert caught.value.message.startswith("toy.grammar.toml: ")


def test_layout_has_no_place_where_strings_hide_marks() -> None:
    table = changed("state.gap.quote", ["'"])
    table["state"]["gap"]["marks"] = [{"at": "x", "to": "text", "before": "\n"}]
    with pytest.raises(FamilyFileError, match="must not have `before`"):
        load_grammar(table, file="toy")


def test_variables_reach_marks() -> None:
    toy = load_grammar(TABLE, file="toy")
    assert [mark.at for mark in toy.states["text"].marks] == ["<call>"]
    assert [mark.at for mark in toy.states["name"].marks] == ["</call>"]


def test_like_takes_another_file_and_overrides_by_name() -> None:
    table = {
        "like": "toy",
        "name": "mine",
        "vars": {"TAG": "do"},
        "state": {"gap": {"marks": [{"at": ".", "to": "text"}]}},
    }
    mine = load_grammar(table, file="mine", resolve={"toy": TABLE}.__getitem__)
    assert (mine.name, mine.cue, mine.states["text"].marks[0].at) == ("mine", "<bot>", "<do>")
    assert [mark.at for mark in mine.states["gap"].marks] == ["."]


@pytest.mark.parametrize("like", ["self", 3])
def test_like_in_a_circle(like: Any) -> None:
    with pytest.raises(FamilyFileError, match="`like` must name another grammar file"):
        load_grammar({"like": like}, file="mine", resolve=lambda name: {"like": name})


def test_a_states_own_mark_beats_its_groups() -> None:
    table = changed("state.text.marks", [{"at": "<call>", "to": "text"}, {"at": "<gap>", "to": "gap"}])
    toy = load_grammar(table, file="toy")
    assert [mark.to for mark in toy.states["text"].marks] == ["text", "gap"]


def test_the_bound_is_a_property() -> None:
    toy = load_grammar(TABLE, file="toy")
    assert toy.hold == len("<call>") + 256 + 256


def test_the_reference_page_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reply-grammar.md").read_text(encoding="utf-8")
    spelled = {"otherwise": "else", "wire": "as", "name": "slot"}
    keys = {spelled.get(field.name, field.name) for kind in (State, Mark) for field in fields(kind)}
    for word in (*keys, *SLOTS, *(key for key in TABLE if key not in ("state", "group"))):
        assert f"`{word}`" in page, word


FILES = sorted(path.name.removesuffix(".grammar.toml") for path in FAMILIES.glob("*/*.grammar.toml"))


@pytest.mark.parametrize("name", FILES)
def test_every_family_grammar_holds_little(name: str) -> None:
    assert grammar(name).hold < 600


# What official prompts have behind their last cue, and where that leaves the reply.
TAILS = [
    ("glm47", "<think>", "reasoning"),
    ("glm47", "<think></think>", "text"),
    ("glm47", "</think>", "text"),
    ("glm47", "<think>Start.</think>Paris is the", "text"),
    ("glm47", "", None),
    ("qwen3_xml", "<think>\n", "reasoning"),
    ("qwen3_xml", "<think>\n\n</think>\n\n", "text"),
    ("qwen3_xml", "<think>\nStart.\n</think>\n\nParis is", "text"),
    ("qwen3_xml", "<think>\nI should", "reasoning"),
    ("mimo_v2", "", None),
    ("mimo_v2", "<think></think>", "text"),
    ("deepseek_v4", "<think>", "reasoning"),
    ("deepseek_v4", "</think>", "text"),
    ("deepseek_v41", "<think>Start with the basics.</think>Paris is", "text"),
    ("kimi_k3", "<|open|>think<|sep|>", "reasoning"),
    ("kimi_k3", "<|open|>response<|sep|>", "text"),
    ("kimi_k3", "<|open|>think<|sep|>Start.<|close|>think<|sep|><|open|>response<|sep|>Paris is", "text"),
    ("inkling", "", None),
    ("inkling", "<|content_text|>Paris is", "text"),
    ("inkling", "<|content_thinking|>", "reasoning"),
    ("gpt_oss", "", None),
    ("gpt_oss", "<|channel|>final<|message|>Paris is", "text"),
    ("gpt_oss", "<|channel|>analysis<|message|>", "reasoning"),
    ("minimax_m3", "<mm:think>", "reasoning"),
    ("minimax_m3", "</mm:think>Paris is", "text"),
    ("gemma4", "", None),
    ("gemma4", "<|channel>thought\n", "reasoning"),
    ("gemma4", "<|tool_call>call:f{a:1}<tool_call|><|tool_response>response:f{b:2}<tool_response|>", "text"),
    ("chatml", "", None),
]


@pytest.mark.parametrize(("name", "tail", "start"), TAILS)
def test_where_a_prompt_leaves_the_reply(name: str, tail: str, start: str | None) -> None:
    assert grammar(name).start_of(tail) == start


@pytest.mark.parametrize(("name", "tail", "start"), TAILS)
def test_a_primed_parser_stands_where_the_prompt_ends(name: str, tail: str, start: str | None) -> None:
    """Nothing of the prompt is told, and text goes where the start says."""
    subject: Grammar = grammar(name)
    for control in (None, False):
        reader = Parser(subject, tools("tools1"), prime=tail)
        reply = fold([*reader.feed("Hello.", control), *reader.finish("stop")])
        assert (reply.reasoning, reply.content)[start != "reasoning"] == "Hello."
        assert not reply.tool_calls
