"""Laws of the parser, by enumeration of small worlds and by generated replies."""

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import colibri
from colibri.conversation import Tool
from colibri.grammar import Grammar, load_grammar
from colibri.parser import Parser
from colibri.reply import fold, join

from .replies import (
    STARTS,
    THOROUGH,
    Case,
    cases,
    check_laws,
    grammar,
    in_random_sizes,
    in_tokens,
    parser,
    read,
    read_case,
    tools,
)

T = TypeVar("T")

DIALECTS = sorted({case["family"] for case in cases()})

GEMMA: Case = {
    **cases()[0],
    "family": "gemma4",
    "raw": "<|channel>thought\nHm.\n<channel|>Hi."
    '<|tool_call>call:vent_status{bay:<|"|>a, "b"<|"|>,limit:{k:[1]}}<tool_call|>',
    "tools": "tools1",
}
SMALL_TOOL = Tool(
    {
        "type": "function",
        "function": {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"n": {"type": ["string", "null"]}, "k": {"type": "integer"}},
            },
        },
    }
)


def small(**table: Any) -> Grammar:
    return load_grammar({"name": "small", "cue": "", "begin": "text", **table}, file="small")


def text_state(*marks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"slot": "text", "marks": list(marks), **fields}


OVER = {"slot": "reasoning", "marks": [{"at": "ba", "to": "text"}]}

# name -> (alphabet, longest text, grammar)
WORLDS = {
    "marks that overlap themselves and each other": (
        "ab",
        8,
        small(
            state={
                "text": text_state({"at": "aab", "to": "over"}, {"at": "abab", "to": "over"}),
                "over": OVER,
            }
        ),
    ),
    "a mark that begins another": (
        "ab",
        8,
        small(
            state={"text": text_state({"at": "ab", "to": "over"}, {"at": "abba", "to": "text"}), "over": OVER}
        ),
    ),
    "layout before and behind marks": (
        "ab",
        8,
        small(
            state={
                "text": text_state(
                    {"at": "ba", "to": "over", "before": "ab", "after": "ab"},
                    {"at": "bb", "to": "text", "before": "aa", "after": "a"},
                ),
                "over": OVER,
            }
        ),
    ),
    "marks that need confirmation": (
        "ab ",
        7,
        small(
            state={
                "text": text_state({"at": "a", "to": "skip", "confirm": True, "before": " "}),
                "skip": {"marks": [{"at": "b", "to": "text", "confirm": True}, {"at": "ba", "to": "text"}]},
            }
        ),
    ),
    "white space before a mark": (
        "ab ",
        7,
        small(
            begin="lead",
            state={
                "lead": {
                    "else": "text",
                    "final": True,
                    "marks": [{"at": "ab", "to": "lead"}, {"at": "abb", "to": "text", "confirm": True}],
                },
                "text": text_state({"at": "bb", "to": "lead", "before": " "}),
            },
        ),
    ),
    "a header before a mark": (
        "ab",
        8,
        small(
            begin="lead",
            state={
                "lead": {"else": "text", "within": 3, "marks": [{"at": "ab", "to": "text"}]},
                "text": text_state({"at": "bb", "to": "lead"}),
            },
        ),
    ),
    "strings and brackets": (
        '"\\(,a',
        5,
        small(
            begin="skip",
            state={
                "skip": {
                    "quote": ['"'],
                    "nest": True,
                    "marks": [{"at": ",", "to": "text"}, {"at": ")", "to": "text"}],
                },
                "text": text_state({"at": "a", "to": "skip"}),
            },
        ),
    ),
    "strings between long delimiters": (
        "<|,",
        7,
        small(
            begin="skip",
            state={"skip": {"quote": ["<|<"], "marks": [{"at": ",|", "to": "text"}]}, "text": text_state()},
        ),
    ),
    "names, keys and values": (
        "fn:=;",
        6,
        small(
            state={
                "text": text_state({"at": ":", "to": "name", "confirm": True, "tools": True}),
                "name": {
                    "slot": "name",
                    "marks": [{"at": ":", "to": "key"}, {"at": ";", "to": "text", "end": True}],
                },
                "key": {"slot": "key", "marks": [{"at": "=", "to": "value"}]},
                "value": {
                    "slot": "value",
                    "marks": [
                        {"at": "=", "to": "key", "confirm": True},
                        {"at": ";", "to": "text", "end": True},
                        {"at": ";;", "to": "key"},
                    ],
                },
            }
        ),
    ),
    "a call as one object": (
        '{":}n',
        6,
        small(
            begin="call",
            state={
                "call": {
                    "slot": "call",
                    "quote": ['"'],
                    "final": True,
                    "marks": [{"at": "n", "to": "text", "end": True}],
                },
                "text": text_state({"at": "n:", "to": "call", "confirm": True}),
            },
        ),
    ),
    "nested elements": (
        "<>/n",
        7,
        small(
            state={
                "text": text_state({"at": ">>", "to": "name"}),
                "name": {"slot": "name", "marks": [{"at": ">", "to": "in"}]},
                "in": {
                    "slot": "element",
                    "final": True,
                    "marks": [
                        {"at": "<", "to": "key"},
                        {"at": "</", "to": "close"},
                        {"at": "</>", "to": "text", "end": True},
                    ],
                },
                "key": {"slot": "key", "marks": [{"at": ">", "to": "in"}]},
                "close": {"slot": "close", "marks": [{"at": ">", "to": "in"}]},
            }
        ),
    ),
}


