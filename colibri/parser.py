"""Reads one reply: raw text in, events out, independent of how the text is cut.

    parser = Parser(grammar, tools)
    for piece in pieces:
        events = parser.feed(piece)
    events = parser.finish("stop")

A full parse is `feed` and `finish`; there is no other.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from typing import Literal

from attrs import evolve

from colibri.assembler import Assembler
from colibri.conversation import Tool
from colibri.events import Event, Framing, ReasoningDelta, TextDelta
from colibri.grammar import Grammar
from colibri.scanner import Scanner
from colibri.steps import Observer

__all__ = ["Parser", "new_call_id"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def new_call_id() -> str:
    """A fresh id in the form of OpenAI's: `call_` and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


class Parser:
    """Reads one reply in the form that `grammar` describes.

    tools: those the request declares; without any, nothing is a call. prime: what the prompt has behind
    its last generation cue; it is scanned too, so that a call the prompt opened is open, but only that
    call's events are given. start: without `prime`, where the prompt left the reply. ids: makes the ids
    of calls that have none of their own. salvage: make an argument of text in a call that is in no readable
    form, see `colibri.salvage`. observer: told every decision of the scanner.

    Whether the engine can tell control tokens from text is known with the first piece and holds for the
    whole reply.
    """

    def __init__(
        self,
        grammar: Grammar,
        tools: Sequence[Tool] = (),
        *,
        prime: str | None = None,
        start: Literal["reasoning", "text"] | None = None,
        ids: Callable[[], str] | None = None,
        salvage: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.grammar = grammar
        self._tools = bool(tools)
        self._prime = prime
        named = None if prime is not None or start is None else grammar.starts.get(start)
        self._begin = named or grammar.begin
        self._observer = observer
        self._assembler = Assembler(tools, ids or new_call_id, grammar.call_marks if salvage else None)
        self._events = self._assembler.events
        self._scanner: Scanner | None = None
        self._lone: dict[str, str] = {}
        self._special: re.Pattern[str] | None = None
        self._clip = False
        self._finished = False

    def feed(self, text: str, control: bool | None = None) -> list[Event]:
        """Take the next characters and give the events that they decide.

        control: True for text that is authentic, such as one control token; False for ordinary text, in
        which spellings of special tokens mean nothing; None when the engine cannot tell.

        Raises:
            RuntimeError: the reply was finished before.
        """
        if self._finished:
            raise RuntimeError("this reply is finished; use a new Parser for the next one")
        if not text:
            return []
        scanner = self._scanner or self._start(authentic=control is not None)
        if self._special is None:
            scanner.feed(text)
        else:
            self._feed_told(scanner, text, authentic=control is True)
        if self._clip:
            return self._clipped()
        taken = self._events.copy()
        self._events.clear()
        return taken

    def finish(self, reason: str) -> list[Event]:
        """End the reply: `reason` is "length" when a limit cut it, otherwise "stop" or a server's other word.

        The last event is `Finished`.

        Raises:
            RuntimeError: the reply was finished before.
        """
        if self._finished:
            raise RuntimeError("this reply is finished; use a new Parser for the next one")
        scanner = self._scanner or self._start(authentic=False)
        self._finished = True
        reason = "length" if reason == "length" else "stop"
        scanner.finish(reason)
        self._assembler.finish(reason, scanner.node, scanner.base)
        return self._clipped()

    def _start(self, *, authentic: bool) -> Scanner:
        """Set the scanner up, and let it read the prompt's end."""
        grammar, prime = self.grammar, self._prime or ""
        if authentic and grammar.special:
            self._lone = dict(grammar.lone)
            spellings = sorted(self._lone, key=len, reverse=True)
            self._special = re.compile(f"({'|'.join(map(re.escape, spellings))})")
        self._scanner = scanner = Scanner(
            grammar.nodes(tools=self._tools, authentic=authentic)[self._begin],
            self._assembler,
            special=grammar.special,
            spell={lone: spelling for spelling, lone in self._lone.items()},
            observer=self._observer,
        )
        scanner.base = -len(prime)
        if prime:
            if self._special is None:
                scanner.feed(prime)
            else:
                self._feed_told(scanner, prime, authentic=True)
            self._assembler.forget_prompt()
        self._clip = bool(scanner.held) or self._assembler.busy
        return scanner

    def _feed_told(self, scanner: Scanner, text: str, *, authentic: bool) -> None:
        """Feed text of which it is known whether special tokens in it are real."""
        parts = self._special.split(text) if authentic and self._special else [text]
        for part in parts:
            if authentic and part in self._lone:
                scanner.feed(self._lone[part], lone=True)
            elif part:
                scanner.feed(_SURROGATE.sub("\ufffd", part))

    def _clipped(self) -> list[Event]:
        """The new events without what the prompt contributed."""
        clipped = (_clipped(event) for event in self._assembler.take())
        return [event for event in clipped if event is not None]


def _clipped(event: Event) -> Event | None:
    """The event without what the prompt contributed: spans begin at 0."""
    if event.start >= 0:
        return event
    if isinstance(event, TextDelta | ReasoningDelta):
        text = event.text[-event.start :]
        return evolve(event, text=text, start=0) if text else None
    if isinstance(event, Framing) and event.end <= 0:
        return None
    return evolve(event, start=0, end=max(0, event.end))
