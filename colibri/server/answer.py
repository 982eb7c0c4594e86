"""A generating request from its body to its last byte, whichever protocol it speaks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web
from attrs import Factory, asdict, define, frozen
from colibri_engine.api import Accepted, Done, Job, Progress, SamplingParams

from colibri.conversation import Conversation
from colibri.family import Prompt
from colibri.generation import Output, PlainParser, Said, TextReader, generate, prepare
from colibri.protocols.base import PromptInput, Reply, Request, Usage, WireProtocol
from colibri.provenance import trusted_spans
from colibri.server import refusals
from colibri.server.admission import ClientGone, Ticket
from colibri.server.app import App, Body
from colibri.server.exchange import Exchange
from colibri.server.responses import json_response
from colibri.server.served import Served
from colibri.server.sse import EventStream

__all__ = ["answer"]

_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id")


@frozen
class _Member:
    """One prompt of a request, ready for the engine."""

    given: PromptInput
    text: str | tuple[int, ...]
    prompt: Prompt | None = None

    @classmethod
    def prepare(cls, served: Served, given: PromptInput) -> _Member:
        if not isinstance(given, Conversation):
            return cls(given, given)
        prompt = prepare(served.family, given)
        return cls(given, prompt.text, prompt)

    def reader(self, served: Served) -> TextReader:
        if self.prompt is None or not isinstance(self.given, Conversation):
            return TextReader(PlainParser())
        return TextReader(served.family.new_parser(self.given.tools, self.prompt))


@define
class _Call:
    """One request while it is answered."""

    app: App
    exchange: Exchange
    request: Request
    members: Sequence[_Member]
    reply: Reply
    usages: list[Usage] = Factory(list)
    progress: tuple[int, int] | None = None

    def slot(self) -> Any:
        """The wait for a slot, with what this request prefers."""
        headers = self.exchange.request.headers
        session = next((headers[name] for name in _SESSION_HEADERS if name in headers), None)
        key, text = session or self.request.affinity, self.members[0].text
        return self.app.slot(self.request.cache_slot, key, text)

    async def outputs(self, ticket: Ticket) -> AsyncGenerator[tuple[int, Output], None]:
        """What every choice of every prompt says, one after the other, with the choice's index."""
        served = self.app.served
        for index in range(len(self.members) * self.request.choices):
            member = self.members[index // self.request.choices]
            job = _job(served, self.request, member, ticket.slot)
            async with aclosing(generate(served.engine, job, member.reader(served))) as outputs:
                async for output in outputs:
                    if isinstance(output, Done):
                        self._count(output)
                    elif isinstance(output, Progress):
                        self.progress = output.done, output.total
                    else:
                        yield index, output

    def _count(self, done: Done) -> None:
        self.usages.append(Usage(done.prompt_tokens, done.completion_tokens, done.cached_tokens))
        facts = self.exchange.facts
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            facts[name] = int(facts.get(name, 0)) + getattr(done, name)


def _job(served: Served, request: Request, member: _Member, slot: int) -> Job:
    """What the engine is asked for one reply to `member`."""
    return Job(
        prompt=member.text,
        max_tokens=request.max_tokens,
        trusted=None if member.prompt is None else trusted_spans(member.prompt.segments),
        sampling=_sampling(served, request),
        stop_token_ids=request.stop_token_ids,
        slot=slot,
    )


def _sampling(served: Served, request: Request) -> SamplingParams:
    """The request's wishes over the operator's over the family's, as far as the engine honours them."""
    settings = served.settings
    layers: tuple[dict[str, Any], ...] = (
        dict(served.family.serve.sampling),
        {"temperature": settings.temperature, "top_p": settings.top_p},
        asdict(request.sampling, recurse=False),
    )
    honoured = served.engine.capabilities.sampling
    values: dict[str, Any] = {}
    for layer in layers:
        values |= {name: value for name, value in layer.items() if value is not None and name in honoured}
    return SamplingParams(**values)


async def answer(app: App, exchange: Exchange, body: Body, protocol: WireProtocol) -> web.StreamResponse:
    """Parse, render, wait for a slot, generate, and write the reply.

    Raises:
        ColibriError: the request cannot be served. EngineError: the engine refused or failed.
        QueueFull, QueueTimeout, SchedulerClosed: no slot could be had.
    """
    served = app.served
    request = protocol.parse(body, served.offer)
    members = [_Member.prepare(served, given) for given in request.prompts]
    call = _Call(app, exchange, request, members, protocol.reply(request, int(time.time())))
    if request.stream:
        return await _stream(call, protocol)
    async with call.slot() as ticket:
        exchange.waited(ticket.waited)
        call.reply.start()
        async with aclosing(call.outputs(ticket)) as outputs:
            async for choice, output in outputs:
                if isinstance(output, Said):
                    call.reply.feed(output.events, choice=choice)
    return json_response(call.reply.whole(call.usages))


async def _stream(call: _Call, protocol: WireProtocol) -> web.StreamResponse:
    """The reply as server-sent events; the status goes out when the engine accepts."""
    stream = EventStream(
        call.exchange.request,
        alive=lambda: call.reply.keepalive(call.progress),
        interval=call.app.keepalive,
        patience=call.app.settings.read_deadline,
        named=protocol.named_events,
    )
    async with stream:
        try:
            await _send(call, stream)
            await stream.end(protocol.done)
        except ClientGone:
            raise
        except Exception as error:
            if not stream.opened:
                raise
            wire = refusals.explained(error, protocol, call.request, len(call.usages))
            call.exchange.code = wire.code
            await stream.fail(refusals.wrapped(wire, protocol))
    return stream.response


async def _send(call: _Call, stream: EventStream) -> None:
    async with call.slot() as ticket:
        call.exchange.waited(ticket.waited)
        async with aclosing(call.outputs(ticket)) as outputs:
            async for choice, output in outputs:
                if not stream.opened:
                    await stream.open(call.exchange.headers)
                    await stream.send(call.reply.start())
                if isinstance(output, Said):
                    await stream.send(call.reply.feed(output.events, choice=choice))
                elif isinstance(output, Accepted):
                    call.progress = None
    await stream.send(call.reply.finish(call.usages))
