"""From an engine's pieces to events: bytes to text, stop sequences, the parser, and tokens by their place.

Everything that counts characters counts those of the raw generation, so that every stage can only delete
and what became of a token is interval arithmetic.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from attrs import evolve, frozen

from colibri.events import Event, Finished, Framing, ReasoningDelta, TextDelta
from colibri.stopping import StopFilter
from colibri_engine.api import Candidate, Echo, Piece

__all__ = ["ReplyStream", "Said", "Token"]


class _Parser(Protocol):
    def feed(self, text: str, control: bool | None = None) -> list[Event]: ...

    def finish(self, reason: str) -> list[Event]: ...


@frozen
class Token:
    """One token of the returned text.

    text: those of its characters that reached it; a character belongs to the token that completes it.
    cut: whether others of its characters did not. data: the engine's bytes for it. logprob: natural
    logarithm of its probability. top: candidates at its position, in the engine's order.
    """

    text: str
    data: bytes
    token_id: int | None = None
    logprob: float | None = None
    top: tuple[Candidate, ...] = ()
    cut: bool = False


@frozen
class Said:
    """What the next pieces mean.

    tokens: those of the returned text whose meaning is settled by now. ended: a stop sequence was met,
    so nothing that the engine adds will be read. raw: the characters of the raw generation that came.
    """

    events: Sequence[Event]
    tokens: Sequence[Token] = ()
    ended: bool = False
    raw: str = ""


class ReplyStream:
    """Reads one generation.

    stops: sequences that end the reply; with `patient` those at its very beginning are dropped instead.
    tokens: whether to locate every token in the returned text. Bytes of an unfinished code point wait for
    the rest of it; bytes that are not UTF-8 become U+FFFD.
    """

    def __init__(
        self, parser: _Parser, *, stops: Sequence[str] = (), patient: bool = False, tokens: bool = False
    ) -> None:
        self._parser = parser
        self._filter = StopFilter(stops, patient=patient) if stops else None
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._pieces: deque[tuple[int, int, bool | None]] = deque()
        self._shift = 0
        self._ledger = _Ledger() if tokens else None
        self._end = self._passed = 0
        self._begun = False

    @property
    def stopped(self) -> str | None:
        """The stop sequence that was met, if any."""
        return self._filter.stopped if self._filter else None

    def echo(self, echo: Echo) -> Said:
        """Take one position of the prompt; it is not part of the raw generation.

        A code point that the prompt leaves unfinished belongs to the piece that completes it; it has no text
        if none comes.
        """
        text = self._decode(echo.data)
        if self._ledger is None:
            return Said(())
        return Said((), (Token(text, echo.data, echo.token_id, echo.logprob, echo.top),))

    def feed(self, piece: Piece) -> Said:
        """Take the next piece."""
        self._begun = True
        text = self._decode(piece.data)
        start, self._end = self._end, self._end + len(text)
        if self.stopped is not None:
            return Said((), ended=True)
        if self._ledger is not None:
            self._ledger.add(piece, start, self._end)
        events = self._read(text, start, piece.control) if text else []
        return self._said(events, text)

    def finish(self, reason: str) -> Said:
        """End the reply: `reason` is the engine's, "stop" or "length"; a stop sequence makes it "stop"."""
        rest = self._decode(b"", True) if self._begun else ""
        start, self._end = self._end, self._end + len(rest)
        if self._ledger is not None and rest:
            self._ledger.extend(self._end)
        events = self._read(rest, start, None) if rest else []
        if self._filter is not None:
            events += self._pass(self._filter.finish())
        finished = self._parser.finish("stop" if self.stopped is not None else reason)
        events += _moved(finished, self._shift)
        if self._filter is not None and self._passed < self._end:
            events.insert(-1, Framing("stop", self._passed, self._end))
        if isinstance(events[-1], Finished):
            events[-1] = evolve(events[-1], start=self._end, end=self._end)
        return self._said(events, rest, over=True)

    def _said(self, events: list[Event], raw: str, *, over: bool = False) -> Said:
        tokens = self._ledger.settle(events, over=over) if self._ledger is not None else ()
        return Said(events, tokens, self.stopped is not None, raw)

    def _read(self, text: str, start: int, control: bool | None) -> list[Event]:
        if self._filter is None:
            return self._parser.feed(text, control)
        self._pieces.append((start, start + len(text), control))
        return self._pass(self._filter.feed(text))

    def _pass(self, passed: Iterable[tuple[str, int, int]]) -> list[Event]:
        """Feed the parser what the stop filter let pass, in the engine's pieces."""
        events: list[Event] = []
        for text, start, end in passed:
            if start > self._passed:
                self._shift = start
                events.append(Framing("stop", self._passed, start))
            self._passed, at = end, start
            while at < end:
                first, last, control = self._pieces[0]
                if last <= at:
                    self._pieces.popleft()
                    continue
                stop = min(end, last)
                whole = at == first and stop == last
                told = control if whole or control is None else False
                events += _moved(self._parser.feed(text[at - start : stop - start], told), self._shift)
                at = stop
        return events


def _moved(events: list[Event], shift: int) -> list[Event]:
    """The events behind `shift` dropped characters."""
    if not shift:
        return events
    return [evolve(event, start=event.start + shift, end=event.end + shift) for event in events]


class _Ledger:
    """Which characters of which token reached the content."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Piece, int, int]] = deque()
        self._content: deque[tuple[int, int, str]] = deque()
        self._settled = 0

    def add(self, piece: Piece, start: int, end: int) -> None:
        """A token whose characters are start..end of the raw generation."""
        self._waiting.append((piece, start, end))

    def extend(self, end: int) -> None:
        """The last token has characters up to `end` after all."""
        if self._waiting:
            piece, start, _ = self._waiting.pop()
            self._waiting.append((piece, start, end))

    def settle(self, events: Iterable[Event], *, over: bool) -> list[Token]:
        """The tokens of the content that these events decide, or all when it is over."""
        for event in events:
            if isinstance(event, TextDelta):
                self._content.append((event.start, event.end, event.text))
            if isinstance(event, TextDelta | ReasoningDelta | Framing):
                self._settled = max(self._settled, event.end)
        tokens = []
        while self._waiting and (over or self._decided(*self._waiting[0][1:])):
            piece, start, end = self._waiting.popleft()
            text = self._text(start, end)
            if text or (start == end and self._text(start, start + 1)):
                tokens.append(_token(piece, text, cut=len(text) < end - start))
        return tokens

    def _decided(self, start: int, end: int) -> bool:
        return max(end, start + 1) <= self._settled

    def _text(self, start: int, end: int) -> str:
        """What of the raw characters start..end is content."""
        while self._content and self._content[0][1] <= start:
            self._content.popleft()
        parts = []
        for first, last, text in self._content:
            if first >= end:
                break
            parts.append(text[max(start - first, 0) : end - first if end < last else None])
        return "".join(parts)


def _token(piece: Piece, text: str, *, cut: bool) -> Token:
    return Token(text, piece.data, piece.token_id, piece.logprob, piece.top, cut)
