"""Constrained replies: exactly the grammar's words, and an end only where one is complete."""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from itertools import product

import jsonschema_rs
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_engine import constraint
from colibri_engine._exec import Executor
from colibri_engine.api import Done, Job, Piece, SamplingParams
from colibri_engine.constraint import Constraint, Grammars
from colibri_engine.errors import JobError
from colibri_engine.local import LocalEngine

from .models import random_network
from .test_local import CONTEXT, Letters, collect, make_executor

MERGED = [b"ab", b"abc", b"ba", b"cc", b'{"', b'":', b"true", "é".encode(), "é"[:1].encode(), b"  "]


class Bytes:
    """A token for every byte, some of several bytes, and two control tokens, one of which ends a reply."""

    tokens = (*(bytes([byte]) for byte in range(256)), *MERGED, b"<end>", b"abc<tool>")
    size = len(tokens)
    end = size - 2
    eos = frozenset({end})

    def token_bytes(self, token_id: int) -> bytes:
        return self.tokens[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id >= self.end

    def encode_ordinary(self, text: str) -> list[int]:
        return list(text.encode())


GRAMMARS = Grammars(Bytes())


def allowed(constraint: Constraint, ends: frozenset[int] = Bytes.eos) -> set[int]:
    mask = constraint.mask(ends)
    return {token for token in range(8 * len(mask)) if mask[token >> 3] >> (token & 7) & 1}


def walk(kind: str, text: str, seed: int, ends: frozenset[int] = Bytes.eos) -> bytes | None:
    """A random reply; None if it does not end within 400 tokens."""
    choose, reply, way = random.Random(seed), b"", GRAMMARS.compile(kind, text)
    for _ in range(400):
        if way.finished:
            return reply
        token = choose.choice(sorted(allowed(way, ends)))
        if token in ends:
            return reply
        way.accept(token)
        reply += Bytes.tokens[token]
    return None


def follows(way: Constraint, text: bytes) -> bool:
    """Whether this can be a whole reply."""
    while text:
        fitting = (token for token in allowed(way) - Bytes.eos if text.startswith(Bytes.tokens[token]))
        token = min(fitting, default=None)
        if token is None:
            return False
        way.accept(token)
        text = text[len(Bytes.tokens[token]) :]
    return way.finished or Bytes.end in allowed(way)


WORDS = ["".join(word) for n in range(8) for word in product("abc", repeat=n)]


@settings(max_examples=60)
@given(st.from_regex(r"[abc](\|?[abc][?*]?|\|?\([ab]\|c\)\+){0,3}", fullmatch=True), st.integers(0, 99))
def test_exactly_the_tokens_that_continue_a_word_are_allowed(pattern, seed):
    """Where one byte must come next, those tokens may be chosen from that spell it as the tokenizer would."""
    language = [word.encode() for word in WORDS if re.fullmatch(pattern, word)]
    way, text, choose = GRAMMARS.compile("regex", pattern), b"", random.Random(seed)
    while len(text) < 3 and not way.finished:
        tokens = allowed(way)
        assert (Bytes.end in tokens) == (text in language)
        assert max(tokens) <= Bytes.end
        continued = {word[len(text) :] for word in language if word.startswith(text)}
        fitting = {
            token
            for token, data in enumerate(Bytes.tokens[: Bytes.end])
            if any(word.startswith(data) for word in continued)
        }
        spelled = tokens - {Bytes.end}
        forced = len({word[:1] for word in continued}) == 1
        assert (spelled and spelled <= fitting) if forced else spelled == fitting
        token = choose.choice(sorted(spelled))
        way.accept(token)
        text += Bytes.tokens[token]


@pytest.mark.parametrize("pattern", ["[ab]{2,4}c?", "(ab|ba)+!", "é{1,3}", "a.c|", "<end>x"])
def test_replies_match_their_regex(pattern):
    for seed in range(20):
        assert re.fullmatch(pattern, walk("regex", pattern, seed).decode())


def test_replies_follow_a_lark_grammar():
    grammar = 'start: pair ("," pair)*\npair: NAME "=" NUMBER\nNAME: /[ab]{1,3}/\nNUMBER: /[0-9]/\n'
    for seed in range(10):
        assert re.fullmatch(rb"[ab]{1,3}=\d(,[ab]{1,3}=\d)*", walk("lark", grammar, seed))


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["cat", "dog"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "next": {
            "anyOf": [{"type": "null"}, {"type": "object", "properties": {}, "additionalProperties": False}]
        },
    },
    "required": ["kind", "age"],
    "additionalProperties": False,
}


def test_replies_are_json_of_their_schema():
    replies = [walk("json_schema", json.dumps(SCHEMA), seed) for seed in range(20)]
    whole = [json.loads(reply) for reply in replies if reply is not None]
    assert len(whole) > 10
    for value in whole:
        jsonschema_rs.validate(SCHEMA, value)


