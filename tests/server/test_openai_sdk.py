"""The official client against a scripted engine."""

from __future__ import annotations

import asyncio

import openai
import pytest

from .scripted import ScriptedEngine, say

MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture
async def client():
    """`client(live)` is an asynchronous SDK client of a running server."""
    made = []

    def connect(live, **options):
        options = {"api_key": "any", "max_retries": 0, **options}
        made.append(openai.AsyncOpenAI(base_url=f"{live.url}/v1", **options))
        return made[-1]

    yield connect
    for each in made:
        await each.close()


async def test_stream(serve, client):
    async with serve(ScriptedEngine(say("Hel", "lo ", "wörld".encode()[:2], "wörld".encode()[2:]))) as live:
        stream = await client(live).chat.completions.create(
            model="qwen36", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in chunks[1:-2]] == ["Hel", "lo ", "w", "örld"]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert not chunks[-2].choices[0].delta.content
    assert chunks[-1].usage.completion_tokens == 4
    assert len({chunk.id for chunk in chunks}) == 1


async def test_whole_reply_with_reasoning(serve, client):
    engine = ScriptedEngine(say("because", "</think>", "\n\nParis"))
    async with serve(engine) as live:
        reply = await client(live).chat.completions.create(
            model="qwen36", messages=MESSAGES, extra_body={"enable_thinking": True}
        )
    assert reply.choices[0].message.content.strip() == "Paris"
    assert reply.choices[0].message.reasoning_content.strip() == "because"


async def test_synchronous_client(serve):
    async with serve(ScriptedEngine(say("yes"))) as live:
        blocking = openai.OpenAI(base_url=f"{live.url}/v1", api_key="any", max_retries=0)

        def ask():
            with blocking:
                return [model.id for model in blocking.models.list()], blocking.chat.completions.create(
                    model="qwen36", messages=MESSAGES
                )

        models, reply = await asyncio.to_thread(ask)
    assert models == ["qwen36"]
    assert reply.choices[0].message.content == "yes"


async def test_errors_become_the_clients_classes(serve, client):
    async with serve(api_key=("k",)) as live:
        with pytest.raises(openai.AuthenticationError):
            await client(live).models.list()
        named = client(live, api_key="k")
        with pytest.raises(openai.NotFoundError) as missing:
            await named.chat.completions.create(model="other", messages=MESSAGES)
        assert missing.value.code == "model_not_found"
        with pytest.raises(openai.BadRequestError) as bad:
            await named.chat.completions.create(model="qwen36", messages=MESSAGES, temperature=9)
        assert bad.value.param == "temperature"


async def test_a_prompt_that_does_not_fit_is_refused_before_the_stream(serve, client):
    async with serve() as live:
        with pytest.raises(openai.BadRequestError) as caught:
            await client(live).chat.completions.create(
                model="qwen36", messages=[{"role": "user", "content": "x" * 200_000}], stream=True
            )
        assert caught.value.code == "context_length_exceeded"


async def test_an_error_after_the_beginning_ends_the_stream(serve, client):
    async with serve(ScriptedEngine(say("one", RuntimeError("broken")))) as live:
        stream = await client(live).chat.completions.create(model="qwen36", messages=MESSAGES, stream=True)
        said = [(await anext(stream)).choices[0].delta.content for _ in range(2)]
        with pytest.raises(openai.APIError, match="failed to process"):
            await anext(stream)
        assert said == ["", "one"]
