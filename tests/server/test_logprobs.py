"""Log probabilities and echo over HTTP, with an engine that reports them."""

from __future__ import annotations

import json
import math

import pytest

from colibri_engine.api import Candidate, Capabilities, Echo, Piece
from colibri_engine.errors import EngineError

from .scripted import ScriptedEngine, say

ABLE = Capabilities(
    context_length=100_000, max_logprobs=32, echo=True, token_ids=True, tokenize=True, candidates_spelled=True
)


def piece(text, token_id, logprob, *others):
    data = text if isinstance(text, bytes) else text.encode()
    top = (Candidate(token_id, logprob, data), *others)
    return Piece(data, token_id, None, logprob, top)


def position(index, text, logprob):
    return Echo(
        index, text.encode(), ord(text), logprob, (Candidate(ord(text), logprob or 0.0, text.encode()),)
    )


REPLY = [
    piece("Hel", 1, -0.5, Candidate(9, -1.25, b"Hey"), Candidate(8, float("-inf"))),
    piece("é".encode()[:1], 2, -0.25),
    piece("é".encode()[1:], 3, -0.125),
    piece("lo", 4, float("nan")),
]
PROMPT = [position(0, "o", None), position(1, "k", -2.0)]


def engine(*steps):
    return ScriptedEngine(say(*steps), capabilities=ABLE)


async def complete(live, **fields):
    return await live.json("POST", "/v1/completions", json={"model": "qwen36", "prompt": "ok", **fields})


def choices_of(text, stream):
    """The choices of an answer, or of each of its frames."""
    if not stream:
        return json.loads(text)["choices"]
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n")]
    return [json.loads(frame)["choices"][0] for frame in frames if frame.startswith("{")]