def all_cuts(text: str) -> Iterator[list[str]]:
    for borders in itertools.product((False, True), repeat=len(text) - 1):
        pieces = [text[0]]
        for character, border in zip(text[1:], borders, strict=True):
            if border:
                pieces.append(character)
            else:
                pieces[-1] += character
        yield pieces


def sample(things: list[T], count: int, chooser: random.Random) -> list[T]:
    return things if THOROUGH or len(things) <= count else chooser.sample(things, count)


def small_read(subject: Grammar, pieces: list[str], reason: str) -> list[Any]:
    return read(Parser(subject, [SMALL_TOOL], ids=lambda: "id"), pieces, reason)


@pytest.mark.parametrize("world", WORLDS)
def test_all_cuts_of_all_short_texts(world: str) -> None:
    alphabet, longest, subject = WORLDS[world]
    chooser = random.Random(world)
    for size in range(1, longest + 1):
        texts = ["".join(letters) for letters in itertools.product(alphabet, repeat=size)]
        for text in sample(texts, 100, chooser):
            cuts = [list(text), *sample(list(all_cuts(text)), 8, chooser)]
            for reason in ("stop", "length"):
                whole = small_read(subject, [text], reason)
                check_laws(whole, text)
                for pieces in cuts:
                    assert small_read(subject, pieces, reason) == whole, (pieces, reason)


