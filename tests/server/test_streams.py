"""Streams: frames, hang-ups, signs of life, and the slot that a request holds."""

from __future__ import annotations

import asyncio
import json

import pytest

from colibri_engine.api import Accepted, Progress
from colibri_engine.errors import EngineFailed

from .conftest import eventually
from .scripted import ScriptedEngine, say


def objects(frames):
    assert frames[-1] == "data: [DONE]"
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-1]]


def deltas(frames):
    return [chunk["choices"][0]["delta"] for chunk in objects(frames) if chunk["choices"]]


def request_bytes(**fields):
    body = {"model": "qwen36", "messages": [{"role": "user", "content": "hi"}], **fields}
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def connect(live, **fields):
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(request_bytes(**fields))
    return reader, writer


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_streams_are_framed_as_the_version_of_http_has_it(serve, version):
    """Proxies speak HTTP/1.0 to us, which has no chunked encoding: the end of the connection is the end."""
    async with serve(ScriptedEngine(say("Hello ", "there"))) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(request_bytes(stream=True).replace(b"HTTP/1.1\r\n", f"HTTP/{version}\r\n".encode()))
        head = await reader.readuntil(b"\r\n\r\n")
        chunked = b"transfer-encoding: chunked" in head.lower()
        assert chunked == (version == "1.1")
        body = b""
        if chunked:
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                assert await reader.readexactly(2) == b"\r\n"
        else:
            body = await asyncio.wait_for(reader.read(), 10)
        frames = body.decode().split("\n\n")[:-1]
        assert "".join(delta.get("content", "") for delta in deltas(frames)) == "Hello there"
        writer.close()


async def test_the_order_of_frames(serve):
    async with serve(ScriptedEngine(say("Hello ", "there"))) as live:
        frames = await live.frames(stream_options={"include_usage": True})
    assert deltas(frames) == [
        {"role": "assistant", "content": ""},
        {"content": "Hello "},
        {"content": "there"},
        {},
    ]
    chunks = objects(frames)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None, None, None, "stop"]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 4
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("cut", range(1, 9))
async def test_code_points_stay_whole(serve, cut):
    text = 'aé\u4e2d\U0001f426"\\\n\u2028'
    data = text.encode()
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)]
    async with serve(ScriptedEngine(say(*pieces))) as live:
        frames = await live.frames()
        _, whole, _ = await live.chat()
    assert "".join(delta.get("content", "") for delta in deltas(frames)) == text
    assert whole["choices"][0]["message"]["content"] == text
    assert "\ufffd" not in "".join(frames)


async def test_whole_reply_is_the_fold_of_the_stream(serve):
    call = "<tool_call>\n<function=read>\n<parameter=path>\n/tmp/é\n</parameter>\n</function>\n</tool_call>"
    tools = [
        {
            "type": "function",
            "function": {"name": "read", "parameters": {"properties": {"path": {"type": "string"}}}},
        }
    ]
    engine = ScriptedEngine(say("I think", "</think>", "\n\nLook: ", *call))
    async with serve(engine) as live:
        asked = {"tools": tools, "enable_thinking": True}
        frames = await live.frames(**asked)
        _, whole, _ = await live.chat(**asked)
    message = whole["choices"][0]["message"]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"path": "/tmp/é"}
    said = deltas(frames)
    for key, field in (("content", "content"), ("reasoning_content", "reasoning_content")):
        assert "".join(delta.get(key, "") for delta in said) == message[field]
    calls = [delta["tool_calls"][0] for delta in said if "tool_calls" in delta]
    assert [call["function"].get("name") for call in calls] == ["read"] + [None] * (len(calls) - 1)
    assert (
        "".join(call["function"]["arguments"] for call in calls)
        == message["tool_calls"][0]["function"]["arguments"]
    )
    assert len(calls) > 3


async def test_stop_sequences_end_the_generation(serve):
    engine = ScriptedEngine(say("one ST", "OP two", *["more"] * 50))
    async with serve(engine) as live:
        _, whole, _ = await live.chat(stop="STOP")
        assert whole["choices"][0]["message"]["content"] == "one "
        assert whole["choices"][0]["finish_reason"] == "stop"
        assert whole["usage"]["completion_tokens"] == 2
        frames = await live.frames(stop=["STOP"])
        assert "".join(delta.get("content", "") for delta in deltas(frames)) == "one "
        assert engine.cancelled == 2
        assert live.app.scheduler.counters().completed == 2


