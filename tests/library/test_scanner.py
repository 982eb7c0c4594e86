"""The scanner alone: what it reports, what it holds, what the end of a reply means, and its trace."""

from typing import Any

import pytest

from colibri.automaton import Edge, Node
from colibri.grammar import load_grammar
from colibri.parser import Parser
from colibri.scanner import Scanner
from colibri.sink import Put
from colibri.steps import Step

from .replies import grammar, tools


class Record:
    """A sink that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def enter(self, node: Node, at: int) -> Put:
        return lambda text, start, end: self.told.append((node.name, text, start, end))

    def leave(self, node: Node, at: int) -> None: ...

    def frame(self, kind: str, start: int, end: int) -> None:
        self.told.append((kind, start, end))

    def mark(self, edge: Edge, start: int, end: int) -> None:
        self.told.append(("mark", edge.spelled, start, end))

    def word(self, node: Node, text: str, *, whole: bool, reasoning: bool, declared: bool) -> bool | None:
        return text.strip() == "f" if whole else None


def scanned(
    states: dict[str, Any], pieces: list[str], reason: str = "stop", special: tuple[str, ...] = ()
) -> list[tuple[Any, ...]]:
    subject = load_grammar({"name": "x", "cue": "", "begin": "text", "state": states}, file="x")
    record = Record()
    scanner = Scanner(subject.nodes(tools=True, authentic=False)["text"], record, special=special)
    for piece in pieces:
        scanner.feed(piece)
    scanner.finish(reason)
    assert scanner.held == ""
    assert scanner.base == len("".join(pieces))
    return record.told


def text(*marks: dict[str, Any]) -> dict[str, Any]:
    return {"slot": "text", "marks": list(marks)}


TAG = {"at": "<tag>", "to": "text", "before": "\n\n", "after": "\n"}


def test_text_passes_at_once_and_a_possible_mark_waits() -> None:
    assert scanned({"text": text(TAG)}, ["ab", "c<t", "x"]) == [
        ("text", "ab", 0, 2),
        ("text", "c", 2, 3),
        ("text", "<tx", 3, 6),
    ]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("a<tag>b", [("text", "a", 0, 1), ("mark", "<tag>", 1, 6), ("text", "b", 6, 7)]),
        ("\n<tag>\n", [("layout", 0, 1), ("mark", "<tag>", 1, 6), ("layout", 6, 7)]),
        (
            "\n\n\n<tag>\n\n",
            [
                ("text", "\n", 0, 1),
                ("layout", 1, 3),
                ("mark", "<tag>", 3, 8),
                ("layout", 8, 9),
                ("text", "\n", 9, 10),
            ],
        ),
        ("\n\n", [("text", "\n\n", 0, 2)]),
    ],
)
def test_layout_belongs_to_its_mark_up_to_its_length(raw: str, told: list[Any]) -> None:
    assert scanned({"text": text(TAG)}, [raw]) == told


CALL = {
    "text": text({"at": "<call>", "to": "name", "confirm": True}),
    "name": {"slot": "name", "final": True, "marks": [{"at": ">", "to": "text"}]},
}


@pytest.mark.parametrize(
    ("raw", "reason", "last"),
    [
        ("use <call>", "stop", ("text", "<call>", 4, 10)),
        ("<call>f", "stop", ("name", "f", 6, 7)),
        ("<call>g", "stop", ("text", "<call>g", 0, 7)),
        ("<call>f", "length", ("cut", 0, 7)),
        ("use <call>", "length", ("cut", 4, 10)),
        ("use <ca", "length", ("text", "<ca", 4, 7)),
        ("<call>" + "y" * 300, "length", ("text", "<call>" + "y" * 300, 0, 306)),
    ],
)
def test_the_end_of_a_reply_decides_what_was_open(raw: str, reason: str, last: tuple[Any, ...]) -> None:
    assert scanned(CALL, [raw], reason)[-1] == last


def test_a_cut_mark_with_a_whole_special_token_is_no_text() -> None:
    states = {"text": text({"at": "<|close|>end<|sep|>", "to": "text"})}
    special = ("<|close|>", "<|sep|>")
    assert scanned(states, ["Half<|close|>en"], "length", special) == [("text", "Half", 0, 4), ("cut", 4, 15)]
    assert scanned(states, ["Half<|clos"], "length", special)[-1] == ("text", "<|clos", 4, 10)
    assert scanned(states, ["Half<|close|>"], "stop", special)[-1] == ("text", "<|close|>", 4, 13)


def test_a_shorter_mark_is_tried_when_the_longer_one_does_not_count() -> None:
    states = {
        "text": text({"at": "<a", "to": "text"}, {"at": "<ab", "to": "next", "confirm": True}),
        "next": {"marks": [{"at": "!", "to": "text"}]},
    }
    assert scanned(states, ["<ab!"])[0] == ("mark", "<ab", 0, 3)
    assert scanned(states, ["<abc"]) == [("mark", "<a", 0, 2), ("text", "bc", 2, 4)]


def test_whoever_watches_is_told_every_decision() -> None:
    steps: list[Step] = []
    reader = Parser(grammar("glm47"), tools("tools3"), start="reasoning", observer=steps.append)
    for piece in ("Ok.</th", "ink>Use <tool_call> for it.<tool_call>list_stacks</tool_call>"):
        reader.feed(piece)
    reader.finish("stop")
    assert steps == [
        Step("else", 0, 0, "opened", to="think"),
        Step("held", 3, 7, "think"),
        Step("mark", 3, 11, "think", "</think>", "gap"),
        Step("else", 11, 11, "gap", to="text"),
        Step("refused", 15, 26, "text", "<tool_call>", "name"),
        Step("mark", 34, 45, "text", "<tool_call>", "name"),
        Step("mark", 56, 68, "name", "</tool_call>", "gap"),
    ]
