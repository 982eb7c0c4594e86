"""The access log: one JSON object a request, and nothing that a client said."""

from __future__ import annotations

import json
import logging

import pytest

from colibri_engine.errors import EngineFailed

from .scripted import ScriptedEngine, say

SECRET = "what the client said"


async def test_lines(serve, caplog):
    caplog.set_level(logging.INFO, "colibri.access")
    async with serve(ScriptedEngine(say("answered words")), access_log=True) as live:
        _, _, headers = await live.chat(SECRET)
        await live.chat(SECRET, temperature=9)
        await live.json("GET", f"/v1/models/{SECRET}?q={SECRET}")
    lines = [json.loads(record.getMessage()) for record in caplog.records]
    assert [line["status"] for line in lines] == [200, 400, 404]
    assert lines[0]["id"] == headers["x-request-id"]
    assert lines[0]["route"] == "/v1/chat/completions"
    assert lines[0]["completion_tokens"] == 1
    assert lines[0]["queue_wait_ms"] == 0
    assert lines[2]["code"] == "not_found"
    assert SECRET not in caplog.text
    assert "answered words" not in caplog.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("error", [EngineFailed("it broke"), ZeroDivisionError("a bug")])
async def test_only_bugs_leave_a_traceback(serve, caplog, stream, error):
    async with serve(ScriptedEngine(say("one", error))) as live:
        body = {"messages": [{"role": "user", "content": SECRET}], "stream": stream}
        async with live.http.post("/v1/chat/completions", json=body) as answer:
            await answer.read()
            name = answer.headers["x-request-id"]
    (record,) = (record for record in caplog.records if record.name == "colibri.server")
    bug = isinstance(error, ZeroDivisionError)
    assert record.getMessage() == f"request {name} failed" + ": it broke" * (not bug)
    assert bool(record.exc_info) == bug
    assert SECRET not in caplog.text
