"""Log probability objects: they describe the returned text, exactly."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from colibri.events import Finished, TextDelta
from colibri.protocols.base import Offer, ProtocolError, Request
from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_chat_reply import fold_chunks
from colibri.protocols.openai_completions import COMPLETIONS

OFFER = Offer("m", max_logprobs=32, echo=True, token_ids=True)
NAN, INF = math.nan, -math.inf


@frozen
class Row:
    token_id: int
    logprob: float
    data: bytes | None = None


@frozen
class Tok:
    text: str
    logprob: float | None = -0.5
    top: tuple[Row, ...] = ()
    data: bytes = b""
    token_id: int | None = None
    cut: bool = False


def token(text: str, **fields: Any) -> Tok:
    return Tok(text, **{"data": text.encode(), **fields})


def chat_request(**fields: Any) -> Request:
    body = {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 2}
    return CHAT.parse(body | fields, OFFER)


def chat(tokens: list[Tok], request: Request | None = None, *, finite: bool = True) -> dict[str, Any]:
    reply = CHAT.reply(request or chat_request(), 1)
    text = "".join(token.text for token in tokens)
    reply.feed([TextDelta(text, 0, 0), Finished("stop", 0, 0)], tokens)
    answer = reply.whole([])
    json.dumps(answer, allow_nan=False)
    if finite:  # the SDK's type has no null, which the API promises for other values
        ChatCompletion.model_validate(answer)
    return answer["choices"][0]["logprobs"]  # type: ignore[no-any-return]


def completion(tokens: list[Tok], *, echo: list[Tok] | None = None, most: int = 2) -> dict[str, Any]:
    body = {"prompt": "p", "logprobs": most, "echo": echo is not None}
    reply = COMPLETIONS.reply(COMPLETIONS.parse(body, OFFER), 1)
    if echo is not None:
        reply.echo(echo)
    text = "".join(token.text for token in tokens)
    reply.feed([TextDelta(text, 0, 0), Finished("stop", 0, 0)], tokens)
    choice = reply.whole([])["choices"][0]
    json.dumps(choice, allow_nan=False)
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    return choice  # type: ignore[no-any-return]


def test_chat_entries_name_their_own_row_by_its_exact_value() -> None:
    rows = (Row(7, -2.0), Row(3, -0.5), Row(4, -0.5))
    (entry,) = chat([token("Hé", top=rows)])["content"]
    assert entry == {
        "token": "Hé",
        "logprob": -0.5,
        "bytes": [72, 195, 169],
        "top_logprobs": [
            {"token": "<token_id:7>", "logprob": -2.0, "bytes": None},
            {"token": "Hé", "logprob": -0.5, "bytes": [72, 195, 169]},
        ],
    }


def test_an_id_decides_between_equal_values() -> None:
    rows = (Row(3, -0.5), Row(4, -0.5))
    arrays = completion([token("a", top=rows, token_id=4)])["logprobs"]
    assert arrays["top_logprobs"] == [{"<token_id:3>": -0.5, "a": -0.5}]


def test_a_token_outside_its_table_has_no_row_there() -> None:
    (entry,) = chat([token("a", logprob=-9.0, top=(Row(1, -0.1), Row(2, -0.2)))])["content"]
    assert entry["logprob"] == -9.0
    assert [row["token"] for row in entry["top_logprobs"]] == ["<token_id:1>", "<token_id:2>"]


def test_spelled_candidates_have_their_text() -> None:
    rows = (Row(1, -1.0, b"yes"), Row(2, -2.0, b"\xc3"), Row(3, -0.5, b"no"))
    (entry,) = chat([token("no", top=rows, token_id=3)], chat_request(top_logprobs=3))["content"]
    assert [(row["token"], row["bytes"]) for row in entry["top_logprobs"]] == [
        ("yes", list(b"yes")),
        ("bytes:\\xc3", [0xC3]),
        ("no", list(b"no")),
    ]


def test_rows_with_one_spelling_keep_apart() -> None:
    rows = (Row(1, -1.0, b"a"), Row(2, -2.0, b"a"))
    arrays = completion([token("z", logprob=-3.0, top=rows)])["logprobs"]
    assert arrays["top_logprobs"] == [{"a": -1.0, "<token_id:2>": -2.0}]


def test_a_cut_token_is_cut_with_its_bytes() -> None:
    cut = Tok("Hel", -0.5, (Row(1, -0.5),), data=b"Hello", cut=True)
    (entry,) = chat([cut])["content"]
    assert bytes(entry["bytes"]) == b"Hel"
    assert bytes(entry["top_logprobs"][0]["bytes"]) == b"Hel"


def test_part_of_a_code_point_keeps_its_own_bytes() -> None:
    halves = [Tok("", data=b"\xc3"), Tok("é", data=b"\xa9")]
    first, second = chat(halves)["content"]
    assert (first["token"], first["bytes"]) == ("", [0xC3])
    assert (second["token"], second["bytes"]) == ("é", [0xA9])


def test_numbers_that_are_not_finite_are_null() -> None:
    rows = (Row(1, NAN), Row(2, INF))
    (entry,) = chat([token("a", logprob=INF, top=rows)], finite=False)["content"]
    assert entry["logprob"] is None
    assert [row["logprob"] for row in entry["top_logprobs"]] == [None, None]
    arrays = completion([token("a", logprob=NAN, top=rows)])["logprobs"]
    assert arrays["token_logprobs"] == [None]
    assert set(arrays["top_logprobs"][0].values()) == {None}


def test_no_alternatives_were_asked_for() -> None:
    (entry,) = chat([token("a", top=(Row(1, -0.5),))], chat_request(top_logprobs=0))["content"]
    assert entry["top_logprobs"] == []
    assert chat([])["content"] == []


def test_echo_comes_first_and_offsets_count_the_returned_text() -> None:
    choice = completion([token("cd"), token("e")], echo=[token("aé", logprob=None), token("b")])
    assert choice["text"] == "aébcde"
    assert choice["logprobs"]["text_offset"] == [0, 2, 3, 5]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(isinstance(row, dict) for row in choice["logprobs"]["top_logprobs"])
    assert completion([token("cd"), token("e")])["logprobs"]["text_offset"] == [0, 2]
    assert completion([])["logprobs"] == {
        "tokens": [],
        "token_logprobs": [],
        "top_logprobs": [],
        "text_offset": [],
    }


@pytest.mark.parametrize("records", [[], ["a"], ["a", "b", "c"]])
def test_records_that_do_not_spell_the_text_are_a_named_fault(records: list[str]) -> None:
    events = [TextDelta("ab", 0, 2), Finished("stop", 2, 2)]
    tokens = [token(text) for text in records]
    chat_reply = CHAT.reply(chat_request(), 1)
    text_reply = COMPLETIONS.reply(COMPLETIONS.parse({"prompt": "p", "logprobs": 1}, OFFER), 1)
    for reply in (chat_reply, text_reply):
        with pytest.raises(ProtocolError) as caught:
            reply.feed(events, tokens)
        wire = caught.value.wire
        assert (wire.status, wire.type) == (500, "server_error")
        assert (wire.code, wire.param) == ("engine_logprob_records_incomplete", "logprobs")


def test_a_token_without_a_log_probability_is_a_named_fault() -> None:
    for make in (chat, completion):
        with pytest.raises(ProtocolError) as caught:
            make([token("a"), token("b", logprob=None)])
        wire = caught.value.wire
        assert (wire.status, wire.code) == (500, "engine_logprob_records_incomplete")
        assert wire.param == "logprobs"


def test_a_repeated_candidate_is_a_named_fault() -> None:
    twice = [token("a", top=(Row(1, -1.0), Row(2, -2.0), Row(1, -3.0)))]
    for make, param in ((chat, "top_logprobs"), (completion, "logprobs")):
        with pytest.raises(ProtocolError) as caught:
            make(twice)
        assert caught.value.wire.code == "engine_duplicate_logprob_candidate"
        assert caught.value.wire.param == param


@given(st.lists(st.lists(st.text(max_size=3), max_size=3), max_size=4))
def test_a_stream_describes_every_token_once(steps: list[list[str]]) -> None:
    reply = CHAT.reply(chat_request(stream=True), 1)
    chunks = reply.start()
    for texts in steps:
        joined = "".join(texts)
        events = [TextDelta(joined, 0, 0)] if joined else []
        chunks += reply.feed(events, [token(text) for text in texts])
    chunks += reply.feed([Finished("stop", 0, 0)])
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    (choice,) = fold_chunks(chunks)
    described = [] if choice["logprobs"] is None else choice["logprobs"]["content"]
    assert [entry["token"] for entry in described] == [text for texts in steps for text in texts]
    assert choice["message"]["content"] == "".join(text for texts in steps for text in texts)
