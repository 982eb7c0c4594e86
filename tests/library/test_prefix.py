"""Where a prompt does not go on from the one before, and why; and what variants claim about it."""

import json

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Reasoning, Text, Thinking, ToolCall, ToolChoice, Turn
from colibri.corpus import conversations
from colibri.errors import ColibriError, RenderError, Where
from colibri.prefix import check_prefixes
from colibri.stability import stability

FAMILIES = colibri.load()
CORPUS = conversations()
PING = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {}}}

every_family = pytest.mark.parametrize("family_id", FAMILIES)


def chat(*messages, tools=(), **fields):
    return evolve(colibri.conversation_from_openai(list(messages), list(tools)), **fields)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, reasoning=None, **arguments):
    calls = [
        {"id": name, "type": "function", "function": {"name": "ping", "arguments": value}}
        for name, value in arguments.items()
    ]
    message = {"role": "assistant", "content": text, "reasoning_content": reasoning}
    return message | ({"tool_calls": calls} if calls else {})


def broken(family_id, conversation):
    return [step.broken for step in check_prefixes(FAMILIES[family_id], conversation) if step.broken]


@every_family
def test_what_a_variant_claims_is_so(family_id):
    assert FAMILIES[family_id].features.prefix_stable == stability(FAMILIES[family_id])


@every_family
def test_extending_agrees_with_the_claim(family_id):
    """Where prompts are stable a reply is extended by a question; where the past is rewritten it is not."""
    family = FAMILIES[family_id]
    stable = family.features.prefix_stable
    asked = chat(user("One?"))
    reply = Turn("assistant", (Text("Yes."),))
    if family.features.thinking != "none":
        reply = evolve(reply, parts=(Reasoning("Because."), *reply.parts))
    for preserve in (None, True, False) if family.features.preserve_thinking else (None,):
        thinking = Thinking(enabled=True if family.features.thinking == "switch" else None, preserve=preserve)
        before = evolve(asked, thinking=thinking)
        prompt = family.render(before)
        said = family.render(evolve(before, turns=(*before.turns, reply)), cue=False).text
        text = said[len(prompt.text) :]
        cut = max((text.rfind(token) for token in family.stops.tokens), default=-1)
        text = text if cut < 0 else text[:cut]
        question = Turn("user", (Text("Two?"),))
        after = family.render(evolve(before, turns=(*before.turns, reply, question)))
        extended = family.extend(prompt, text, [question])
        if stable == "always" or (stable == "preserved" and preserve is True):
            assert extended.text == after.text
        elif stable == "never" or preserve is False:
            assert extended is None
            assert not after.text.startswith(prompt.text + text)


@every_family
def test_every_step_tells_the_truth(family_id):
    """What is kept is equal in both prompts and the next character is not; whole steps start the next."""
    family = FAMILIES[family_id]
    for conversation in CORPUS.values():
        try:
            steps = check_prefixes(family, conversation)
        except ColibriError:
            continue
        for step in steps:
            asked = family.render(evolve(conversation, turns=conversation.turns[: step.turn])).text
            following = family.render(evolve(conversation, turns=conversation.turns[: step.next_turn])).text
            common = min(step.kept, len(asked))
            assert following[:common] == asked[:common]
            if step.kept < len(asked):
                assert following[step.kept : step.kept + 1] != asked[step.kept]
            assert (step.broken is None) == (step.kept == step.length)
            assert step.broken is None or step.broken.difference.at == step.kept


def test_the_last_turn_has_no_next_prompt():
    assert check_prefixes(FAMILIES["glm52"], chat(user("u"), assistant("a"))) == ()
    assert check_prefixes(FAMILIES["glm52"], chat(user("u"))) == ()


def test_a_reply_that_was_never_asked_for_is_left_out():
    steps = check_prefixes(FAMILIES["olmoe"], chat(assistant("Hi."), user("u"), assistant("a"), user("v")))
    assert [step.turn for step in steps][-1] == 2


def test_a_refused_conversation_is_refused():
    with pytest.raises(RenderError):
        check_prefixes(FAMILIES["qwen36"], chat(user("u"), assistant("a"), {"role": "odd", "content": "x"}))


