"""Chunks and whole replies: what clients read, and that both say the same."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from colibri.events import (
    Event,
    Finished,
    FinishReason,
    Framing,
    ReasoningDelta,
    TextDelta,
    ToolCallBroken,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallStart,
)
from colibri.protocols.base import Chunk, Offer, ProtocolError, Request, Usage
from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_chat_reply import fold_chunks
from colibri.protocols.openai_completions import COMPLETIONS

OFFER = Offer("m", max_choices=4, max_logprobs=32, echo=True, token_ids=True, tools=True)
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}},
}
USAGE = Usage(5, 3, 2)


def chat_request(**fields: Any) -> Request:
    return CHAT.parse({"messages": [{"role": "user", "content": "hi"}], **fields}, OFFER)


def text_request(**fields: Any) -> Request:
    return COMPLETIONS.parse({"prompt": "hi", **fields}, OFFER)


def call(index: int, name: str, *arguments: str) -> list[Event]:
    return [
        ToolCallStart(index, f"call_{index}", name, 0, 0),
        *(ToolCallDelta(index, text, 0, 0) for text in arguments),
        ToolCallEnd(index, 0, 0),
    ]


def done(reason: FinishReason = "stop") -> Event:
    return Finished(reason, 0, 0)


def stream(request: Request, events: list[Event], choices: int = 1) -> list[Chunk]:
    reply = CHAT.reply(request, 7)
    chunks = reply.start()
    for choice in range(choices):
        for event in events:
            chunks += reply.feed([event], choice=choice)
    return [*chunks, *reply.finish([USAGE] * choices)]


def whole(request: Request, events: list[Event]) -> Chunk:
    reply = CHAT.reply(request, 7)
    reply.start()
    reply.feed(events)
    return reply.whole([USAGE])


def deltas(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def test_a_stream_tells_role_then_deltas_then_finish_alone_then_usage() -> None:
    request = chat_request(stream=True, stream_options={"include_usage": True})
    events = [ReasoningDelta("r", 0, 1), Framing("layout", 1, 2), TextDelta("a", 2, 3), done()]
    chunks = stream(request, events)
    assert deltas(chunks) == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "r"},
        {"content": "a"},
        {},
    ]
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]] == [
        None,
        None,
        None,
        "stop",
    ]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_usage_is_absent_unless_wanted() -> None:
    chunks = stream(chat_request(stream=True), [TextDelta("a", 0, 1), done()])
    assert all("usage" not in chunk for chunk in chunks)


def test_a_call_is_named_once_and_then_streams_fragments() -> None:
    events = [*call(0, "f", '{"a":', "1}"), *call(1, "f", "{}"), done("tool_calls")]
    chunks = stream(chat_request(tools=[TOOL], stream=True), events)
    assert [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta] == [
        {"index": 0, "id": "call_0", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":'}},
        {"index": 0, "function": {"arguments": "1}"}},
        {"index": 1, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "function": {"arguments": "{}"}},
    ]
    assert chunks[-1]["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "tool_calls",
    }


def test_content_is_null_only_beside_tools() -> None:
    def content(request: Request, *events: Event) -> Any:
        return whole(request, [*events, done()])["choices"][0]["message"]["content"]

    assert content(chat_request()) == ""
    assert content(chat_request(tools=[TOOL])) is None
    assert content(chat_request(tools=[TOOL], tool_choice="none")) == ""
    assert content(chat_request(tools=[TOOL]), TextDelta("a", 0, 1)) == "a"


def test_reasoning_is_only_there_when_the_model_thought() -> None:
    assert "reasoning_content" not in whole(chat_request(), [done()])["choices"][0]["message"]
    thought = whole(chat_request(), [ReasoningDelta("r", 0, 1), done()])
    assert thought["choices"][0]["message"]["reasoning_content"] == "r"


PIECES = st.lists(
    st.one_of(
        st.builds(lambda text: [TextDelta(text, 0, 0)], st.text(min_size=1, max_size=4)),
        st.builds(lambda text: [ReasoningDelta(text, 0, 0)], st.text(min_size=1, max_size=4)),
        st.just([Framing("layout", 0, 0)]),
        st.lists(st.text(max_size=3), max_size=3),
    ),
    max_size=8,
)


def numbered(pieces: list[list[Any]]) -> list[Event]:
    events: list[Event] = []
    calls = 0
    for piece in pieces:
        if piece and not isinstance(piece[0], str):
            events += piece
        else:
            events += call(calls, "f", *piece)
            calls += 1
    return events


@given(PIECES, st.sampled_from(["stop", "length", "tool_calls"]), st.integers(1, 3), st.booleans())
def test_the_whole_reply_is_the_fold_of_the_stream(
    pieces: list[list[Any]], reason: FinishReason, choices: int, with_tools: bool
) -> None:
    tools = [TOOL] if with_tools else None
    request = chat_request(tools=tools, n=choices, stream=True)
    events = [*numbered(pieces), done(reason)]
    chunks = stream(request, events, choices)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    reply = CHAT.reply(evolve(request, stream=False), 7)
    for choice in range(choices):
        reply.feed(events, choice=choice)
    answer = reply.whole([USAGE] * choices)
    assert answer["choices"] == fold_chunks(chunks, null_content=with_tools)
    ChatCompletion.model_validate(answer)
    assert answer["usage"]["prompt_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 3 * choices


@given(st.lists(st.text(max_size=4), max_size=5), st.sampled_from(["stop", "length"]))
def test_a_completion_is_the_fold_of_its_stream(texts: list[str], reason: FinishReason) -> None:
    events = [*(TextDelta(text, 0, 0) for text in texts), done(reason)]
    reply = COMPLETIONS.reply(text_request(stream=True), 7)
    chunks = [*reply.start(), *(chunk for event in events for chunk in reply.feed([event]))]
    for chunk in chunks[:-1]:
        assert chunk["choices"][0]["finish_reason"] is None
    answer = reply.whole([USAGE])
    Completion.model_validate(answer)
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {
            "index": 0,
            "text": "".join(chunk["choices"][0]["text"] for chunk in chunks),
            "logprobs": None,
            "finish_reason": reason,
        }
    ]


def test_batches_answer_in_order_and_sum_their_usage() -> None:
    reply = COMPLETIONS.reply(text_request(prompt=["a", "b"], max_tokens=5), 7)
    reply.feed([TextDelta("B", 0, 1), done()], choice=1)
    reply.feed([TextDelta("A", 0, 1), done("length")], choice=0)
    answer = reply.whole([Usage(1, 2, 1), Usage(3, 4, 0, reasoning_tokens=1)])
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == [(0, "A"), (1, "B")]
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 6,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


def test_keepalives_are_chunks_that_add_nothing() -> None:
    chat = CHAT.reply(chat_request(stream=True), 7)
    alive = chat.keepalive((10, 90))
    assert alive["choices"][0]["delta"] == {"reasoning_content": ""}
    assert alive["prompt_progress"] == {"processed": 10, "total": 90}
    ChatCompletionChunk.model_validate(alive)
    assert chat.keepalive(mark=".")["choices"][0]["delta"] == {"reasoning_content": "."}
    text = COMPLETIONS.reply(text_request(stream=True), 7).keepalive()
    assert text["choices"][0]["text"] == ""
    assert "prompt_progress" not in text


SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "schema": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "s": {"type": "string", "pattern": "^(?=a)(a+)+$"}},
            "required": ["a"],
        }
    },
}


@pytest.mark.parametrize(
    ("text", "reason", "fits"),
    [
        ('{"a": 1}', "stop", True),
        (' {"a": 1, "s": "aa"}\n', "stop", True),
        ('{"a": "1"}', "stop", False),
        ("{}", "stop", False),
        ("", "stop", False),
        ('{"a": 1} and more', "stop", False),
        ('{"a": 1, "s": "' + "a" * 60 + '!"}', "stop", False),
        ('{"a": 1, "\\ud800": 1}', "stop", False),
        ('{"a": NaN}', "stop", False),
        ('{"a": ' + "[" * 100_000, "stop", False),
        ('{"a": ', "length", True),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_a_reply_must_fit_its_response_format_unless_cut(
    text: str, reason: FinishReason, fits: bool, streaming: bool
) -> None:
    chat = CHAT.reply(chat_request(response_format=SCHEMA, stream=streaming), 7)
    raw = COMPLETIONS.reply(text_request(response_format=SCHEMA, stream=streaming), 7)
    for reply in (chat, raw):
        reply.feed([TextDelta(text, 0, 0)])
        if fits:
            reply.feed([done(reason)])
            continue
        with pytest.raises(ProtocolError) as caught:
            reply.feed([done(reason)])
        wire = caught.value.wire
        assert (wire.status, wire.code, wire.param) == (502, "invalid_model_output", "response_format")


STRICT: dict[str, Any] = {
    "strict_tool_calls": True,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "f",
                "parameters": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "s": {"type": "string"}},
                    "required": ["n"],
                },
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (call(0, "f", '{"n": 1}'), None),
        ([TextDelta("just words", 0, 0)], None),
        (call(0, "g", "{}"), "undeclared function 'g'"),
        (call(0, "f", '{"n": 1, "x": 2}'), "unknown argument 'x'"),
        (call(0, "f", '{"n": 1, "n": 2}'), "duplicate argument"),
        (call(0, "f", '{"n": 3.0}'), "not an integer"),
        (call(0, "f", '{"n": true}'), "do not fit"),
        (call(0, "f", '{"n": "1"}'), "do not fit"),
        (call(0, "f", '{"s": "a"}'), "do not fit"),
        (call(0, "f", "[]"), "not an object"),
        (call(0, "f", "{"), "not JSON"),
        ([ToolCallBroken(None, "syntax", 0, 0)], "syntax"),
        ([*call(0, "f", '{"n": 1}'), ToolCallBroken(None, "unclosed", 0, 0)], "unclosed"),
    ],
)
def test_strict_tool_calls_let_only_fitting_calls_out(events: list[Event], words: str | None) -> None:
    reply = CHAT.reply(chat_request(**STRICT), 7)
    if words is None:
        reply.feed([*events, done("tool_calls")])
        return
    with pytest.raises(ProtocolError, match=words) as caught:
        reply.feed([*events, done("tool_calls")])
    wire = caught.value.wire
    assert (wire.status, wire.code, wire.type, wire.param) == (
        502,
        "invalid_model_tool_call",
        "server_error",
        None,
    )


def test_a_strict_call_cut_at_the_limit_is_refused() -> None:
    reply = CHAT.reply(chat_request(**STRICT), 7)
    with pytest.raises(ProtocolError, match="generation limit"):
        reply.feed([ToolCallStart(0, "c", "f", 0, 0), ToolCallBroken(0, "cut", 0, 0), done("length")])
