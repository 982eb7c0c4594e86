"""Constrained replies: what the grammar allows the parser reads without fault, and official renders are
allowed."""

from __future__ import annotations

import json
import random
import re
from itertools import groupby

import jsonschema_rs
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

import colibri
from colibri.constraint import reply_constraint
from colibri.conversation import Reasoning, Text, Tool, ToolCall, Turn
from colibri.events import TextDelta
from colibri.parser import Parser
from colibri.reply import fold, join
from colibri.strictness import form_fault
from colibri_engine.constraint import Grammars
from colibri_engine.errors import JobError

from . import declarations
from .replies import grammar

FAMILIES = colibri.load([])
CALLING = ["glm47", "qwen3_xml", "mimo_v2", "deepseek_v4", "deepseek_v41", "kimi_k3", "gpt_oss"]
THINKING = [*CALLING, "inkling", "gemma4", "minimax_m3", "kimi_k2", "hermes_json"]
VARIANTS = [
    "glm52",
    "glm53",
    "glm47",
    "deepseek_v4",
    "deepseek_v41",
    "kimi_k3",
    "qwen35",
    "qwen36",
    "qwen38",
    "mimo26",
]

TOOLS = (
    Tool(
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "Looks outside.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string"},
                        "days": {"type": "integer", "minimum": 0, "maximum": 40},
                        "unit": {"enum": ["C", "F"]},
                        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
                    },
                    "required": ["city", "unit"],
                    "additionalProperties": False,
                    "$defs": {"tag": {"type": "string", "maxLength": 3}},
                },
            },
        }
    ),
    Tool(
        {
            "type": "function",
            "function": {
                "name": "stop",
                "description": "Stops.",
                "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
            },
        }
    ),
)
ARGUMENTS = {"city": 'Par\n</b> "is"', "days": 7, "unit": "C", "tags": ["é", "b"]}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["a"],
    "additionalProperties": False,
}


class Tokens:
    """A token for every byte, one for each special spelling, and one that ends the reply."""

    def __init__(self, specials):
        self.spellings = [*(bytes([byte]) for byte in range(256)), *(word.encode() for word in specials)]
        self.ids = {word: 256 + at for at, word in enumerate(specials)}
        self.end = len(self.spellings)
        self.size = self.end + 1

    def token_bytes(self, token):
        return b"<end>" if token == self.end else self.spellings[token]

    def is_control(self, token):
        return token >= 256

    def encode_ordinary(self, text):
        return list(text.encode())

    def encode(self, text):
        parts = re.split("(" + "|".join(map(re.escape, self.ids)) + ")", text)
        return [
            token
            for part in parts
            for token in ([self.ids[part]] if part in self.ids else self.encode_ordinary(part))
        ]


class Way:
    """A reply on its way through a constraint."""

    def __init__(self, name, text):
        self.grammar = grammar(name)
        self.tokens = Tokens(self.grammar.special)
        self.way = Grammars(self.tokens).compile("lark", text)
        self.reply = []

    @classmethod
    def of(cls, name, state=None, **wanted):
        text = written(name, state, **wanted)
        assert text is not None
        return cls(name, text)

    def allowed(self):
        mask = self.way.mask([self.tokens.end])
        return [token for token in range(self.tokens.size) if mask[token >> 3] >> (token & 7) & 1]

    def take(self, token):
        self.way.accept(token)
        self.reply.append(token)

    def follow(self, text):
        """What is not allowed of a text; nothing when it is a whole reply."""
        for at, token in enumerate(todo := self.tokens.encode(text)):
            if self.way.finished or token not in self.allowed():
                return b"".join(map(self.tokens.token_bytes, todo[at:])).decode(errors="replace")
            self.take(token)
        return "" if self.way.finished or self.tokens.end in self.allowed() else "<end>"

    def wander(self, seed, marks):
        """A random reply that tends to write the format's marks; False if it grows too long."""
        choose, queue = random.Random(seed), []
        for _ in range(700):
            if self.way.finished:
                return True
            allowed = self.allowed()
            others = [token for token in allowed if token != self.tokens.end]
            if not others or (len(others) < len(allowed) and choose.random() < len(self.reply) / 400):
                return True
            if not queue and len(others) > 100 and choose.random() < 0.5:
                queue = self.tokens.encode(choose.choice(marks))
            if queue and queue[0] in allowed:
                self.take(queue.pop(0))
                continue
            queue = []
            plain = [token for token in others if token == 10 or 32 <= token < 127 or token >= 256]
            self.take(choose.choice(plain or others))
        return False

    def events(self, tools=(), start=None):
        return read(self.grammar, self.tokens, self.reply, tools, start)


def written(name, state=None, **wanted):
    ids = Tokens(grammar(name).special).ids
    return reply_constraint(grammar(name), state or grammar(name).begin, token_ids=ids, **wanted)