def held_characters(reader: Parser) -> int:
    """What the scanner holds back; only for this test."""
    scanner = reader._scanner
    return len(scanner.held) if scanner else 0


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("filler", [" ", "y", "<", "\n", '"', "[", "]<]minimax[>[<", "\\", "<tool_call>"])
def test_what_is_held_back_is_bounded(name: str, filler: str) -> None:
    bound = grammar(name).hold
    openers = ["", *(case["raw"][: len(case["raw"]) // 2] for case in cases() if case["family"] == name)][:6]
    for opener in openers:
        reader = Parser(grammar(name), tools("tools1"))
        for piece in [opener, *itertools.repeat(filler, 1000 // len(filler))]:
            reader.feed(piece)
            assert held_characters(reader) <= bound


@st.composite
def soups(draw: st.DrawFn) -> Case:
    """A reply made of a dialect's marks and words, perhaps spliced into a recorded one."""
    case = draw(st.sampled_from((*cases(), GEMMA)))
    literals = {mark.at for state in grammar(case["family"]).states.values() for mark in state.marks}
    words = {
        word for tool in tools(case["tools"]) for word in (tool.name, *tool.parameters.get("properties", {}))
    }
    other = {
        " ",
        "\n",
        "\n\n",
        "x",
        "null",
        "1",
        '"',
        "{",
        "}",
        '{"a": 1}',
        "\\",
        "'",
        "nul",
        "<",
        "é🌋",
        "\ud83c",
    }
    soup = "".join(draw(st.lists(st.sampled_from(sorted(literals | words | other)), min_size=1, max_size=20)))
    at = draw(st.integers(0, len(case["raw"])))
    raw = draw(st.sampled_from([soup, case["raw"][:at] + soup + case["raw"][at:], case["raw"][:at] + soup]))
    start = draw(st.sampled_from(list(STARTS)))
    return {
        **case,
        "raw": raw,
        "thinking": start,
        "finish_reason_in": draw(st.sampled_from(["stop", "length"])),
    }


@given(soups(), st.randoms(use_true_random=False))
def test_any_reply_is_read_and_cuts_make_no_difference(case: Case, chooser: random.Random) -> None:
    whole = read_case(case)
    check_laws(whole, case["raw"])
    assert read_case(case, list(case["raw"])) == whole
    assert read_case(case, in_random_sizes(case["raw"], chooser)) == whole


@given(soups(), st.randoms(use_true_random=False))
def test_told_control_tokens_are_read_alike(case: Case, chooser: random.Random) -> None:
    raw = case["raw"].replace("\ud83c", "")
    special = grammar(case["family"]).special
    whole = read_case(case, in_tokens(raw, special, len(raw) + 1))
    check_laws(whole, raw)
    for size in (1, chooser.randint(2, 13)):
        assert read_case(case, in_tokens(raw, special, size)) == whole


@given(st.text(), st.sampled_from(DIALECTS), st.sampled_from([True, False, None]))
def test_no_text_raises(text: str, name: str, control: bool | None) -> None:
    reader = Parser(grammar(name), tools("tools1"))
    events = [*reader.feed(text, control), *reader.finish("stop")]
    if control is None or text.isprintable():
        check_laws(join(events), text)


@pytest.mark.parametrize("name", DIALECTS)
def test_spelled_control_tokens_stay_text(name: str) -> None:
    """Ordinary text that spells the marks of special tokens is text when the engine can tell."""
    special = grammar(name).special
    if not special:
        return
    spelled = "See " + " and ".join(special) + "."
    opener = {"inkling": "<|content_text|>", "gpt_oss": "<|message|>", "kimi_k3": "<|open|>response<|sep|>"}
    reader = Parser(grammar(name), tools("tools1"), start="text")
    events = reader.feed(opener.get(name, ""), True) if name not in STARTS else []
    events += [*reader.feed(spelled, False), *reader.finish("stop")]
    assert fold(events).content.removeprefix(opener.get(name, "")) == spelled


def test_finished_calls_survive_what_follows() -> None:
    """No ending of a reply loses a call that was finished before it."""
    for case in cases():
        if not case["expect"]["tool_calls"] or case["finish_reason_in"] != "stop":
            continue
        whole = fold(read_case(case)).tool_calls
        for tail in ("<", " and", case["raw"][-30:]):
            more = fold(read_case({**case, "raw": case["raw"] + tail})).tool_calls
            assert more[: len(whole) - 1] == whole[:-1]
            assert all(isinstance(json.loads(call.arguments), dict) for call in more)


def test_one_parser_reads_one_reply() -> None:
    reader = parser(cases()[0])
    reader.finish("stop")
    with pytest.raises(RuntimeError, match="new Parser"):
        reader.feed("x")
    with pytest.raises(RuntimeError, match="new Parser"):
        reader.finish("stop")


@given(st.sampled_from(cases()), st.data())
def test_a_prompt_may_end_anywhere_in_a_reply(case: Case, data: st.DataObject) -> None:
    """Then only what is behind it is told, however that is cut."""
    border = data.draw(st.integers(0, len(case["raw"])))
    prime, rest = case["raw"][:border], case["raw"][border:]
    special = grammar(case["family"]).special
    for told in (False, True):
        whole, cut = (
            read(
                Parser(grammar(case["family"]), tools(case["tools"]), prime=prime, ids=lambda: "id"),
                tokens if told else [text for text, _ in tokens],
                case["finish_reason_in"],
            )
            for tokens in (in_tokens(rest, special, size) for size in (len(rest) + 1, 1))
        )
        check_laws(whole, rest)
        assert cut == whole


@given(soups(), st.randoms(use_true_random=False))
def test_salvaging_changes_no_law(case: Case, chooser: random.Random) -> None:
    def salvaged(pieces: list[str]) -> list[Any]:
        subject, declared = grammar(case["family"]), tools(case["tools"])
        reader = Parser(subject, declared, start=STARTS[case["thinking"]], ids=lambda: "id", salvage=True)
        return read(reader, pieces, case["finish_reason_in"])

    whole = salvaged([case["raw"]])
    check_laws(whole, case["raw"])
    assert salvaged(in_random_sizes(case["raw"], chooser)) == whole


def test_a_tool_channel_is_authentic_text() -> None:
    """What an engine sends apart, as text of many tokens, is real; what looks like it in the text is not."""
    block = (
        '<|open|>tools<|sep|><|open|>call tool="gate_state" index="1"<|sep|><|close|>call<|sep|>'
        "<|close|>tools<|sep|>"
    )
    reader = Parser(grammar("kimi_k3"), tools("tools16"), start="text", ids=lambda: "id")
    events = [*reader.feed(f"See {block}.", False), *reader.feed(block, True), *reader.finish("stop")]
    check_laws(join(events), f"See {block}.{block}")
    assert fold(events).content == f"See {block}."
    assert [call.name for call in fold(events).tool_calls] == ["gate_state"]


@pytest.mark.parametrize("reason", ["stop", "tool_calls", "end_turn"])
def test_any_word_but_length_ends_a_reply_as_stop(reason):
    family = colibri.load()["glm52"]
    parameters = {"properties": {"k": {"type": "string"}}}
    declared = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    parser = family.new_parser(colibri.conversation_from_openai([], declared).tools, start="text")
    raw = "<tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value>"
    reply = colibri.fold([*parser.feed(raw), *parser.finish(reason)])
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("f", '{"k": "v"}')]
    assert reply.finish_reason == "tool_calls"
