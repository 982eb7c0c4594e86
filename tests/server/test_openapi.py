"""The description of the API: it is the routes', it is true, and nothing in it makes the server fail."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from colibri.server.routes import ROUTES

from .scripted import ScriptedEngine, say

DOCUMENT = json.loads(files("colibri.server").joinpath("openapi.json").read_text())


def test_every_route_is_described_and_nothing_else():
    described = {
        (method.upper(), path): operation
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    }
    assert set(described) == {(route.method, route.path) for route in ROUTES}
    for route in ROUTES:
        operation = described[route.method, route.path]
        assert operation["operationId"] == route.handler.__name__
        assert operation["summary"] == route.handler.__doc__.partition("\n")[0]
        assert (operation.get("security") == []) is route.public


def test_schemas_are_all_used():
    text = json.dumps(DOCUMENT)
    for name in DOCUMENT["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in text


async def test_it_is_served_with_the_version(serve):
    async with serve(api_key=("k",), loaded=False) as live:
        status, body, _ = await live.json("GET", "/openapi.json")
    assert status == 200
    assert body["openapi"].startswith("3.1")
    assert body["info"]["version"] != DOCUMENT["info"]["version"]


async def test_described_fields_are_really_read(serve):
    """A field that the description lists and the server ignored would accept anything."""
    chat = DOCUMENT["components"]["schemas"]["ChatRequest"]["allOf"]
    names = {name for part in chat for name in part.get("properties", ())}
    names |= set(DOCUMENT["components"]["schemas"]["Conversation"]["properties"])
    async with serve(ScriptedEngine(say("a"))) as live:
        accepted = set()
        for name in sorted(names - {"model", "messages", "seed", "prompt_cache_key"}):
            body = {"stream": True} if name == "stream_options" else {}
            body |= {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}]}
            body[name] = [[]]
            async with live.http.post("/v1/chat/completions", json=body) as answer:
                if answer.status == 200:
                    accepted.add(name)
        able = live.engine.capabilities.sampling
    assert accepted <= {"min_p", "top_k", "typical_p", "repetition_penalty"} - able


@pytest.fixture(scope="module")
def url():
    """A server that runs in a process of its own."""
    told = {"flags": {"access_log": False, "kv_slots": 2}, "words": ["yes"]}
    command = [sys.executable, str(Path(__file__).with_name("process.py")), json.dumps(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip()
        process.terminate()


OPERATIONS = [found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()]


GENERATED = [
    pytest.param(operation, mode, id=f"{operation.label}-{mode.value}")
    for operation in OPERATIONS
    for mode in schemathesis.GenerationMode
    if mode is schemathesis.GenerationMode.POSITIVE or operation.body
]
"""Nothing wrong can be generated for operations that take no input."""


@pytest.mark.parametrize(("operation", "mode"), GENERATED)
def test_nothing_generated_makes_the_server_fail(url, operation, mode):
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def check(case):
        response = case.call(base_url=url, timeout=20)
        assert response.status_code < 500, response.text
        if response.status_code >= 400 and case.method != "HEAD":
            assert set(response.json()["error"]) == {"message", "type", "param", "code"}

    check()
