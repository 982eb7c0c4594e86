"""A loaded model that replies in the terminal, with the options that say how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import field, frozen

from colibri.cli.common import (
    disable_plugin,
    family_option,
    find_checkpoint,
    model_option,
)
from colibri.conversation import Conversation, Text, Thinking, Turn
from colibri.events import Event
from colibri.server.settings import DEFAULT_TOKENS

if TYPE_CHECKING:
    from colibri.family import Family, Prompt
    from colibri_engine.api import Done, Engine, SamplingParams

__all__ = ["Answer", "Session", "Wishes", "open_session", "session_options"]

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


@frozen
class Wishes:
    """How a reply is wanted; None leaves the family's default, or the engine's."""

    model: str | None = None
    family: str | None = None
    system: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int = DEFAULT_TOKENS
    context: int | None = None
    threads: int | None = None
    thinking: bool | None = None
    effort: str | None = None

    def conversation(self, turns: Sequence[Turn]) -> Conversation:
        """The turns behind the system text, with the wished thinking."""
        first = () if self.system is None else (Turn("system", (Text(self.system),)),)
        return Conversation((*first, *turns), thinking=Thinking(self.thinking, self.effort))


_OPTIONS = (
    model_option,
    family_option,
    click.option("--system", "-s", metavar="TEXT", help="What the model is told before the first turn."),
    click.option("--temp", "temperature", type=click.FloatRange(0, 2), help="Temperature; 0 is greedy."),
    click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), help="Nucleus sampling."),
    click.option("--seed", type=click.IntRange(0), help="Makes sampling repeatable."),
    click.option(
        "--max-tokens",
        "-n",
        type=click.IntRange(1),
        default=DEFAULT_TOKENS,
        show_default=True,
        help="Most tokens of a reply.",
    ),
    click.option("--ctx", "context", type=click.IntRange(1), help="Tokens of context."),
    click.option("--threads", "-t", type=click.IntRange(1), help="Threads that compute."),
    click.option("--think/--no-think", "thinking", default=None, help="Reason before answering, or do not."),
    click.option("--effort", metavar="LEVEL", help="How much to reason: none, minimal, low, medium, high …"),
    disable_plugin,
)


def session_options(command: _Decorated) -> _Decorated:
    """Give a command the options that `Wishes` is made of."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@frozen
class Answer:
    """A reply that ended: to which prompt, its exact text if the model ended it itself, and its counts."""

    prompt: Prompt
    raw: str | None
    done: Done


@frozen
class Session:
    """A loaded model, one reply at a time. Ctrl-C during a reply cancels it and raises KeyboardInterrupt."""

    family: Family
    engine: Engine
    wishes: Wishes
    _runner: asyncio.Runner = field(factory=asyncio.Runner, init=False, repr=False)

    def prompt(self, turns: Sequence[Turn]) -> Prompt:
        """The prompt of the turns, with the wished system text and thinking.

        Raises:
            ColibriError: the family's format refuses the turns.
        """
        from colibri.generation import prepare

        return prepare(self.family, self.wishes.conversation(turns))

    def reply(self, prompt: Prompt, show: Callable[[Event], None]) -> Answer:
        """Reply to a prompt, telling `show` each event as it comes.

        Raises:
            EngineError: the prompt does not fit, or the engine failed.
        """
        return self._runner.run(self._reply(prompt, show))

    async def _reply(self, prompt: Prompt, show: Callable[[Event], None]) -> Answer:
        from colibri.generation import generate
        from colibri.pipeline import ReplyStream, Said
        from colibri.provenance import trusted_spans
        from colibri_engine.api import Done, Job

        job = Job(
            prompt=prompt.text,
            max_tokens=self.wishes.max_tokens,
            trusted=trusted_spans(prompt.segments),
            sampling=self._sampling(),
        )
        parser = self.family.new_parser((), prompt)
        stream = ReplyStream(parser, stops=prompt.stop, patient=self.family.stops.patient)
        raw: list[str] = []
        async with aclosing(generate(self.engine, job, stream)) as outputs:
            async for output in outputs:
                if isinstance(output, Said):
                    raw.append(output.raw)
                    for event in output.events:
                        show(event)
                elif isinstance(output, Done):
                    whole = output.reason == "stop" and stream.stopped is None
                    return Answer(prompt, "".join(raw) if whole else None, output)
        raise AssertionError("a generation ends with Done or an error")

    def _sampling(self) -> SamplingParams:
        from colibri_engine.api import SamplingParams

        names = ("temperature", "top_p", "seed")
        wished = {name: value for name in names if (value := getattr(self.wishes, name)) is not None}
        honoured = self.engine.capabilities.sampling
        layers = {**self.family.serve.sampling, **wished}
        return SamplingParams(**{name: value for name, value in layers.items() if name in honoured})

    def close(self) -> None:
        """Free the model."""
        self._runner.run(self.engine.close())
        self._runner.close()


@contextmanager
def open_session(ctx: click.Context, wishes: Wishes) -> Iterator[Session]:
    """Load the wished model.

    Raises:
        ColibriError: the model or its family cannot be had. EngineError: it cannot be loaded.
    """
    from colibri.engines import open_engine

    path, family = find_checkpoint(ctx, wishes.family, wishes.model)
    engine = open_engine(path, family, context=wishes.context, threads=wishes.threads)
    session = Session(family, engine, wishes)
    try:
        yield session
    finally:
        session.close()
