"""What a format refuses is told about the conversation, never in the template engine's words."""

import re

import pytest

import colibri
from colibri.errors import ColibriError

FAMILIES = colibri.load()
INTERNAL = re.compile(
    r"Error\b|has no (attribute|element)|is undefined|object of type|not callable|Undefined"
)

USER = {"role": "user", "content": "Hi"}
CONTENTS = ["", "x", None, [], [{"type": "text", "text": "x"}], [{"type": "image_url", "image_url": "u"}]]
CALLS = [
    None,
    [],
    *([{"function": {"name": "f", "arguments": a}}] for a in (None, "", "x", "[1]", {"a": {}})),
]
ASSISTANTS = [
    {"role": "assistant", "content": content, "tool_calls": calls} for content in CONTENTS for calls in CALLS
]
MESSAGES = [
    [],
    *([{"role": role, "content": content}] for role in ("system", "user", "tool") for content in CONTENTS),
    *([USER, message] for message in ASSISTANTS),
    *([USER, message, {"role": "tool", "content": "21", "tool_call_id": "c"}] for message in ASSISTANTS),
    *([USER, {"role": role, "content": "x"}] for role in ("system", "developer", "tool", "function", "x")),
    [{"role": "assistant"}, {"role": "assistant", "reasoning_content": "r"}],
]
SCHEMAS = [
    None,
    {},
    {"properties": {"a": {}, "b": {"type": ["integer", "null"], "enum": [1]}}, "required": ["a"]},
]
FUNCTIONS = [
    {"name": "f", "parameters": schema, **more} for schema in SCHEMAS for more in ({}, {"description": "d"})
]
TOOLS = [*FUNCTIONS, *({"type": "function", "function": function} for function in FUNCTIONS)]


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_refusal_is_a_sentence_about_the_conversation(name):
    conversations = [(messages, None) for messages in MESSAGES] + [([USER], [tool]) for tool in TOOLS]
    told = set()
    for messages, tools in conversations:
        for last in (False, True):
            conversation = colibri.conversation_from_openai(messages, tools, open_last=last)
            try:
                FAMILIES[name].render(conversation)
            except ColibriError as error:
                told.add(error.message)
    assert [message for message in told if INTERNAL.search(message)] == []