def test_a_stop_token_ends_only_what_is_complete():
    """Even one that the grammar would take as text."""
    way = GRAMMARS.compile("regex", "ab+")
    ends = frozenset({Bytes.end, ord("b")})
    assert not ends & allowed(way, ends)
    way.accept(Bytes.tokens.index(b"ab"))
    assert ends <= allowed(way, ends)


def test_ends_beyond_the_vocabulary():
    way = GRAMMARS.compile("regex", "a?")
    assert 5000 in allowed(way, frozenset({5000}))
    way = GRAMMARS.compile("regex", "a")
    assert allowed(way, frozenset({5000})) == {ord("a")}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("regex", "a(", r'grammar: .*invalid regex "a\("'),
        ("lark", "start: x", 'grammar: .*unknown name: "x"'),
        ("json_schema", "{", "grammar: EOF while parsing"),
        ("json_schema", "[1]", "grammar: Expecting object schema"),
        ("json_schema", '{"type": "objct"}', "grammar: Invalid type: objct"),
        ("json_schema", "false", "grammar: "),
        ("json_schema", '{"type": "string", "pattern": "(?=a)b"}', "grammar: .*look-around"),
        ("json_schema", '{"enum": [' + "1," * 4000 + "}", "grammar: "),
    ],
)
def test_a_grammar_that_is_wrong_is_named(kind, text, message):
    with pytest.raises(JobError, match=message) as caught:
        GRAMMARS.compile(kind, text)
    assert len(caught.value.message) < 350
    assert "\n" not in caught.value.message


def referring(count):
    """A schema that descends through so many references, each some levels deep."""
    node = {"type": "array", "items": {"anyOf": [{"type": "array", "items": {"type": "null"}}]}}
    definitions = {
        f"d{at}": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/d{at + 1}"}, {"type": "null"}]}}
        for at in range(count)
    }
    return json.dumps({"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": node}})


def chained(count):
    rules = [f's{at}: "a" s{at + 1} | "b"' for at in range(count)]
    return "\n".join(["start: s0", *rules, f's{count}: "c"'])


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("json_schema", referring(255), None),
        ("json_schema", referring(3000), "256 references"),
        ("lark", f"start: a | b\na: %json {referring(200)}\nb: %json {referring(200)}", None),
        ("lark", f"start: %json {referring(3000)}", "256 references"),
        ("lark", chained(6000), None),
        ("lark", chained(30_000), "20000 lines"),
        ("json_schema", json.dumps({"const": "x" * (1 << 20)}), "1048576 characters"),
        ("json_schema", '{"multipleOf": 0.05}', None),
        ("json_schema", '{"multipleOf": 123456001}', "16 bits"),
        ("json_schema", '{"multipleOf": 997, "allOf": [{"multipleOf": 991}]}', "16 bits"),
        ("json_schema", json.dumps({"enum": [{"multipleOf": at} for at in range(1, 40_000)]}), "16 bits"),
        ("json_schema", '{"pattern": "^(([a-z]{1,100}b?){1,100}c?){1,100}$"}', None),
        ("regex", "a?" * 200_000, "too big"),
        ("regex", "(" * 100_000 + ")" * 100_000, "invalid regex"),
    ],
)
def test_what_a_grammar_may_cost_is_bounded(kind, text, message):
    """Without bounds some of these would overflow the stack, which ends the process, or take minutes."""
    if message is None:
        GRAMMARS.compile(kind, text).mask(Bytes.eos)
        return
    with pytest.raises(JobError, match=message):
        GRAMMARS.compile(kind, text)


def test_a_grammar_that_takes_too_long_is_refused_and_holds_up_nobody(monkeypatch):
    grammars, goes_on = Grammars(Bytes()), threading.Event()
    grammars.compile("regex", "a")
    monkeypatch.setattr(constraint, "_SECONDS", 0.01)
    monkeypatch.setattr(constraint, "_matcher", lambda *given: goes_on.wait(60))
    for _ in range(4):
        with pytest.raises(JobError, match="takes more than"):
            grammars.compile("regex", "a")
    with pytest.raises(JobError, match="still being compiled"):
        grammars.compile("regex", "a")
    goes_on.set()
    monkeypatch.undo()
    assert not grammars.compile("regex", "a").finished


@pytest.mark.parametrize(
    "more",
    [
        {"items": {"type": "boolean"}, "uniqueItems": True},
        {"items": {"type": "boolean"}, "contains": {"const": True}},
        {"items": {"type": "boolean"}, "not": {"maxItems": 0}},
        {"items": {"oneOf": [{"type": "boolean"}, {"const": True}]}},
        {"items": {"anyOf": [{"type": "boolean"}, {"type": "string", "format": "of-its-own"}]}},
    ],
)
def test_what_cannot_be_held_to_in_a_schema_leaves_the_rest_in_force(more):
    schema = json.dumps({"type": "array", **more})
    for text, fits in ((b"[true,true]", True), (b"[1]", False), (b"{}", False)):
        way = GRAMMARS.compile("json_schema", schema)
        assert follows(way, text) == fits


