"""Constrained replies: what the grammar allows the parser reads without fault, and official renders are
allowed."""

from __future__ import annotations

import json
import random
import re

import jsonschema_rs
import pytest
from attrs import evolve

import colibri
from colibri.constraint import reply_constraint
from colibri.conversation import Text, Tool, ToolCall, Turn
from colibri.events import TextDelta
from colibri.parser import Parser
from colibri.reply import fold, join
from colibri.strictness import form_fault
from colibri_engine.constraint import Grammars

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

    def __init__(self, name, state=None, **wanted):
        self.tokens = Tokens(grammar(name).special)
        text = reply_constraint(
            grammar(name), state or grammar(name).begin, token_ids=self.tokens.ids, **wanted
        )
        assert text is not None
        self.way = Grammars(self.tokens).compile("lark", text)
        self.reply = []

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

    def events(self, name, tools):
        parser = Parser(grammar(name), tools, ids=lambda: "call")
        events = []
        for token in self.reply:
            if token >= 256:
                events += parser.feed(self.tokens.spellings[token].decode(), True)
            else:
                events += parser.feed(chr(token), False)
        return join([*events, *parser.finish("stop")])


def call_marks(name):
    marks = [mark for state in grammar(name).states.values() for mark in state.marks if not mark.lenient]
    return [*(mark.at for mark in marks), *[mark.at for mark in marks if mark.tools] * 3]


@pytest.mark.parametrize("name", CALLING)
def test_allowed_replies_hold_only_whole_and_fitting_calls(name):
    ended = called = 0
    for seed in range(24):
        way = Way(name, tools=TOOLS)
        if not way.wander(seed, call_marks(name)):
            continue
        events = way.events(name, TOOLS)
        text = b"".join(map(way.tokens.token_bytes, way.reply))
        # The token that closes a call of gpt_oss ends the reply, so that the reply itself lacks it.
        assert name == "gpt_oss" or form_fault(events, grammar(name)) is None, text
        ended += 1
        for call in fold(events).tool_calls:
            called += 1
            tool = next(tool for tool in TOOLS if tool.name == call.name)
            jsonschema_rs.validate(tool.parameters, json.loads(call.arguments))
    assert ended > 4
    assert called > 3


@pytest.mark.parametrize("name", THINKING)
@pytest.mark.parametrize("start", ["reasoning", "text", None])
def test_content_is_json_behind_any_reasoning(name, start):
    state = grammar(name).starts.get(start) or grammar(name).begin
    ended = 0
    for seed in range(8):
        way = Way(name, state, schema=SCHEMA)
        if not way.wander(seed, call_marks(name)):
            continue
        parser = Parser(grammar(name), start=start)
        events = []
        for token in way.reply:
            events += parser.feed(way.tokens.token_bytes(token).decode("latin-1"), token >= 256)
        events += parser.finish("stop")
        content = "".join(event.text for event in events if isinstance(event, TextDelta))
        ended += 1
        jsonschema_rs.validate(SCHEMA, json.loads(content))
    assert ended > 3


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
    whole = family.render(answered, cue=False).text
    reply = whole[whole.rindex(family.grammar.cue) + len(family.grammar.cue) :]
    for end in family.stops.tokens:
        reply = reply.rstrip("\n").removesuffix(end)
    assert Way(family.grammar.name, tools=TOOLS).follow(reply) == ""