@pytest.mark.parametrize(
    "family_id", ["glm52", "glm47", "qwen36", "qwen35", "deepseek_v4", "gpt_oss", "gemma4"]
)
def test_reasoning_dropped(family_id):
    talk = chat(user("One?"), assistant("Yes.", "Because."), user("Two?"), thinking=Thinking(enabled=True))
    (found,) = broken(family_id, talk)
    assert found.cause == "reasoning"
    assert found.where == Where(1, 0)
    assert "drops the reasoning of turn 1 once turn 2 is there" in found.message
    keepable = FAMILIES[family_id].features.prefix_stable == "preserved"
    assert ("preserve_thinking keeps it" in found.message) == keepable
    assert not broken(family_id, evolve(talk, thinking=Thinking(True, preserve=True))) or not keepable


def test_reasoning_dropped_farther_back():
    """In a tool loop all reasoning is there; the next question takes that of earlier turns away."""
    talk = chat(
        user("One?"),
        assistant("", "First.", call="{}"),
        {"role": "tool", "tool_call_id": "call", "content": "r"},
        assistant("Yes.", "Second."),
        user("Two?"),
        tools=[PING],
    )
    steps = check_prefixes(FAMILIES["glm52"], talk)
    assert [step.broken is None for step in steps] == [True, False]
    assert (steps[1].turn, steps[1].broken.where) == (3, Where(1, 0))


@pytest.mark.parametrize("family_id", ["glm47", "qwen36"])
def test_reasoning_that_never_came_back(family_id):
    (found,) = broken(family_id, chat(user("One?"), assistant("Yes."), user("Two?")))
    assert found.cause == "thinking_block"
    assert "turn 1 has no reasoning" in found.message


def test_reasoning_although_thinking_was_off():
    talk = chat(user("u"), assistant("a", "r"), user("v"), thinking=Thinking(enabled=False))
    (found,) = broken("mimo26", talk)
    assert found.cause == "thinking_block"
    assert found.message == "turn 1 has reasoning, although its prompt left no room for any"


@pytest.mark.parametrize(
    ("family_id", "text"),
    [("glm52", "  Yes."), ("glm52", "Yes.\n"), ("gemma4", " Yes. "), ("qwen38", "Yes. ")],
)
def test_stripping(family_id, text):
    talk = chat(user("u"), assistant(text, "r" if family_id == "qwen38" else None), user("v"))
    (found,) = broken(family_id, talk)
    assert found.cause == "stripped"
    assert found.where.turn == 1
    assert talk.turns[1].parts[found.where.part] == Text(text)


def test_a_format_that_strips_nothing():
    assert not broken("mimo26", chat(user("u"), assistant("  Yes.\n", " r "), user("v")))


@pytest.mark.parametrize(
    ("family_id", "arguments", "field"),
    [
        ("inkling", '{"b": 1}', "arguments"),
        ("inkling", '{"b":1,"a":2}', "arguments"),
        ("gpt_oss", '{"b":1}', "arguments"),
        ("kimi_k3", '{"b": [1,2]}', "arguments.b"),
        ("deepseek_v4", '{"a": "x", "b": {"c":1}}', "arguments.b"),
        ("qwen38", '{"b": {"c":1}}', "arguments.b"),
        ("glm53", '{"b":[1,  2]}', "arguments.b"),
        ("glm53", '{"b":1e2}', "arguments.b"),
    ],
)
def test_arguments_spelled_otherwise(family_id, arguments, field):
    tool = json.loads(json.dumps(PING))
    result = {"role": "tool", "tool_call_id": "call", "content": "r"}
    talk = chat(user("u"), assistant("", "r", call=arguments), result, tools=[tool])
    (found,) = broken(family_id, talk)
    assert found.cause == "arguments"
    assert found.where.turn == 1
    assert found.where.field == field
    assert isinstance(talk.turns[1].parts[found.where.part], ToolCall)
    decoded = json.dumps(json.loads(arguments), sort_keys=True, separators=(",", ":"))
    same = decoded if family_id == "inkling" else json.dumps(json.loads(arguments))
    assert not broken(family_id, chat(user("u"), assistant("", "r", call=same), result, tools=[tool]))


def test_what_is_written_at_another_place():
    """Kimi K3 tells the tool choice behind the conversation, wherever that ends."""
    result = {"role": "tool", "tool_call_id": "call", "content": "r"}
    talk = chat(user("u"), assistant("", call="{}"), result, tools=[PING], tool_choice=ToolChoice("required"))
    (found,) = broken("kimi_k3", talk)
    assert found.cause == "moved"
    (found,) = broken("gemma4", chat(user("u"), assistant("Let me.", call="{}"), result, tools=[PING]))
    assert found.cause == "moved"
    assert found.where.turn == 1