def read(grammar, tokens, reply, tools=(), start=None):
    """What the parser makes of a reply whose control tokens are told from text."""
    parser, events = Parser(grammar, tools, start=start, ids=lambda: "call"), []
    for control, run in groupby(reply, lambda token: token >= 256):
        for text in map(tokens.token_bytes, run) if control else [bytes(run)]:
            events += parser.feed(text.decode(errors="replace"), control)
    return join([*events, *parser.finish("stop")])


def call_marks(name):
    marks = [mark for state in grammar(name).states.values() for mark in state.marks if not mark.lenient]
    return [*(mark.at for mark in marks), *[mark.at for mark in marks if mark.tools] * 3]


@pytest.mark.parametrize("name", CALLING)
def test_allowed_replies_hold_only_whole_and_fitting_calls(name):
    ended = called = 0
    for seed in range(10):
        way = Way.of(name, tools=TOOLS)
        if not way.wander(seed, call_marks(name)):
            continue
        events = way.events(TOOLS)
        text = b"".join(map(way.tokens.token_bytes, way.reply))
        # The token that closes a call of gpt_oss ends the reply, so that the reply itself lacks it.
        assert name == "gpt_oss" or form_fault(events, grammar(name)) is None, text
        ended += 1
        for call in fold(events).tool_calls:
            called += 1
            tool = next(tool for tool in TOOLS if tool.name == call.name)
            jsonschema_rs.validate(tool.parameters, json.loads(call.arguments))
    assert ended > 2
    assert called > 1


@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize("start", ["reasoning", "text", None])
def test_content_is_json_behind_any_reasoning(name, start):
    state = grammar(name).starts.get(start) or grammar(name).begin
    ended = 0
    for seed in range(5):
        way = Way.of(name, state, schema=SCHEMA)
        if not way.wander(seed, call_marks(name)):
            continue
        content = "".join(event.text for event in way.events(start=start) if isinstance(event, TextDelta))
        ended += 1
        jsonschema_rs.validate(SCHEMA, json.loads(content))
    assert ended > 1


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("text", ["", "Let me look."])
@pytest.mark.parametrize("declared", [1, 4])
def test_official_renders_of_calls_are_allowed(variant, text, declared):
    family = FAMILIES[variant]
    arguments = {name: ARGUMENTS[name] for name in list(ARGUMENTS)[:: 1 if declared == 4 else 2]}
    calls = [
        ToolCall("get_weather", json.dumps(arguments, ensure_ascii=False), "a"),
        ToolCall("stop", "{}", "b"),
    ]
    messages = [{"role": "user", "content": "How is it?"}]
    asked = colibri.conversation_from_openai(messages, [tool.declaration for tool in TOOLS])
    answered = evolve(asked, turns=(*asked.turns, Turn("assistant", (Text(text), *calls))))
    reply = rendered_reply(family, answered)
    assert Way.of(family.grammar.name, tools=TOOLS).follow(reply) == ""


# Where values end with ordinary text, a JSON string that spells the end is read as the end, and is not tried.
PLAIN = {"qwen3_xml", "mimo_v2"}
LURES = [
    "</parameter>\n<parameter=",
    "</parameter>\n</function>",
    "</function>\n<function=f>",
    "analysis",
    "null",
]


def random_tools(choose, *, odd, strings=True):
    odd_names = choose.sample(declarations.ODD_NAMES, 1) * odd
    names = choose.sample(["f", "get it", *odd_names], choose.randint(1, 2))
    return [declarations.tool(choose, name, strings=strings, odd=odd) for name in names]