def test_a_text_that_no_token_spells_is_an_error():
    class Few(Bytes):
        tokens = (b"a", b"<end>")
        size, end, eos = 2, 1, frozenset({1})

    way = Grammars(Few()).compile("regex", "b")
    with pytest.raises(JobError, match="grammar: "):
        way.mask(Few.eos)


def test_without_llguidance_no_grammar_is_offered(monkeypatch):
    assert constraint.available() == {"json_schema", "regex", "lark"}
    monkeypatch.setattr(constraint, "find_spec", lambda name: None)
    assert constraint.available() == frozenset()


async def test_an_engine_without_llguidance_refuses_by_name(monkeypatch):
    monkeypatch.setattr(constraint, "find_spec", lambda name: None)
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    with pytest.raises(JobError, match="grammar is of kind regex; this engine has no such constraint"):
        await collect(engine, Job([1], 1, grammar=("regex", "A")))
    await engine.close()


def text_of(events: list) -> str:
    return b"".join(event.data for event in events if isinstance(event, Piece)).decode()


PATTERNS = ["[A-C]{3,5}", "HELLO|WORLD", "(AB)+C", "X?"]


async def test_replies_of_an_engine_match_whatever_else_it_does():
    """Each as it would be alone, next to free ones."""
    jobs = [
        Job([3, index], 20, sampling=SamplingParams(temperature=1.5, top_p=1, seed=index), grammar=grammar)
        for index, pattern in enumerate(PATTERNS * 3)
        for grammar in (("regex", pattern), None)
    ]
    alone = []
    for job in jobs:
        engine = LocalEngine(make_executor(), Letters(), slots=1)
        alone.append([event for event in await collect(engine, job) if isinstance(event, Piece)])
        await engine.close()
    engine = LocalEngine(make_executor(), Letters(), slots=4)
    for job, want, events in zip(
        jobs, alone, await asyncio.gather(*(collect(engine, job) for job in jobs)), strict=True
    ):
        assert [event for event in events if isinstance(event, Piece)] == want
        if job.grammar is not None:
            complete = re.fullmatch(job.grammar[1], text_of(events))
            assert complete or events[-1].reason == "length"
    await engine.close()


@pytest.mark.parametrize("temperature", [0, 2.0])
async def test_a_complete_reply_ends_by_itself(temperature):
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    job = Job([5], 20, sampling=SamplingParams(temperature=temperature, top_p=1), grammar=("regex", "ABCDE"))
    for count, reason in ((20, "stop"), (5, "stop"), (3, "length"), (0, "length")):
        events = await collect(engine, evolve(job, max_tokens=count))
        assert text_of(events) == "ABCDE"[:count]
        assert (events[-1].reason, events[-1].completion_tokens) == (reason, min(count, 5))
    events = await collect(engine, evolve(job, grammar=("regex", "")))
    assert (text_of(events), events[-1].reason) == ("", "stop")
    await engine.close()


async def test_log_probabilities_are_those_of_the_model():
    """A constraint changes what is chosen, not what the model thinks of it."""
    engine = LocalEngine(make_executor(), Letters(), slots=1)
    job = Job([5, 6], 20, logprobs=2, grammar=("regex", "[A-Z]{6}"))
    pieces = [event for event in await collect(engine, job) if isinstance(event, Piece)]
    tokens = [5, 6, *(piece.token_id for piece in pieces)]
    echoes = await collect(engine, Job(tokens, 0, logprobs=2, echo=True, echo_from=2))
    assert [echo.logprob for echo in echoes[2:-1]] == [piece.logprob for piece in pieces]
    await engine.close()


async def test_a_grammar_that_leads_nowhere_fails_its_job_only():
    """The tokens of this model spell no digit."""
    engine = LocalEngine(make_executor(), Letters(), slots=2)
    free = asyncio.create_task(collect(engine, Job([1, 2], 20)))
    with pytest.raises(JobError, match="grammar: "):
        await collect(engine, Job([1, 2, 3], 20, grammar=("regex", "A7")))
    assert isinstance((await free)[-1], Done)
    again = await collect(engine, Job([1, 2, 3, 4], 1))
    assert again[0].cached_tokens == 3
    await engine.close()


async def test_rows_of_logits_beyond_the_vocabulary_are_never_chosen():
    """The embedding may have more rows than there are tokens."""

    class Shorter(Letters):
        size = 20

    spec, source = random_network(np.random.default_rng(0))
    engine = LocalEngine(Executor(spec, source, context=CONTEXT), Shorter(), slots=1)
    for seed in range(5):
        sampling = SamplingParams(temperature=5.0, top_p=1, seed=seed)
        events = await collect(engine, Job([1], 8, sampling=sampling, grammar=("regex", "[@-z]{8}")))
        assert all(event.token_id < 20 for event in events if isinstance(event, Piece))
    await engine.close()
