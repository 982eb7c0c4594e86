"""Token records of an engine in a process of its own: what is wrong with them is said by name, over HTTP."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from tests.engine.frames_of_tokens import (
    ACCEPT,
    DONE,
    GOOD,
    INCOMPLETE,
    MALFORMED,
    ORDERS,
    PINNED,
    TWICE,
    echo,
    scripted,
    spelled,
)

BARE = "DATA ID 2\nhi"
REPLIES = {
    (BARE,): INCOMPLETE,
    (GOOD, BARE): INCOMPLETE,
    (BARE, GOOD): INCOMPLETE,
    (GOOD, BARE, GOOD): INCOMPLETE,
    ("DATA ID 1\n\xc3", "DATA ID 1 -0.5 0\n\xa9"): INCOMPLETE,
    ("TOOL ID 2\nhi",): INCOMPLETE,
    ("DATA ID 2 -0.5 2 7 -0.5 7 -0.5\nhi",): TWICE,
    (GOOD, "DATA ID 2 -0.5 3 7 -0.5 8 -1 7 -0.5\nhi"): TWICE,
}
"""Frames of a reply of which not all tokens have a log probability, or a candidate comes twice."""


@pytest.fixture
async def ask(serve, tmp_path):
    """`await ask(*frames, **fields)`: status and body of a text completion, or of a chat one with `chat`."""
    async with asyncio.timeout(60), served(serve, tmp_path) as live:

        async def send(*frames, chat=False, **fields):
            if chat:
                return (await live.chat(spelled(*frames), logprobs=True, **fields))[:2]
            body = {"prompt": spelled(*frames), "logprobs": 1, **fields}
            return (await live.json("POST", "/v1/completions", json=body))[:2]

        yield send


@asynccontextmanager
async def served(serve, folder):
    async with scripted(folder) as (engine, _), serve(engine, kv_slots=2) as live:
        yield live


def fault(answer):
    status, body = answer
    return status, body.get("error", body).get("code"), body.get("error", body).get("type")


@pytest.mark.parametrize("chat", [False, True])
async def test_every_token_of_the_text_has_its_record(ask, chat):
    for frames, code in REPLIES.items():
        answer = await ask(ACCEPT, *frames, DONE, chat=chat)
        assert fault(answer) == (500, code, "server_error"), frames
        assert answer[1]["error"]["param"] in ("logprobs", "top_logprobs")
    status, body = await ask(ACCEPT, GOOD, "DATA ID 2 nan 1 7 -inf\nhi", DONE, chat=chat)
    assert status == 200
    logprobs = body["choices"][0]["logprobs"]
    values = [entry["logprob"] for entry in logprobs["content"]] if chat else logprobs["token_logprobs"]
    assert values == [-0.5, None]


@pytest.mark.parametrize("chat", [False, True])
async def test_tokens_that_are_not_returned_need_no_record(ask, chat):
    status, body = await ask(ACCEPT, GOOD, "DATA ID 3\nEND", GOOD, DONE, chat=chat, stop="END")
    assert status == 200
    choice = body["choices"][0]
    assert (choice["message"]["content"] if chat else choice["text"]) == "hi"
    assert (await ask(ACCEPT, DONE, chat=chat))[0] == 200


async def test_the_prompt_is_echoed_whole_or_not_at_all(ask):
    for positions, code in ORDERS.items():
        for reply in ((GOOD,), ()):
            answer = await ask(ACCEPT, *map(echo, positions), *reply, DONE, echo=True)
            assert fault(answer) == (503 if code == PINNED else 500, code, "server_error"), positions
            assert answer[1]["error"]["param"] == "echo"
    for frames in ((echo(0), GOOD, echo(1), echo(2)), (GOOD, *map(echo, range(3)))):
        assert fault(await ask(ACCEPT, *frames, DONE, echo=True))[:2] == (500, INCOMPLETE)


@pytest.mark.parametrize("positions", [(0, 1, 2), (1, 0, 2), (2, 1, 0), (2, 0, 1)])
async def test_echoed_tokens_are_in_the_order_of_their_positions(ask, positions):
    status, body = await ask(ACCEPT, *map(echo, positions), GOOD, DONE, echo=True)
    assert (status, body["choices"][0]["text"]) == (200, "abchi")
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["a", "b", "c", "hi"],
        "token_logprobs": [None, -1.0, -2.0, -0.5],
        "top_logprobs": [{"<token_id:0>": -1.0}, {"b": -1.0}, {"<token_id:2>": -1.0}, {"hi": -0.5}],
        "text_offset": [0, 1, 2, 3],
    }


async def test_an_engine_that_does_not_say_how_long_the_prompt_is(ask):
    unsaid = "DONE ID STAT 1 1 0 0"
    status, body = await ask(*map(echo, (1, 0)), GOOD, unsaid, echo=True)
    assert (status, body["choices"][0]["text"]) == (200, "abhi")
    for positions, code in ((), INCOMPLETE), ((0, 2), INCOMPLETE), ((1, 2), PINNED):
        assert fault(await ask(*map(echo, positions), GOOD, unsaid, echo=True))[1] == code


async def test_an_echoed_prompt_whose_reply_ends_at_once_keeps_its_blank_record(ask):
    status, body = await ask(ACCEPT, *map(echo, range(3)), DONE, echo=True, max_tokens=1)
    assert status == 200
    assert body["choices"][0]["logprobs"]["tokens"] == ["a", "b", "c", ""]


async def test_records_that_cannot_be_read_have_names(ask):
    prompt = list(map(echo, range(3)))
    for frame, code in MALFORMED:
        answer = await ask(ACCEPT, *prompt, GOOD, frame, None, DONE, echo=True)
        assert fault(answer) == (500, code, "server_error"), frame
        if frame.startswith("DATA"):
            assert fault(await ask(ACCEPT, GOOD, frame, None, DONE, chat=True))[:2] == (500, code), frame
    assert (await ask(ACCEPT, *prompt, GOOD, DONE, echo=True))[0] == 200


async def test_a_stream_ends_with_the_name(serve, tmp_path):
    async with served(serve, tmp_path) as live:
        for frames in ((ACCEPT, GOOD, BARE, DONE), (ACCEPT, echo(0), echo(2), GOOD, DONE)):
            echoed = frames[1] != GOOD
            body = {"prompt": spelled(*frames), "logprobs": 1, "echo": echoed, "stream": True}
            async with live.http.post("/v1/completions", json=body) as answer:
                lines = (await answer.text()).split("\n\n")
            errors = [json.loads(line[6:])["error"] for line in lines if '"error"' in line]
            assert [error["code"] for error in errors] == [INCOMPLETE]
