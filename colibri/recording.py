"""A reply as it came, chunk by chunk, with all that is needed to read it again."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from colibri.conversation import Tool
from colibri.events import Event
from colibri.family import Start
from colibri.grammar import Grammar
from colibri.parser import Parser
from colibri.steps import Observer

__all__ = ["Chunk", "Recording"]


@frozen
class Chunk:
    """What came at once; `control` as in `Parser.feed`."""

    text: str
    control: bool | None = None


@frozen
class Recording:
    """One reply.

    tools: those the request declared. prime: what the prompt had behind its last generation cue, if that
    is known; start: else, where the prompt left the reply. finish: what ended it, "stop" or "length".
    """

    chunks: tuple[Chunk, ...]
    tools: tuple[Tool, ...] = ()
    prime: str | None = None
    start: Start = None
    finish: str = "stop"

    @property
    def raw(self) -> str:
        """The whole reply."""
        return "".join(chunk.text for chunk in self.chunks)

    def play(
        self, grammar: Grammar, *, ids: Callable[[], str] | None = None, observer: Observer | None = None
    ) -> list[Event]:
        """The events of the reply, read with `grammar`; `ids` and `observer` as for `Parser`."""
        parser = Parser(grammar, self.tools, prime=self.prime, start=self.start, ids=ids, observer=observer)
        events = [event for chunk in self.chunks for event in parser.feed(chunk.text, chunk.control)]
        return [*events, *parser.finish(self.finish)]