async def test_chat(serve):
    async with serve(engine(*REPLY)) as live:
        _, body, _ = await live.chat(logprobs=True, top_logprobs=3)
    choice = body["choices"][0]
    entries = choice["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == choice["message"]["content"] == "Helélo"
    assert [entry["logprob"] for entry in entries] == [-0.5, -0.25, -0.125, None]
    assert entries[0]["bytes"] == list(b"Hel")
    assert [top["token"] for top in entries[0]["top_logprobs"]] == ["Hel", "Hey", "<token_id:8>"]
    assert [top["logprob"] for top in entries[0]["top_logprobs"]] == [-0.5, -1.25, None]
    assert entries[1]["token"] == ""
    assert entries[1]["bytes"] == [0xC3]


async def test_a_cut_token_is_cut_with_its_bytes(serve):
    async with serve(engine(piece("He", 1, -1.0), piece("llo!", 2, -2.0), piece("never", 3, -3.0))) as live:
        _, body, _ = await live.chat(logprobs=True, stop="lo")
        choice = body["choices"][0]
        assert choice["message"]["content"] == "Hel"
        assert [entry["token"] for entry in choice["logprobs"]["content"]] == ["He", "l"]
        assert choice["logprobs"]["content"][1]["bytes"] == [108]


@pytest.mark.parametrize("stream", [False, True])
async def test_logprobs_may_be_streamed(serve, stream):
    async with (
        serve(engine(*REPLY)) as live,
        live.http.post(
            "/v1/completions", json={"model": "qwen36", "prompt": "ok", "logprobs": 2, "stream": stream}
        ) as answer,
    ):
        choices = choices_of(await answer.text(), stream)
    tokens = [token for choice in choices for token in (choice["logprobs"] or {}).get("tokens", ())]
    offsets = [offset for choice in choices for offset in (choice["logprobs"] or {}).get("text_offset", ())]
    assert "".join(tokens) == "".join(choice["text"] for choice in choices) == "Helélo"
    assert offsets == [0, 3, 3, 4]


async def test_echo(serve):
    async with serve(engine(*PROMPT, *REPLY)) as live:
        _, body, _ = await complete(live, echo=True, logprobs=1)
        job = live.engine.jobs[0]
    choice = body["choices"][0]
    assert choice["text"] == "okHelélo"
    assert choice["logprobs"]["tokens"][:3] == ["o", "k", "Hel"]
    assert choice["logprobs"]["token_logprobs"][:3] == [None, -2.0, -0.5]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert (job.echo, job.logprobs) == (True, 1)


async def test_the_prompt_alone(serve):
    async with serve(engine(*PROMPT)) as live:
        status, body, _ = await complete(live, echo=True, logprobs=1, max_tokens=0)
        assert (status, body["choices"][0]["text"], live.engine.jobs[0].max_tokens) == (200, "ok", 0)


@pytest.mark.parametrize("reply", [[], [piece("\n", 1, -0.5)]])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_reply_that_ends_at_once_leaves_a_blank_record_behind_the_prompt(serve, reply, stream):
    async with serve(engine(*PROMPT, *reply)) as live:
        body = {"prompt": "ok", "echo": True, "logprobs": 1, "stop": ["\n"], "stream": stream}
        async with live.http.post("/v1/completions", json=body) as answer:
            choices = choices_of(await answer.text(), stream)
    records = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    assert [text for record in records for text in record["tokens"]] == ["o", "k", ""]
    assert [value for record in records for value in record["token_logprobs"]] == [None, -2.0, None]
    assert [offset for record in records for offset in record["text_offset"]] == [0, 1, 2]
    assert records[-1]["top_logprobs"][-1] == {}
    assert "".join(choice["text"] for choice in choices) == "ok"


@pytest.mark.parametrize(("max_tokens", "blanks"), [(0, []), (1, [""])])
async def test_a_prompt_may_end_inside_a_code_point(serve, max_tokens, blanks):
    half = Echo(1, "é".encode()[:1], 2, -1.0, (Candidate(3, -0.5, "é".encode()[1:]),))
    async with serve(engine(PROMPT[0], half)) as live:
        status, body, _ = await complete(live, echo=True, logprobs=1, max_tokens=max_tokens)
    assert status == 200
    choice = body["choices"][0]
    assert choice["text"] == "o"
    assert choice["logprobs"]["tokens"] == ["o", "", *blanks]
    assert choice["logprobs"]["top_logprobs"][1] == {"bytes:\\xa9": -0.5}


async def test_batches_of_token_ids(serve):
    async with serve(engine(*PROMPT, *REPLY)) as live:
        _, body, _ = await complete(live, prompt=[[111, 107], [1, 2]], echo=True, logprobs=1)
        assert [choice["index"] for choice in body["choices"]] == [0, 1]
        assert [tuple(job.prompt) for job in live.engine.jobs] == [(111, 107), (1, 2)]
        assert body["usage"]["completion_tokens"] == 8
        assert live.app.scheduler.counters().admitted == 1


async def test_a_batch_answers_all_or_nothing(serve):
    async with serve(engine(*REPLY)) as live:
        status, body, _ = await complete(live, prompt=["ok", "x" * 40_000, "y" * 20_000, "z"], max_tokens=10)
        assert status == 200
        live.engine.capabilities = Capabilities(context_length=10_000, max_logprobs=32, echo=True)
        status, body, _ = await complete(live, prompt=["ok", "x" * 40_000], max_tokens=10)
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert body["error"]["param"] == "prompt[1]"
        assert body["error"]["message"].startswith("prompt[1]: ")


class Fault(EngineError):
    code = "engine_echo_position_malformed"


async def test_faults_of_the_engines_records_are_named(serve):
    async with serve(engine(*PROMPT, Fault("unreadable"))) as live:
        status, body, _ = await complete(live, echo=True, logprobs=1)
        assert (status, body["error"]["code"]) == (500, Fault.code)
        live.engine.script = say(*REPLY)
        status, body, _ = await complete(live, echo=True, logprobs=1)
        assert (status, body["error"]["code"]) == (500, "engine_logprob_records_incomplete")


async def test_numbers_that_json_cannot_spell_are_null(serve):
    async with serve(engine(piece("a", 1, math.inf))) as live:
        _, body, _ = await complete(live, logprobs=1)
        assert body["choices"][0]["logprobs"]["token_logprobs"] == [None]


async def test_engines_without_log_probabilities_refuse_by_name(serve):
    async with serve() as live:
        status, body, _ = await complete(live, logprobs=1)
        assert (status, body["error"]["code"], body["error"]["param"]) == (
            400,
            "unsupported_parameter",
            "logprobs",
        )
