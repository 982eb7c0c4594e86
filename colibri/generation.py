"""One generation: engine pieces in, what a client is told out."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal, Protocol, TypeAlias

from attrs import frozen
from colibri_engine.api import Accepted, Done, Echo, Engine, Job, Piece, Progress
from colibri_engine.errors import EngineFailed

from colibri.conversation import Conversation
from colibri.events import Event, Finished, TextDelta
from colibri.family import Family, ParserLike, Prompt
from colibri.framing import check_continuation, fold, serve_defaults

__all__ = ["Output", "PlainParser", "Reader", "Said", "TextReader", "generate", "prepare"]


@frozen
class Said:
    """What the reply's next pieces mean; `ended` once a stop sequence was met."""

    events: Sequence[Event]
    ended: bool = False


Output: TypeAlias = Accepted | Progress | Said | Done


class Reader(Protocol):
    """Makes events of an engine's pieces."""

    def echo(self, echo: Echo) -> Said:
        """Take one position of the prompt."""
        ...

    def feed(self, piece: Piece) -> Said:
        """Take the next piece of the reply."""
        ...

    def finish(self, reason: Literal["stop", "length"]) -> Said:
        """End the reply."""
        ...


class PlainParser:
    """Reads a reply to a raw prompt: all of it is text."""

    def __init__(self) -> None:
        self._end = 0

    def feed(self, text: str, control: bool | None = None) -> list[Event]:
        """The characters as they are."""
        start, self._end = self._end, self._end + len(text)
        return [TextDelta(text, start, self._end)]

    def finish(self, reason: str) -> list[Event]:
        """The end."""
        return [Finished("length" if reason == "length" else "stop", self._end, self._end)]


class TextReader:
    """Reads a reply with a parser; bytes of unfinished code points are held back."""

    def __init__(self, parser: ParserLike) -> None:
        self._parser = parser
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    def echo(self, echo: Echo) -> Said:
        """Nothing: the prompt is not part of the reply."""
        return Said(())

    def feed(self, piece: Piece) -> Said:
        """The events of the piece's whole code points."""
        text = self._decode(piece.data)
        return Said(self._parser.feed(text, piece.control) if text else ())

    def finish(self, reason: Literal["stop", "length"]) -> Said:
        """The events that were held back."""
        rest = self._decode(b"", True)
        events = self._parser.feed(rest) if rest else []
        return Said([*events, *self._parser.finish(reason)])


def prepare(family: Family, conversation: Conversation) -> Prompt:
    """The prompt that a server gives for a conversation: folded, with serving defaults, rendered.

    Raises:
        ColibriError: the family's format refuses it.
    """
    if conversation.open_last:
        check_continuation(conversation)
    return family.render(serve_defaults(fold(conversation, family), family))


async def generate(engine: Engine, job: Job, reader: Reader) -> AsyncGenerator[Output, None]:
    """Run a job: `Accepted`, `Progress` and `Said` as they come, then one `Done`.

    Closing the generator cancels the job, and so does the reader's end.

    Raises:
        EngineError: as the engine does, or it gave the job up.
    """
    accepted, made = Accepted(0), 0
    done: Done | None = None
    async with aclosing(engine.generate(job)) as events:
        async for event in events:
            if isinstance(event, Piece):
                made += 1
                said = reader.feed(event)
                if said.events:
                    yield said
                if said.ended:
                    break
            elif isinstance(event, Done):
                done = event
            elif isinstance(event, Echo):
                yield reader.echo(event)
            else:
                if isinstance(event, Accepted):
                    accepted = event
                yield event
    if done is None:
        done = Done("stop", accepted.prompt_tokens, made, accepted.cached_tokens)
    if done.reason == "cancelled":
        raise EngineFailed("the engine gave the generation up before its end; send the request again")
    yield reader.finish("length" if done.reason == "length" else "stop")
    yield done
