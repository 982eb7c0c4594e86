"""One generation: a conversation or a job for an engine in, what its pieces mean out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from attrs import frozen

from colibri.conversation import Conversation
from colibri.events import Event, Finished, TextDelta
from colibri.family import Family, Prompt
from colibri.framing import check_continuation, fold, serve_defaults
from colibri.pipeline import ReplyStream, Said, Token
from colibri.protocols.base import active_tools
from colibri.protocols.openai_messages import conversation_from_openai
from colibri.provenance import trusted_spans
from colibri_engine.api import Accepted, Done, Echo, Engine, Job, Piece, Progress, SamplingParams
from colibri_engine.echoes import EchoOrder
from colibri_engine.errors import EngineFailed

__all__ = ["Echoed", "Output", "PlainParser", "chat", "generate", "prepare"]


@frozen
class Echoed:
    """The next tokens of the prompt, for jobs that echo it."""

    tokens: Sequence[Token]


Output: TypeAlias = Accepted | Progress | Echoed | Said | Done


class PlainParser:
    """Reads a reply to a raw prompt: all of it is text."""

    def __init__(self) -> None:
        self._end = 0

    def feed(self, text: str, control: bool | None = None) -> list[Event]:
        """The characters as they are."""
        start, self._end = self._end, self._end + len(text)
        return [TextDelta(text, start, self._end)] if text else []

    def finish(self, reason: str) -> list[Event]:
        """The end."""
        return [Finished("length" if reason == "length" else "stop", self._end, self._end)]


def prepare(family: Family, conversation: Conversation) -> Prompt:
    """The prompt that a server gives for a conversation: folded, with serving defaults, rendered.

    Raises:
        ColibriError: the family's format refuses it.
    """
    if conversation.open_last:
        check_continuation(conversation)
    return family.render(serve_defaults(fold(conversation, family), family))


async def chat(
    engine: Engine,
    family: Family,
    messages: Conversation | Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    max_tokens: int | None = None,
    sampling: SamplingParams | None = None,
    slot: int | None = None,
) -> AsyncGenerator[Event, None]:
    """What the model replies, as it says it: `Event`s, the last of which is `Finished`.

    messages: OpenAI-shaped, with OpenAI-shaped `tools`, or a conversation, which has its tools. max_tokens:
    None for all that the context holds. sampling: None for what the family's makers recommend. slot: see
    `Job`. `colibri.fold` makes a `Reply` of the events; closing the generator cancels.

    Raises:
        ColibriError: a message is malformed, or the family's format refuses the conversation.
        colibri_engine.errors.EngineError: as `generate`.
    """
    conversation = messages
    if not isinstance(conversation, Conversation):
        conversation = conversation_from_openai(conversation, tools)
    prompt, able = prepare(family, conversation), engine.capabilities
    if sampling is None:
        wishes: Mapping[str, Any] = family.serve.sampling
        sampling = SamplingParams(**{name: wishes[name] for name in wishes if name in able.sampling})
    job = Job(
        prompt.text,
        able.context_length if max_tokens is None else max_tokens,
        trusted=trusted_spans(prompt.segments),
        sampling=sampling,
        slot=slot,
    )
    parser = family.new_parser(active_tools(conversation), prompt)
    stream = ReplyStream(parser, stops=prompt.stop, patient=family.stops.patient)
    async with aclosing(generate(engine, job, stream)) as outputs:
        async for output in outputs:
            if isinstance(output, Said):
                for event in output.events:
                    yield event


async def generate(engine: Engine, job: Job, stream: ReplyStream) -> AsyncGenerator[Output, None]:
    """Run a job and read its reply with `stream`.

    Yields `Accepted`, then `Progress` and `Echoed`, `Said` whenever something was said, one last `Said`
    that ends with `Finished`, and `Done`. Closing the generator cancels the job; so does a stop sequence.

    Raises:
        EngineError: as the engine does, it gave the job up, or it did not echo all of the prompt.
    """
    accepted, made = Accepted(0), 0
    order = EchoOrder(job.echo_from) if job.echo else None
    done: Done | None = None
    async with aclosing(engine.generate(job)) as events:
        async for event in events:
            if isinstance(event, Piece):
                if order is not None and not made:
                    order.close(accepted.prompt_tokens)
                made += 1
                said = stream.feed(event)
                if said.events or said.tokens:
                    yield said
                if said.ended:
                    break
            elif isinstance(event, Done):
                done = event
            elif isinstance(event, Echo):
                if order is not None:
                    for echo in order.take(event):
                        yield Echoed(stream.echo(echo).tokens)
            else:
                if isinstance(event, Accepted):
                    accepted = event
                yield event
    if done is None:
        done = Done("stop", accepted.prompt_tokens, made, accepted.cached_tokens)
    if done.reason == "cancelled":
        raise EngineFailed("the engine gave the generation up before its end; send the request again")
    if order is not None:
        order.close(accepted.prompt_tokens or done.prompt_tokens)
    yield stream.finish(done.reason)
    yield done
