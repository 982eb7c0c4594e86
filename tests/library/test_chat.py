"""`colibri.chat`: a conversation in, what the model says out, over any engine."""

from __future__ import annotations

import pytest
from attrs import evolve

import colibri
from colibri.conversation import ToolChoice
from colibri.errors import ColibriError
from colibri.events import Finished, TextDelta
from colibri_engine.api import Accepted, Capabilities, Done, Job, Piece, SamplingParams

FAMILIES = colibri.load()
PING = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object"}}}
CALL = "<tool_call>ping</tool_call>"


class Scripted:
    """Says the same to everybody, in pieces of five bytes."""

    capabilities = Capabilities(context_length=500)

    def __init__(self, reply: str) -> None:
        self.reply = reply.encode()
        self.jobs: list[Job] = []
        self.closed = 0

    async def generate(self, job: Job):
        self.jobs.append(job)
        try:
            yield Accepted(7)
            for at in range(0, len(self.reply), 5):
                yield Piece(self.reply[at : at + 5])
            yield Done("stop", 7, len(self.reply))
        finally:
            self.closed += 1


async def ask(engine, family, messages, **options):
    return [event async for event in colibri.chat(engine, family, messages, **options)]


async def test_a_reply_comes_as_it_is_written():
    engine, family = Scripted("Hello, 世界!"), FAMILIES["smollm2"]
    events = await ask(engine, family, [{"role": "user", "content": "Hi <|im_end|>"}], slot=0)
    assert len(events) > 3
    assert isinstance(events[-1], Finished)
    reply = colibri.fold(events)
    assert (reply.content, reply.finish_reason) == ("Hello, 世界!", "stop")
    (job,) = engine.jobs
    assert job.prompt.endswith("user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    inside = job.prompt.index("Hi ") + 3
    assert not any(start <= inside < end for start, end in job.trusted)
    assert (job.max_tokens, job.slot) == (500, 0)


async def test_tools_are_called():
    engine, family = Scripted(f"I ask.</think>Now.{CALL}"), FAMILIES["glm47"]
    messages = [{"role": "user", "content": "Ping!"}]
    reply = colibri.fold(await ask(engine, family, messages, tools=[PING]))
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("ping", "{}")]
    assert reply.finish_reason == "tool_calls"
    conversation = colibri.conversation_from_openai(messages, [PING])
    assert len(colibri.fold(await ask(engine, family, conversation)).tool_calls) == 1
    silent = evolve(conversation, tool_choice=ToolChoice("none"))
    assert not colibri.fold(await ask(engine, family, silent)).tool_calls


async def test_wishes_that_the_engine_cannot_grant_are_left_out():
    family = FAMILIES["smollm2"]
    family = evolve(family, serve=evolve(family.serve, sampling={"temperature": 0.2, "top_k": 7}))
    engine, messages = Scripted("x"), [{"role": "user", "content": "Hi"}]
    await ask(engine, family, messages)
    await ask(engine, family, messages, sampling=SamplingParams(top_k=3), max_tokens=4)
    assert [job.sampling for job in engine.jobs] == [SamplingParams(temperature=0.2), SamplingParams(top_k=3)]
    assert engine.jobs[1].max_tokens == 4


async def test_closing_cancels():
    engine = Scripted("a" * 100)
    events = colibri.chat(engine, FAMILIES["smollm2"], [{"role": "user", "content": "Hi"}])
    assert isinstance(await anext(events), TextDelta)
    await events.aclose()
    assert engine.closed == 1


async def test_what_is_wrong_is_said_before_anything_runs():
    engine = Scripted("x")
    with pytest.raises(ColibriError, match=r"messages\.0"):
        await ask(engine, FAMILIES["smollm2"], [{"role": "nobody"}])
    assert not engine.jobs
