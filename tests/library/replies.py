"""Recorded replies with their right meaning, the grammars that read them, and ways to cut a reply."""

import itertools
import json
import os
import random
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from colibri.conversation import Tool
from colibri.events import Event, Finished, ReasoningDelta, TextDelta
from colibri.grammar import Grammar, load_grammar
from colibri.parser import Parser
from colibri.pipeline import ReplyStream
from colibri.reply import fold, join
from colibri.testing import Told, in_random_sizes, in_tokens
from colibri.testing import in_sizes as in_sizes
from colibri_engine.api import Piece

THOROUGH = bool(os.environ.get("COLIBRI_THOROUGH"))
"""Whether to try everything instead of a sample; minutes instead of seconds."""

TESTS = Path(__file__).parent.parent
PLUGINS = TESTS.parent / "plugins"
FAMILIES = Path(str(files("colibri.families")))
STARTS = {"prompt_open": "reasoning", "model_opens": None, "off": "text"}

Case = dict[str, Any]


def grammar_table(file: str) -> dict[str, Any]:
    places = (*FAMILIES.glob(f"*/{file}"), *PLUGINS.glob(f"*/*/{file}"), *(TESTS / "dialects").glob(file))
    return tomllib.loads(next(iter(places)).read_text(encoding="utf-8"))


@cache
def grammar(name: str) -> Grammar:
    file = f"{name}.grammar.toml"
    return load_grammar(grammar_table(file), file=file, resolve=grammar_table)


@cache
def cases() -> tuple[Case, ...]:
    files = (TESTS / "data" / "parser_cases" / "cases.jsonl", TESTS / "dialects" / "cases.jsonl")
    return tuple(json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines())


@cache
def tools(name: str) -> tuple[Tool, ...]:
    sets = json.loads((TESTS / "data" / "parser_cases" / "tool_sets.json").read_text(encoding="utf-8"))
    return tuple(Tool(declaration) for declaration in sets[name])


def parser(case: Case) -> Parser:
    count = itertools.count()
    return Parser(
        grammar(case["family"]),
        tools(case["tools"]),
        start=STARTS[case["thinking"]],
        ids=lambda: f"call_{next(count)}",
    )


def read(reader: Parser, pieces: Sequence[str | Told], reason: str) -> list[Event]:
    """The joined events of a reply that comes in these pieces."""
    events: list[Event] = []
    for piece in pieces:
        text, control = (piece, None) if isinstance(piece, str) else piece
        events += reader.feed(text, control)
    return join([*events, *reader.finish(reason)])


def read_case(case: Case, pieces: Sequence[str | Told] | None = None) -> list[Event]:
    return read(parser(case), [case["raw"]] if pieces is None else pieces, case["finish_reason_in"])


def read_bytes(case: Case, chunks: Sequence[bytes]) -> list[Event]:
    stream = ReplyStream(parser(case))
    said = [stream.feed(Piece(chunk)) for chunk in chunks] + [stream.finish(case["finish_reason_in"])]
    return join(event for part in said for event in part.events)


def plans(text: str, special: Sequence[str], seed: int) -> Iterator[tuple[str, list[str | Told]]]:
    """Every way in which a recorded reply is cut."""
    yield "by character", list(text)
    for size in (1, 3, 7):
        tokens = in_tokens(text, special, size)
        yield f"tokens, authentic, {size} characters", list(tokens)
        yield f"tokens, {size} characters", [piece for piece, _ in tokens]
    chooser = random.Random(seed)
    for turn in range(3):
        yield f"random {turn}", list(in_random_sizes(text, chooser))


def check_laws(events: Sequence[Event], raw: str) -> None:
    """Spans partition the raw reply, texts are what stands there, finished calls are JSON objects."""
    at = 0
    for event in sorted(
        (event for event in events if event.end > event.start), key=lambda event: event.start
    ):
        assert event.start == at, event
        at = event.end
    assert at == len(raw)
    for event in events:
        if isinstance(event, TextDelta | ReasoningDelta):
            assert raw[event.start : event.end] == event.text
    assert [event for event in events if isinstance(event, Finished)] == [events[-1]]
    for call in fold(events).tool_calls:
        assert isinstance(json.loads(call.arguments), dict)
