"""Recorded requests of real clients against a server with the real model: what each needs of the answer."""

from __future__ import annotations

import json
from pathlib import Path

import aiohttp
import pytest

from .conftest import process_with_model

DATA = Path(__file__).parents[1] / "data" / "client_requests"
RECORDED = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*.json"))


@pytest.fixture(scope="module")
def url(smollm2_path, tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with process_with_model(smollm2_path, state, "--kv-slots", "2", COLI_TOOL_FALLBACK="1") as url:
        yield url


def check_stream(body, frames):
    """It ends with [DONE], says why it ended, numbers its calls, and counts tokens where it is asked to."""
    assert frames[-1] == "[DONE]"
    chunks = [json.loads(frame) for frame in frames[:-1]]
    assert all("error" not in chunk for chunk in chunks)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "messages" not in body or choices[0]["delta"]["role"] == "assistant"
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    calls = [call for choice in choices for call in choice.get("delta", {}).get("tool_calls", ())]
    assert all("index" in call for call in calls)
    counted = bool(body.get("stream_options", {}).get("include_usage"))
    assert any(chunk.get("usage") for chunk in chunks) == counted


def check_text(body, answer):
    """One choice a prompt; with echo, every position is described and the first has no probability."""
    prompt = body["prompt"]
    batch = isinstance(prompt, list) and not isinstance(prompt[0], int)
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(prompt) if batch else 1))
    for choice in answer["choices"]:
        if body.get("echo") and body.get("logprobs"):
            told = choice["logprobs"]
            assert len(told["tokens"]) == len(told["token_logprobs"]) == len(told["top_logprobs"])
            assert told["token_logprobs"][0] is None
            assert all(isinstance(value, float) for value in told["token_logprobs"][1:-1])


@pytest.mark.parametrize("name", RECORDED)
async def test_recorded_requests_are_answered(url, name):
    recorded = json.loads((DATA / name).read_text(encoding="utf-8"))
    body = {**recorded["body"], "model": "smollm2", "max_tokens": 16}
    body.pop("max_completion_tokens", None)
    if recorded["body"].get("max_tokens") == 1:
        body["max_tokens"] = 1
    async with aiohttp.ClientSession(url) as http, http.post(recorded["path"], json=body) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        if body.get("stream"):
            assert answer.content_type == "text/event-stream"
            check_stream(
                body, [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame[:5] == "data:"]
            )
            return
    whole = json.loads(text)
    assert {"id", "object", "created", "model", "choices", "usage"} <= whole.keys()
    assert whole["choices"][0]["finish_reason"]
    if recorded["path"] == "/v1/completions":
        check_text(body, whole)
