"""Tool calls on a channel of their own: what comes that way is authentic, all other text is not."""

from __future__ import annotations

import pytest

import colibri
from colibri.pipeline import ReplyStream
from colibri_engine.api import Job, Piece
from colibri_engine.session import Exchange
from colibri_engine.wire import ReplyReader

CALL = (
    '<|open|>tools<|sep|><|open|>call tool="f" index="1"<|sep|><|open|>argument key="k" type="string"<|sep|>v'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"k": {}}}}}]


def frame(kind, text):
    data = text.encode()
    return f"{kind} 1 {len(data)}\n".encode() + data + b"\n"


def pieces(*frames):
    """What a job hears of these frames, as pieces."""
    exchange = Exchange(Job("p", 1), lambda: None)
    for message in ReplyReader().feed(b"\x01\x01READY\x01\x01\nSTAT 0 0 0 0\n" + b"".join(frames)):
        if hasattr(message, "event"):
            exchange.take(message.event)
    heard = [exchange.inbox.get_nowait() for _ in range(exchange.inbox.qsize())]
    return [event for event in heard if isinstance(event, Piece)]


def test_a_declared_channel_makes_all_other_text_ordinary():
    heard = pieces(frame("TOOL", ""), frame("DATA", "a"), frame("TOOL", "b"), frame("DATA", "c"))
    assert [(piece.data, piece.control) for piece in heard] == [(b"a", False), (b"b", True), (b"c", False)]


def test_without_a_channel_nobody_can_tell():
    assert [piece.control for piece in pieces(frame("DATA", "a"), frame("DATA", "b"))] == [None, None]


@pytest.mark.parametrize(("kind", "calls"), [("TOOL", ["f"]), ("DATA", [])])
def test_only_the_channel_makes_a_call(kind, calls):
    family = colibri.load()["kimi_k3"]
    tools = colibri.conversation_from_openai([], TOOLS).tools
    stream = ReplyStream(family.new_parser(tools, start="text"))
    events = []
    for piece in pieces(frame("TOOL", ""), frame("DATA", "Said. "), frame(kind, CALL)):
        events += stream.feed(piece).events
    said = colibri.fold([*events, *stream.finish("stop").events])
    assert [call.name for call in said.tool_calls] == calls
    assert said.content.startswith("Said. ")
    assert (CALL in said.content) is not bool(calls)