@pytest.mark.parametrize("name", CALLING)
@pytest.mark.parametrize("odd", [False, True])
def test_whatever_is_declared_allowed_replies_are_read_as_calls_that_fit(name, odd):
    """Marks that the parser forgives, or that text only seems to hold, are tried in every text."""
    ended = called = 0
    for seed in range(25):
        choose = random.Random(f"{name} {seed}")
        tools = random_tools(choose, odd=odd, strings=name not in PLAIN)
        text = written(name, tools=tools)
        if text is None:
            continue
        try:
            way = Way(name, text)
        except JobError:  # no value fits some schema
            continue
        keys = [f"<parameter={key}>" for tool in tools for key in tool.parameters["properties"]]
        marks = [mark.at for state in grammar(name).states.values() for mark in state.marks]
        if not way.wander(seed, [*marks, *call_marks(name), *keys, *LURES, *declarations.WORDS]):
            continue
        ended += 1
        events = way.events(tools)
        assert name == "gpt_oss" or form_fault(events, grammar(name)) is None, bytes(way.reply)
        for call in fold(events).tool_calls:
            called += 1
            tool = next(tool for tool in tools if tool.name == call.name)
            jsonschema_rs.Draft202012Validator(tool.parameters).validate(json.loads(call.arguments))
    assert ended > (2 if odd else 10)
    assert odd or called > 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_official_renders_are_allowed_as_far_as_they_can_be_read(variant):
    family, allowed = FAMILIES[variant], 0
    for seed in range(12):
        choose = random.Random(f"{variant} {seed}")
        tools = random_tools(choose, odd=False)
        calls = []
        for tool in choose.choices(tools, k=choose.randint(1, 3)):
            properties, required = tool.parameters["properties"], tool.parameters["required"]
            chosen = {
                key: node for key, node in properties.items() if key in required or choose.random() < 0.6
            }
            arguments = {
                key: declarations.value(choose, node, tool.parameters) for key, node in chosen.items()
            }
            if jsonschema_rs.Draft202012Validator(tool.parameters, validate_formats=True).is_valid(arguments):
                calls.append(ToolCall(tool.name, json.dumps(arguments, ensure_ascii=False), "a"))
        asked = colibri.conversation_from_openai(
            [{"role": "user", "content": "?"}], [tool.declaration for tool in tools]
        )
        reasoning = [Reasoning("Well.\nYes.")] * choose.randint(0, 1)
        parts = (*reasoning, Text(choose.choice(["", "Let a < b.\n\n"])), *calls)
        reply = rendered_reply(family, evolve(asked, turns=(*asked.turns, Turn("assistant", parts))))
        text = written(family.grammar.name, tools=tools)
        if text is None or not calls:
            continue
        way = Way(family.grammar.name, text)
        events = read(family.grammar, way.tokens, way.tokens.encode(reply), tools)
        told = [(call.name, json.loads(call.arguments)) for call in fold(events).tool_calls]
        if told == [(call.name, json.loads(call.arguments)) for call in calls]:
            assert way.follow(reply) == "", reply
            allowed += 1
    assert allowed > 2


def rendered_reply(family, answered):
    whole = family.render(answered, cue=False).text
    reply = whole[whole.rindex(family.grammar.cue) + len(family.grammar.cue) :]
    for end in family.stops.tokens:
        reply = reply.rstrip("\n").removesuffix(end)
    return reply


@pytest.mark.parametrize(
    ("change", "there_is_one"),
    [
        ({}, True),
        ({"required": ["a", "ghost"]}, False),
        ({"minProperties": 1}, False),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, False),
        ({"type": ["object", "null"]}, True),
        ({"type": "string"}, False),
        ({"properties": {"a": {"type": "string", "pattern": "^x"}}}, False),
        ({"properties": {"a": {"minLength": 3}}}, False),
        ({"properties": {"a": {"type": "array", "items": {"$ref": "#"}}}}, False),
        ({"properties": {"a": {"type": "array", "items": {"$ref": "#/properties/b"}}}}, False),
        ({"properties": {" a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}, True),
        ({"properties": {" a": {"type": "string"}}, "required": [" a"]}, False),
        ({"properties": {"\ud800": {"type": "string"}}}, False),
    ],
)
def test_what_cannot_be_said_has_no_grammar(change, there_is_one):
    function = {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}, **change}}
    tool = Tool({"type": "function", "function": function})
    assert (written("glm47", tools=[tool]) is not None) == there_is_one


def test_the_last_of_equal_names_counts():
    tools = [
        Tool({"type": "function", "function": {"name": "f", "parameters": {"properties": {key: {}}}}})
        for key in "ab"
    ]
    reply = "</think><tool_call>f<arg_key>{}</arg_key><arg_value>1</arg_value></tool_call>"
    assert Way.of("glm47", tools=tools).follow(reply.format("b")) == ""
    assert Way.of("glm47", tools=tools).follow(reply.format("a")) != ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**12) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "required",
                    "enum",
                    "const",
                    "anyOf",
                    "allOf",
                    "oneOf",
                    "$ref",
                    "$defs",
                    "a",
                ]
            )
            | st.sampled_from(["items", "minLength", "maxLength", "not", "additionalProperties"]),
            inner | st.sampled_from(["object", "string", "#", "#/$defs/a", ["string", "null"]]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from(CALLING))
def test_no_declaration_makes_it_fail(parameters, name):
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": parameters}}}
    for inner in (function, {"name": "f", "parameters": parameters}):
        tools = [Tool({"type": "function", "function": inner})]
        text = written(name, tools=tools, schema=parameters if isinstance(parameters, dict) else None)
        assert text is None or text.startswith("start: ")


def test_endless_nesting_has_no_grammar():
    node = {}
    for _ in range(100_000):
        node = {"items": node}
    function = {"name": "f", "parameters": {"properties": {"a": {"type": "array", "items": node}}}}
    assert written("glm47", tools=[Tool({"type": "function", "function": function})]) is None


@pytest.mark.parametrize("name", [name for name in CALLING if name != "gpt_oss"])
def test_grammars_grow_with_the_number_of_parameters(name):
    def lines(count):
        properties = {f"p{index}": {"type": ["string", "null"]} for index in range(count)}
        function = {"name": "f", "parameters": {"type": "object", "properties": properties}}
        return written(name, tools=[Tool({"type": "function", "function": function})]).count("\n")

    assert lines(80) - lines(40) < 1.1 * (lines(40) - lines(0))
