import pytest
from attrs import evolve

import colibri
from colibri import conversation_from_openai
from colibri.conversation import Reasoning, Text, Thinking, ToolCall, ToolResult, Turn
from colibri.corpus import conversations
from colibri.errors import ConversationError, RequestError
from colibri.framing import check_continuation, fold, serve_defaults
from colibri.testing import written

FAMILIES = colibri.load()
CORPUS = conversations()


def turns(conversation):
    return [
        (turn.role, "".join(part.text for part in turn.parts if isinstance(part, Text)))
        for turn in conversation.turns
    ]


def talk(*messages):
    return conversation_from_openai([{"role": role, "content": content} for role, content in messages])


@pytest.fixture
def strict():
    return FAMILIES["qwen36"]


@pytest.fixture
def plain():
    return FAMILIES["smollm2"]


@pytest.mark.parametrize(
    ("given", "folded"),
    [
        ([("system", "a"), ("system", "b"), ("user", "u")], [("system", "a\n\nb"), ("user", "u")]),
        ([("developer", "a"), ("user", "u")], [("system", "a"), ("user", "u")]),
        ([("user", "u"), ("system", "s")], [("user", "u\n\ns")]),
        (
            [("user", "u"), ("assistant", "a"), ("system", "s"), ("user", "v")],
            [("user", "u"), ("assistant", "a"), ("user", "s\n\nv")],
        ),
        (
            [("user", "u"), ("assistant", "a"), ("system", "s"), ("assistant", "b")],
            [("user", "u"), ("assistant", "a"), ("user", "s"), ("assistant", "b")],
        ),
        ([("user", "u"), ("system", "s"), ("system", "t")], [("user", "u\n\ns\n\nt")]),
        (
            [("user", "u"), ("assistant", "a"), ("system", "s"), ("system", "t")],
            [("user", "u"), ("assistant", "a"), ("user", "s\n\nt")],
        ),
        ([("system", "only")], [("system", "only")]),
        ([("user", "u"), ("user", "v")], [("user", "u"), ("user", "v")]),
    ],
)
def test_system_turns_find_a_place(strict, given, folded):
    assert not strict.folding.late_system
    assert turns(fold(talk(*given), strict)) == folded


def test_families_that_take_late_system_turns_keep_them():
    family = FAMILIES["glm52"]
    assert family.folding.late_system
    given = [("user", "u"), ("developer", "s"), ("user", "v")]
    assert turns(fold(talk(*given), family)) == [("user", "u"), ("system", "s"), ("user", "v")]


def test_parts_join_where_a_format_takes_only_strings(plain):
    conversation = talk(("user", [{"type": "text", "text": "one "}, {"type": "input_text", "text": "two"}]))
    (turn,) = fold(conversation, plain).turns
    assert turn == Turn("user", (Text("one two"),))


def test_null_becomes_an_empty_string_where_a_format_takes_only_strings(plain):
    conversation = talk(("user", "u"), ("assistant", None))
    assert fold(conversation, plain).turns[1] == Turn("assistant", (Text(""),))


def test_tool_results_join_where_a_format_takes_only_strings(plain):
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    conversation = conversation_from_openai([{"role": "tool", "tool_call_id": "x", "content": parts}])
    (turn,) = fold(conversation, plain).turns
    assert turn.parts == (ToolResult("x", (Text("ab"),)),)


def test_an_unknown_role_is_refused_by_its_place(plain):
    with pytest.raises(ConversationError, match=r"`messages.1.role` is 'critic'") as caught:
        fold(talk(("user", "u"), ("critic", "c")), plain)
    assert caught.value.where.turn == 1


@pytest.mark.parametrize("family_id", list(FAMILIES))
@pytest.mark.parametrize("case", list(CORPUS))
def test_folding_twice_changes_nothing_more(family_id, case):
    family = FAMILIES[family_id]
    once = fold(CORPUS[case], family)
    assert fold(once, family) == once


TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "tools", "field"),
    [
        ([("user", "u"), ("assistant", "a")], [TOOL], "tools"),
        ([("assistant", "a")], None, "messages"),
        ([("user", "u"), ("assistant", "")], None, "content"),
        ([("user", "u"), ("assistant", None)], None, "content"),
        ([("user", "u"), ("assistant", "a ")], None, "content"),
        ([("user", "u"), ("assistant", "a\n")], None, "content"),
    ],
)
def test_what_cannot_be_continued(messages, tools, field):
    conversation = evolve(talk(*messages), tools=conversation_from_openai([], tools).tools)
    with pytest.raises(RequestError) as caught:
        check_continuation(conversation)
    assert caught.value.where.field == field


def test_tool_calls_cannot_be_continued():
    conversation = conversation_from_openai(
        [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a", "tool_calls": [CALL]}]
    )
    with pytest.raises(RequestError, match="tool calls"):
        check_continuation(conversation)


def test_a_text_can_be_continued():
    check_continuation(talk(("user", "u"), ("assistant", "a")))


def test_serving_defaults_fill_only_what_is_open(strict):
    assert serve_defaults(talk(("user", "u")), strict).thinking == Thinking(enabled=False, preserve=True)
    asked = evolve(talk(("user", "u")), thinking=Thinking(effort="high"))
    assert serve_defaults(asked, strict).thinking == Thinking(effort="high", preserve=False)
    kept = evolve(talk(("user", "u")), thinking=Thinking(enabled=True, preserve=True))
    assert serve_defaults(kept, strict).thinking == Thinking(enabled=True, preserve=True)


def replies(family_id):
    return list(written(FAMILIES[family_id], CORPUS))


EXTENDED = [(family_id, reply.name) for family_id in FAMILIES for reply in replies(family_id)]


@pytest.mark.parametrize(("family_id", "name"), EXTENDED)
def test_an_extended_prompt_is_the_rendered_one(family_id, name):
    """Where a reply was written canonically, extending and rendering agree, or extending declines."""
    family = FAMILIES[family_id]
    reply = next(reply for reply in replies(family_id) if reply.name == name)
    if reply.calls:
        following = [Turn("tool", (ToolResult(call.id, (Text("done"),), call.name),)) for call in reply.calls]
    else:
        following = [Turn("user", (Text("And then?"),))]
    whole = family.render(evolve(reply.after, turns=(*reply.after.turns, *following)))
    extended = family.extend(reply.prompt, reply.text, following)
    if extended is None:
        assert not whole.text.startswith(reply.prompt.text + reply.text)
        return
    assert extended.text == whole.text
    assert extended.start == whole.start
    assert extended.segments[-1].end == len(extended.text)


def test_extending_keeps_what_was_sampled_to_the_letter():
    """A reply that the format would write differently stays as the model wrote it."""
    family = FAMILIES["qwen36"]
    conversation = evolve(talk(("user", "u")), thinking=Thinking(enabled=True, preserve=True))
    prompt = family.render(conversation)
    odd = "thought \n\n</think>\n\n\n  An answer.  "
    extended = family.extend(prompt, odd, [Turn("user", (Text("v"),))])
    assert extended is not None
    assert extended.text.startswith(prompt.text + odd + "<|im_end|>\n<|im_start|>user\nv<|im_end|>\n")


def test_extending_declines_where_the_past_is_rewritten():
    family = FAMILIES["qwen36"]
    prompt = family.render(evolve(talk(("user", "u")), thinking=Thinking(enabled=True)))
    assert family.extend(prompt, "t\n</think>\n\na", [Turn("user", (Text("v"),))]) is None


def test_a_tool_loop_extends_although_a_new_question_would_not():
    family = FAMILIES["glm52"]
    conversation = conversation_from_openai([{"role": "user", "content": "u"}], [TOOL])
    prompt = family.render(conversation)
    reply = "I call.</think><tool_call>f</tool_call>"
    result = Turn("tool", (ToolResult(None, (Text("r"),)),))
    extended = family.extend(prompt, reply, [result])
    assert extended is not None
    assert extended.text.startswith(prompt.text + reply + "<|observation|><tool_response>r</tool_response>")
    assert family.extend(prompt, "Thought.</think>Said.", [Turn("user", (Text("v"),))]) is None


def test_parts_of_the_model_are_values():
    assert ToolCall("f", "{}") == ToolCall("f", "{}")
    assert Reasoning("r") != Text("r")
