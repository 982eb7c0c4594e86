"""A generating request from its body to its last byte, whichever protocol it speaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from functools import partial

from aiohttp import web
from attrs import Factory, define, evolve

from colibri.events import Event
from colibri.generation import Echoed, Output, generate
from colibri.pipeline import Said
from colibri.protocols.base import (
    Chunk,
    ProtocolError,
    Reply,
    Request,
    Usage,
    WireProtocol,
    active_tools,
)
from colibri.server import refusals
from colibri.server.admission import ClientGone, Ticket
from colibri.server.app import App, Body
from colibri.server.exchange import Exchange
from colibri.server.jobs import Member, constrained, job_for
from colibri.server.responses import json_response
from colibri.server.served import special_ids
from colibri.server.sse import EventStream
from colibri.strictness import form_fault
from colibri_engine.api import Done, Job, Progress
from colibri_engine.errors import JobError

__all__ = ["answer"]

_BREATH = 64
_SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id")


@define
class _Call:
    """One request while it is answered.

    choice: the index of the choice that is worked on. progress: how many prompt tokens of how many are
    read.
    """

    app: App
    exchange: Exchange
    request: Request
    reply: Reply
    members: list[Member] = Factory(list)
    usages: list[Usage] = Factory(list)
    choice: int = 0
    progress: tuple[int, int] | None = None

    def prepare(self, token_ids: Mapping[str, int]) -> None:
        """Render every prompt, and write what its replies are held to.

        Raises:
            ColibriError: the family's format refuses one, that of `choice`.
        """
        for index, given in enumerate(self.request.prompts):
            self.choice = index * self.request.choices
            member = Member.of(self.app.served, given)
            self.members.append(member.held(self.app.served, self.request, token_ids))

    def slot(self) -> AbstractAsyncContextManager[Ticket]:
        """The wait for a slot: the client's, or one that may hold the conversation."""
        headers = self.exchange.request.headers
        session = next((headers[name] for name in _SESSION_HEADERS if name in headers), None)
        return self.app.slot(self.request.cache_slot, session or self.request.affinity, self.members[0].text)

    async def chunks(self, ticket: Ticket) -> AsyncGenerator[list[Chunk], None]:
        """What every choice of every prompt says, one after the other.

        The first list comes when the engine accepts the first prompt; it may be empty.
        """
        self.exchange.waited(ticket.waited)
        served, request, reply = self.app.served, self.request, self.reply
        for choice in range(len(self.members) * request.choices):
            self.choice, said = choice, list[Event]()
            member = self.members[choice // request.choices]
            job = job_for(served, request, member, ticket.slot, choice % request.choices)
            run = self._run if job.grammar is None else self._generated
            async with aclosing(run(job, member)) as outputs:
                async for output in outputs:
                    if isinstance(output, Said):
                        yield reply.feed(output.events, output.tokens, choice)
                        if request.strict_tool_calls:
                            said += output.events
                    elif isinstance(output, Echoed):
                        yield reply.echo(output.tokens, choice)
                    elif isinstance(output, Progress):
                        self.progress = output.done, output.total
                    elif isinstance(output, Done):
                        self._count(output)
                        if request.strict_tool_calls:
                            self._check_form(member, said)
                    elif choice == 0:
                        yield reply.start()

    async def _generated(self, job: Job, member: Member) -> AsyncGenerator[Output, None]:
        """The reply to one job; a grammar that the engine cannot make of a schema is done without."""
        begun = False
        try:
            async with aclosing(self._run(job, member)) as outputs:
                async for output in outputs:
                    begun = True
                    yield output
        except JobError:
            if begun:
                raise
            async with aclosing(self._run(evolve(job, grammar=None), member)) as outputs:
                async for output in outputs:
                    yield output

    def _run(self, job: Job, member: Member) -> AsyncGenerator[Output, None]:
        return generate(self.app.served.engine, job, member.stream(self.app.served, self.request))

    def _check_form(self, member: Member, said: list[Event]) -> None:
        tools = () if member.conversation is None else active_tools(member.conversation)
        if fault := form_fault(said, self.app.served.family.reply_grammar(tools)):
            raise refusals.malformed_call(fault)

    def _count(self, done: Done) -> None:
        self.progress = None
        self.usages.append(Usage(done.prompt_tokens, done.completion_tokens, done.cached_tokens))
        facts = self.exchange.facts
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            facts[name] = int(facts.get(name, 0)) + getattr(done, name)


async def answer(app: App, exchange: Exchange, body: Body, protocol: WireProtocol) -> web.StreamResponse:
    """Parse, render, wait for a slot, generate, and write the reply.

    Raises:
        ColibriError: the request cannot be served; what the engine or the queue refused is told so too.
        ClientGone: nobody listens any more.
    """
    request = await exchange.work(lambda: protocol.parse(body, app.served.offer))
    call = _Call(app, exchange, request, protocol.reply(request, int(time.time())))
    try:
        held, served = constrained(request), app.served
        token_ids = await special_ids(served.family, served.engine) if held else {}
        await exchange.work(partial(call.prepare, token_ids), large=held)
        return await (_stream(call, protocol) if request.stream else _whole(call))
    except ClientGone:
        raise
    except Exception as error:
        raise ProtocolError(refusals.explained(error, protocol, request, call.choice)) from error


async def _whole(call: _Call) -> web.StreamResponse:
    """The reply as one object; the slot is free again before it is written."""
    async with call.slot() as ticket, aclosing(call.chunks(ticket)) as chunks:
        count = 0
        async for _ in chunks:
            count += 1
            if count % _BREATH == 0:  # an engine that has everything ready must not hold up the others
                await asyncio.sleep(0)
    whole = partial(json_response, call.reply.whole(call.usages))
    return await call.exchange.work(whole, large=call.request.logprobs is not None)


async def _stream(call: _Call, protocol: WireProtocol) -> web.StreamResponse:
    """The reply as server-sent events; the status goes out when the engine accepts.

    What fails later becomes the stream's last frame.
    """
    mark = "." if call.app.settings.visible_keepalive else ""
    stream = EventStream(
        call.exchange.request,
        alive=lambda: call.reply.keepalive(call.progress, mark),
        interval=call.app.keepalive,
        patience=call.app.settings.read_deadline,
        named=protocol.named_events,
    )
    async with stream:
        try:
            async with call.slot() as ticket, aclosing(call.chunks(ticket)) as lists:
                async for chunks in lists:
                    if not stream.opened:
                        await stream.open(call.exchange.headers)
                    await stream.send(chunks)
            await stream.send(call.reply.finish(call.usages))
            await stream.end(protocol.done)
        except ClientGone:
            raise
        except Exception as error:
            if not stream.opened:
                raise
            wire = refusals.explained(error, protocol, call.request, call.choice)
            call.exchange.failed(wire, error)
            await stream.fail(refusals.wrapped(wire, protocol))
    return stream.response
