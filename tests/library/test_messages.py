"""What templates see of a conversation, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.conversation import Conversation, Media, Reasoning, Text, Tool, ToolCall, ToolResult, Turn
from colibri.errors import Where
from colibri.messages import Places, normalized, template_messages, template_tools


def messages(*turns):
    return template_messages(Conversation(turns))


def test_a_plain_turn_is_role_and_text():
    assert messages(Turn("user", (Text("hi"),))) == [{"role": "user", "content": "hi"}]


def test_null_content_is_absent_and_an_empty_string_is_not():
    assert messages(Turn("assistant", ())) == [{"role": "assistant"}]
    assert messages(Turn("assistant", (Text(""),))) == [{"role": "assistant", "content": ""}]


def test_a_list_stays_a_list():
    assert messages(Turn("user", (), listed=True)) == [{"role": "user", "content": []}]
    assert messages(Turn("user", (Text("a"), Text("b")), listed=True)) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    ]


def test_texts_that_were_no_list_join():
    assert messages(Turn("user", (Text("a"), Text("b"))))[0]["content"] == "ab"


def test_media_make_a_list():
    turn = Turn("user", (Text("see"), Media("image", "image/png", "data:x")))
    assert messages(turn)[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image", "image": "data:x"},
    ]


def test_reasoning_goes_by_both_names():
    (message,) = messages(Turn("assistant", (Reasoning("why"), Text("so"))))
    assert message == {"thinking": "why", "role": "assistant", "content": "so", "reasoning_content": "why"}
    assert list(message) == ["thinking", "role", "content", "reasoning_content"]


def test_extra_keys_are_kept_and_never_win():
    turn = Turn("system", (Text("s"),), extra={"name": "n", "tools": [1], "content": "other"})
    assert messages(turn) == [{"role": "system", "content": "s", "name": "n", "tools": [1]}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"b": 1, "a": [1.0, null]}', {"b": 1, "a": [1.0, None]}),
        ("[1, 2]", [1, 2]),
        ("not json", "not json"),
        ("", {}),
        (" \n", {}),
        ("[" * 100_000, "[" * 100_000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_arguments_are_what_their_json_spells(text, value):
    (message,) = messages(Turn("assistant", (ToolCall("f", text, "c1"),)))
    assert message["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": value}}
    ]


def test_a_call_without_id_has_none():
    (message,) = messages(Turn("assistant", (ToolCall("f", "{}"),)))
    assert "id" not in message["tool_calls"][0]


def test_every_tool_result_is_a_message():
    turn = Turn(
        "user",
        (
            Text("before"),
            ToolResult("a", (Text("1"),), name="f"),
            ToolResult(None, (Text("2"), Text("3")), listed=True),
            Text("after"),
            Text("wards"),
        ),
    )
    assert messages(turn) == [
        {"role": "user", "content": "before"},
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "1"},
        {"role": "tool", "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "3"}]},
        {"role": "user", "content": "afterwards"},
    ]


def test_normalized_drops_null_and_names_reasoning():
    given_ = {"role": "assistant", "content": None, "tool_calls": None, "reasoning": "r"}
    assert normalized([given_]) == [
        {"thinking": "r", "role": "assistant", "reasoning": "r", "reasoning_content": "r"}
    ]
    both = {"role": "assistant", "thinking": "t", "reasoning_content": "r"}
    assert normalized([both])[0] == {"role": "assistant", "thinking": "t", "reasoning_content": "r"}


def test_tools_keep_their_keys_and_order():
    declaration = {"type": "function", "function": {"parameters": {}, "name": "f"}, "x": 1}
    assert template_tools(Conversation((), (Tool(declaration),))) == [declaration]
    assert template_tools(Conversation(())) is None


PLACED = Conversation(
    (
        Turn("system", (Text("s"),), extra={"name": "n"}),
        Turn("user", (ToolResult("c", (Text("21"),), name="f"), Text("x"), Text("y")), listed=True),
        Turn("assistant", (Reasoning("r"), Text("t"), ToolCall("f", '{"a": 1}'), ToolCall("g", "{}"))),
        Turn("assistant", ()),
    )
)


@pytest.mark.parametrize(
    ("path", "where"),
    [
        (("messages", 0), Where(0)),
        (("messages", 0, "content"), Where(0, 0)),
        (("messages", 0, "role"), Where(0, field="role")),
        (("messages", 0, "name"), Where(0, field="name")),
        (("messages", 1, "content"), Where(1, 0)),
        (("messages", 1, "tool_call_id"), Where(1, 0, field="tool_call_id")),
        (("messages", 2, "content"), Where(1, 1)),
        (("messages", 2, "content", 1, "text"), Where(1, 2)),
        (("messages", 3, "thinking"), Where(2, 0)),
        (("messages", 3, "reasoning_content"), Where(2, 0)),
        (("messages", 3, "content"), Where(2, 1)),
        (("messages", 3, "tool_calls", 1, "function", "name"), Where(2, 3, field="name")),
        (
            ("messages", 3, "tool_calls", 0, "function", "arguments", "a", "@key"),
            Where(2, 2, field="arguments.a"),
        ),
        (("messages", 3, "tool_calls"), Where(2, field="tool_calls")),
        (("messages", 4, "content"), Where(3)),
        (("tools", 2, "function", "description"), Where(tool=2, field="function.description")),
        (("kwargs", "reasoning_effort"), Where(field="reasoning_effort")),
        (("bos_token",), Where()),
        ((), Where()),
    ],
)
def test_a_path_leads_to_its_turn_and_part(path, where):
    assert Places(PLACED).where(path) == where


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=3)),
    st.builds(Reasoning, st.text(max_size=3)),
    st.builds(ToolCall, st.just("f"), st.just("{}")),
    st.builds(ToolResult, st.just("c"), st.just((Text("r"),))),
)
TURNS = st.builds(
    Turn, st.sampled_from(["user", "assistant"]), st.lists(PARTS, max_size=5).map(tuple), st.booleans()
)


@given(st.lists(TURNS, max_size=4))
def test_every_message_has_its_turn(turns):
    conversation = Conversation(tuple(turns))
    places = Places(conversation)
    seen = [places.where(("messages", number)).turn for number in range(len(template_messages(conversation)))]
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(turns)))