async def test_length(serve):
    async with serve(ScriptedEngine(say(*"abcdef"))) as live:
        _, whole, _ = await live.chat(max_tokens=3)
    assert whole["choices"][0]["message"]["content"] == "abc"
    assert whole["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hang_up_cancels_and_frees_the_slot_on_the_terminal_frame(serve, stream):
    engine = ScriptedEngine(say("a", asyncio.Event()))
    engine.release = asyncio.Event()
    async with serve(engine) as live:
        _, writer = await connect(live, stream=stream)
        await eventually(lambda: engine.running == 1)
        writer.close()
        await eventually(lambda: engine.cancelled == 1)
        assert live.app.scheduler.counters().active == 1
        engine.script = say("b")
        waiting = asyncio.create_task(live.chat())
        await eventually(lambda: live.app.scheduler.counters().queued == 1)
        engine.release.set()
        assert (await waiting)[0] == 200
        counts = live.app.scheduler.counters()
        assert (counts.cancelled, counts.completed, counts.active) == (1, 1, 0)


async def test_a_hang_up_while_waiting_is_not_admitted(serve):
    gate = asyncio.Event()
    engine = ScriptedEngine(say(gate, "a"))
    async with serve(engine) as live:
        running = asyncio.create_task(live.chat())
        await eventually(lambda: engine.running == 1)
        _, writer = await connect(live)
        await eventually(lambda: live.app.scheduler.counters().queued == 1)
        writer.close()
        await eventually(lambda: live.app.scheduler.counters().cancelled == 1)
        gate.set()
        await running
        assert len(engine.jobs) == 1
        assert live.app.scheduler.counters().admitted == 1


async def test_a_half_closed_connection_counts_as_hung_up(serve):
    engine = ScriptedEngine(say("a", asyncio.Event()))
    async with serve(engine) as live:
        _, writer = await connect(live, stream=True)
        await eventually(lambda: engine.running == 1)
        writer.write_eof()
        await eventually(lambda: engine.cancelled == 1)
        writer.close()


async def test_signs_of_life_tell_how_far_the_prompt_is_read(serve):
    gate = asyncio.Event()
    engine = ScriptedEngine(say(Progress(3, 9), gate, "a", asyncio.Event()))
    async with serve(engine, keepalive=0.02) as live:
        reader, writer = await connect(live, stream=True)
        await reader.readuntil(b'"role":"assistant"')
        for _ in range(3):
            line = await asyncio.wait_for(reader.readuntil(b"\n\n"), 5)
            while b"prompt_progress" not in line:
                line = await asyncio.wait_for(reader.readuntil(b"\n\n"), 5)
            chunk = json.loads(line[line.index(b"{") :])
            assert chunk["prompt_progress"] == {"processed": 3, "total": 9}
            assert chunk["choices"][0]["delta"] == {"reasoning_content": ""}
        writer.close()


async def test_signs_of_life_can_be_seen(serve):
    engine = ScriptedEngine(say("a", 0.1, "b"))
    async with serve(engine, keepalive=0.02, visible_keepalive=True) as live:
        frames = await live.frames()
    assert {"reasoning_content": "."} in deltas(frames)


async def test_no_sign_of_life_while_frames_come(serve):
    engine = ScriptedEngine(say(*[step for _ in range(20) for step in ("x", 0.01)]))
    async with serve(engine, keepalive=0.15) as live:
        frames = await live.frames()
    assert all("reasoning_content" not in delta for delta in deltas(frames))


async def test_the_status_waits_for_the_engine(serve):
    engine = ScriptedEngine(say("a"))
    engine.accept = asyncio.Event()
    async with serve(engine, keepalive=0.01) as live:
        reader, writer = await connect(live, stream=True)
        await eventually(lambda: engine.running == 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        engine.accept.set()
        assert (await asyncio.wait_for(reader.readline(), 5)).startswith(b"HTTP/1.1 200")
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert b"x-colibri-queue-wait-ms: " in head
        assert b"x-request-id: req_" in head.lower()
        writer.close()


@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_that_dies(serve, stream):
    async with serve(ScriptedEngine(say("one", EngineFailed("it broke")))) as live:
        if stream:
            async with live.http.post(
                "/v1/chat/completions", data=request_bytes(stream=True).split(b"\r\n\r\n")[1]
            ) as answer:
                frames = (await answer.text()).split("\n\n")[:-1]
            error = json.loads(frames[-1].removeprefix("data: "))["error"]
        else:
            status, body, _ = await live.chat()
            assert status == 500
            error = body["error"]
        assert (error["code"], error["type"]) == ("engine_error", "server_error")
        assert "broke" not in error["message"]
        assert live.app.scheduler.counters().failed == 1
        live.engine.script = say("fine")
        assert (await live.chat())[1]["choices"][0]["message"]["content"] == "fine"


async def test_a_full_queue_and_a_long_wait(serve):
    gate = asyncio.Event()
    async with serve(ScriptedEngine(say(gate, "a")), max_queue=1, queue_timeout=0.1) as live:
        running = asyncio.create_task(live.chat())
        await eventually(lambda: live.engine.running == 1)
        waiting = asyncio.create_task(live.chat(stream=True))
        await eventually(lambda: live.app.scheduler.counters().queued == 1)
        status, body, headers = await live.chat()
        assert (status, body["error"]["code"], headers["Retry-After"]) == (429, "queue_full", "1")
        assert body["error"]["type"] == "rate_limit_error"
        status, body, headers = await waiting
        assert (status, body["error"]["code"], headers["Retry-After"]) == (429, "queue_timeout", "1")
        gate.set()
        assert (await running)[2]["x-colibri-queue-wait-ms"] == "0"


async def test_slots_are_preferred_not_demanded(serve):
    async with serve(ScriptedEngine(say("a")), kv_slots=3) as live:

        async def ask(content, **options):
            await live.json(
                "POST",
                "/v1/chat/completions",
                json={
                    "model": "qwen36",
                    "messages": [{"role": "user", "content": content}],
                    **options.pop("body", {}),
                },
                **options,
            )
            return live.engine.jobs[-1].slot

        assert await ask("first", body={"cache_slot": 2}) == 2
        assert await ask("first") == 2
        assert await ask("other", headers={"x-session-id": "s"}, body={"cache_slot": 1}) == 1
        assert await ask("something else", headers={"x-session-id": "s"}) == 1
        assert await ask("x", body={"prompt_cache_key": "k", "cache_slot": 0}) == 0
        assert await ask("y", body={"prompt_cache_key": "k"}) == 0
        status, body, _ = await live.chat(cache_slot=3)
        assert (status, body["error"]["param"]) == (400, "cache_slot")


async def test_conversations_run_side_by_side(serve):
    gate = asyncio.Event()
    async with serve(ScriptedEngine(say("a", gate)), kv_slots=4) as live:
        tasks = [asyncio.create_task(live.chat(f"{index}")) for index in range(6)]
        await eventually(lambda: live.engine.running == 4)
        assert live.app.scheduler.counters().queued == 2
        gate.set()
        assert [answer[0] for answer in await asyncio.gather(*tasks)] == [200] * 6
        assert live.engine.most_running == 4
        assert {job.slot for job in live.engine.jobs} == {0, 1, 2, 3}


async def test_a_reader_that_takes_nothing_is_cut_off(serve):
    engine = ScriptedEngine(say(*["x" * 1000] * 20_000))
    async with serve(engine, read_deadline=0.2) as live:
        _, writer = await connect(live, stream=True, max_tokens=90_000)
        await eventually(lambda: engine.cancelled == 1, 20)
        assert live.app.scheduler.counters().cancelled == 1
        await eventually(lambda: not live.app.http.connections)
        writer.close()


async def test_the_end_of_the_server_does_not_wait_for_a_reader_that_takes_nothing(serve):
    engine = ScriptedEngine(say(*["x" * 1000] * 20_000))
    async with serve(engine) as live:
        _, writer = await connect(live, stream=True, max_tokens=90_000)
        await eventually(lambda: any(each.writing_paused for each in live.app.http.connections))
        await asyncio.wait_for(live.app.shutdown(0.1), 10)
        assert (engine.cancelled, live.app.scheduler.counters().active) == (1, 0)
        writer.close()


async def test_a_slow_reader_gets_everything(serve):
    engine = ScriptedEngine(say(*["x" * 1000] * 2000))
    async with serve(engine) as live:
        reader, writer = await connect(live, stream=True, max_tokens=90_000)
        total = b""
        while b"[DONE]" not in total[-100:]:
            total += await asyncio.wait_for(reader.read(1 << 17), 5)
            await asyncio.sleep(0.001)
        assert total.count(b'"content":"xxx') == 2000
        writer.close()


async def test_two_requests_on_one_connection(serve):
    async with serve(ScriptedEngine(say("a"))) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(request_bytes(stream=True) + request_bytes(stream=True))
        for _ in range(2):
            answer = await asyncio.wait_for(reader.readuntil(b"[DONE]\n\n\r\n0\r\n\r\n"), 5)
            assert answer.startswith(b"HTTP/1.1 200")
        writer.close()


async def test_an_engine_that_accepts_late_still_says_accepted_once(serve):
    """Engines that never say that they accept open the stream with their first piece."""

    class Hasty(ScriptedEngine):
        async def generate(self, job):
            async for event in ScriptedEngine.generate(self, job):
                if not isinstance(event, Accepted):
                    yield event

    async with serve(Hasty(say("a"))) as live:
        assert deltas(await live.frames())[-2:] == [{"content": "a"}, {}]
