"""Whether each prompt of a conversation starts with the one before and its reply, and if not, why.

An engine keeps what it computed for a prompt and its reply. It can go on from there only if the next
prompt starts with exactly these characters; where it does not, everything behind is computed again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeAlias

from attrs import evolve, frozen

from colibri.conversation import Conversation, Reasoning, ToolCall
from colibri.differences import Difference, first_difference
from colibri.errors import ColibriError, Where
from colibri.family import Family, Prompt
from colibri.grammar import Grammar
from colibri.messages import REASONING_KEYS, Path, Places, template_messages
from colibri.provenance import Segment

__all__ = ["Break", "Cause", "Step", "check_prefixes"]

Cause: TypeAlias = Literal["reasoning", "thinking_block", "stripped", "arguments", "moved", "rewritten"]
"""Why a prompt does not go on from the one before.

reasoning: the format no longer prints the reasoning of a past turn. thinking_block: it opens, closes or
leaves out the block around it otherwise. stripped: it drops white space that the model wrote. arguments:
it spells the arguments of a call otherwise than the model did. moved: the same text stands at another
place. rewritten: anything else.
"""


@frozen
class Break:
    """Where a prompt parts from the one before and its reply.

    where: whose text it is. difference: the place, the left side being what the engine has.
    """

    cause: Cause
    message: str
    where: Where
    difference: Difference


@frozen
class Step:
    """From the prompt that `turn` answered to the next one, which has `next_turn` turns.

    length: characters of that prompt and its reply; kept: how many of them the next prompt starts with.
    """

    turn: int
    next_turn: int
    length: int
    kept: int
    broken: Break | None


def check_prefixes(family: Family, conversation: Conversation) -> tuple[Step, ...]:
    """A step for every assistant turn that another turn follows.

    A reply is taken to be what the format writes for its turn, with the white space and the spelling of
    arguments that the conversation has.

    Raises:
        ColibriError: the format refuses the conversation.
    """
    turns = conversation.turns
    replies = [index for index, turn in enumerate(turns) if turn.role == "assistant"]
    steps = []
    asked: Prompt | None = None
    for index, following in pairwise([*replies, len(turns)]):
        if index + 1 == len(turns):
            break
        try:
            asked = asked or family.render(evolve(conversation, turns=turns[:index], open_last=False))
        except ColibriError:  # nothing was asked before this turn, it came with the first request
            continue
        transition = _Transition(family, conversation, asked, index, following)
        steps.append(transition.step())
        asked = transition.next
    return tuple(steps)


@frozen
class _Piece:
    """A stretch of the reply: what the format writes of it, and the white space or JSON that came."""

    text: str
    segment: Segment
    cause: Cause | None = None


class _Transition:
    """One reply, the prompt before it and the prompt after it."""

    def __init__(
        self, family: Family, conversation: Conversation, asked: Prompt, turn: int, following: int
    ) -> None:
        turns = conversation.turns
        self.family, self.asked, self.turn, self.following = family, asked, turn, following
        self.conversation = evolve(conversation, open_last=False)
        self.said = family.render(evolve(self.conversation, turns=turns[: turn + 1]), cue=False)
        self.next = family.render(evolve(self.conversation, turns=turns[:following]))
        self.places = Places(conversation)
        self.messages = template_messages(conversation)
        self.marks = tuple(_thinking_marks(family.grammar))

    def step(self) -> Step:
        reply = list(self._reply())
        have = self.asked.text + "".join(piece.text for piece in reply)
        difference = first_difference(have, self.next.text[: len(have)])
        if difference is None:
            return Step(self.turn, self.following, len(have), len(have), None)
        difference = first_difference(have, self.next.text) or difference
        cause, where = self._cause(difference.at, reply)
        broken = Break(cause, self._message(cause, where), where, difference)
        return Step(self.turn, self.following, len(have), difference.at, broken)

    def _reply(self) -> Iterator[_Piece]:
        """The reply as it was sampled; none where the format cannot write it behind this prompt."""
        begin = len(self.asked.text)
        if not self.said.text.startswith(self.asked.text):
            return
        ends = [self.said.text.rfind(token, begin) for token in self.family.stops.tokens]
        end = max(ends, default=-1)
        end = len(self.said.text) if end < 0 else end
        clipped = [
            evolve(segment, start=max(segment.start, begin), end=min(segment.end, end))
            for segment in self.said.segments
            if segment.end > begin and segment.start < end
        ]
        for index, segment in enumerate(clipped):
            before = clipped[index - 1].path if index else ()
            after = clipped[index + 1].path if index + 1 < len(clipped) else ()
            yield from self._pieces(segment, first=segment.path != before, last=segment.path != after)

    def _pieces(self, segment: Segment, *, first: bool, last: bool) -> Iterator[_Piece]:
        text = self.said.text[segment.start : segment.end]
        if segment.kind == "value" and segment.offset is None:
            sent = self._sent_json(segment.path)
            changed = sent is not None and sent != text
            yield _Piece(sent if sent is not None else text, segment, "arguments" if changed else None)
            return
        value = _value(self.messages, segment.path)
        if segment.kind != "value" or segment.offset is None or not isinstance(value, str):
            yield _Piece(text, segment)
            return
        lead, rest = value[: segment.offset], value[segment.offset + len(text) :]
        if first and lead.isspace():
            yield _Piece(lead, segment, "stripped")
        yield _Piece(text, segment)
        if last and rest.isspace():
            yield _Piece(rest, segment, "stripped")

    def _sent_json(self, path: Path) -> str | None:
        """The JSON that came for all arguments of a call, or for one of them."""
        match path:
            case ("messages", int(), "tool_calls", int(), "function", "arguments", *key) if len(key) < 2:
                where = self.places.where(path)
                call = self.conversation.turns[where.turn or 0].parts[where.part or 0]
                if isinstance(call, ToolCall):
                    return call.arguments if not key else _members(call.arguments).get(str(key[0]))
        return None

    def _cause(self, at: int, reply: Sequence[_Piece]) -> tuple[Cause, Where]:
        start, prompt = len(self.asked.text), self.asked
        segment = next((s for s in prompt.segments if s.start <= at < s.end), None)
        changed: _Piece | None = None
        for piece in reply:
            if start > at:
                break
            segment, prompt = piece.segment, self.said
            changed = piece if piece.cause is not None else changed
            start += len(piece.text)
        if changed is not None and changed.cause is not None:
            # Up to there all was equal, so what was changed first shows where the texts part.
            return changed.cause, self.places.where(changed.segment.path)
        if segment is None:
            return "rewritten", Where(self.turn)
        return self._cause_in(segment, prompt, at)

    def _cause_in(self, segment: Segment, prompt: Prompt, at: int) -> tuple[Cause, Where]:
        """Why the segment of an earlier prompt in which the texts part is not in the next one there."""
        turn = self._turn_of(segment, prompt)
        where = self.places.where(segment.path) if segment.kind == "value" else Where(turn)
        if turn is not None and self._drops_reasoning(turn):
            return "reasoning", Where(turn, self._reasoning(turn))
        if segment.kind == "format" and self._at_thinking_mark(prompt, at):
            return "thinking_block", where
        if segment.kind == "value" and self._only_stripped(segment, prompt):
            return "stripped", where
        text = prompt.text[segment.start : segment.end]
        if text.strip() and text in self.next.text[at:]:
            return "moved", where if segment.kind == "value" else Where()
        return "rewritten", where

    def _at_thinking_mark(self, prompt: Prompt, at: int) -> bool:
        """Whether the texts part in what a cue says about thinking, or in a mark around reasoning."""
        cue = prompt.text.rfind(self.family.grammar.cue) if prompt is self.asked else -1
        if 0 <= cue <= at:
            return any(mark in prompt.text[cue:] for mark in self.marks)
        return any(
            _stands_at(mark, text, at) for mark in self.marks for text in (prompt.text, self.next.text)
        )

    def _turn_of(self, segment: Segment, prompt: Prompt) -> int | None:
        """The turn that a segment belongs to; a generation cue belongs to the reply behind it."""
        if prompt is self.asked and segment.end == len(prompt.text):
            return self.turn
        for path in (segment.scope, segment.path if segment.kind == "value" else None):
            if path and path[0] == "messages":
                return self.places.where(path).turn
        return None

    def _reasoning(self, turn: int) -> int | None:
        """Which part of a turn is its reasoning."""
        parts = enumerate(self.conversation.turns[turn].parts)
        return next((index for index, part in parts if isinstance(part, Reasoning)), None)

    def _drops_reasoning(self, turn: int) -> bool:
        """Whether the next prompt lacks reasoning that this turn has and had room for."""
        if self._reasoning(turn) is None or (turn == self.turn and self.asked.start == "text"):
            return False
        return not any(
            len(segment.path) > 2
            and segment.path[2] in REASONING_KEYS
            and self.places.where(segment.path).turn == turn
            for segment in self.next.segments
        )

    def _only_stripped(self, segment: Segment, prompt: Prompt) -> bool:
        """Whether the next prompt has this value too, with less white space around it."""
        mine = _printed(prompt, segment.path)
        now = _printed(self.next, segment.path)
        return mine != now and mine.strip() == now.strip() != ""

    def _message(self, cause: Cause, where: Where) -> str:
        whose = str(where) or "what belongs to no turn"
        later = "" if self.following == self.turn + 1 else f" once turn {self.following - 1} is there"
        match cause:
            case "reasoning":
                return f"the format drops the reasoning of turn {where.turn}{later}{self._remedy()}"
            case "thinking_block" if where.turn is not None and self._reasoning(where.turn) is not None:
                return f"turn {where.turn} has reasoning, although its prompt left no room for any"
            case "thinking_block":
                return (
                    f"turn {where.turn} has no reasoning, and the format writes its thinking block"
                    f" otherwise{later}{self._remedy()}"
                )
            case "stripped":
                return f"the format strips white space that came with {whose}"
            case "arguments":
                return f"the format spells the arguments otherwise than they came: {whose}"
            case "moved":
                return f"the format writes this at another place{later}: {whose}"
        return f"the format writes this otherwise{later}: {whose}"

    def _remedy(self) -> str:
        """What to say if nothing broke were past reasoning kept."""
        thinking = self.conversation.thinking
        if not self.family.features.preserve_thinking or thinking.preserve is True:
            return ""
        kept = evolve(self.conversation, thinking=evolve(thinking, preserve=True))
        asked = self.family.render(evolve(kept, turns=kept.turns[: self.turn]))
        step = _Transition(self.family, kept, asked, self.turn, self.following).step()
        return "; preserve_thinking keeps it" if step.broken is None else ""


def _printed(prompt: Prompt, path: Path) -> str:
    return "".join(prompt.text[s.start : s.end] for s in prompt.segments if s.path == path)


def _value(messages: Sequence[Any], path: Path) -> Any:
    """The value at a path into the template's messages; None where there is none."""
    value: Any = messages if path[:1] == ("messages",) else None
    for step in path[1:]:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object, each value as it is spelled; empty if `text` is none."""
    decoder, members = json.JSONDecoder(), {}
    at = _skip(text, 0)
    try:
        while text[at] not in "}":
            key, at = decoder.raw_decode(text, _skip(text, at + 1))
            start = _skip(text, _skip(text, at) + 1)
            _, end = decoder.raw_decode(text, start)
            members[key], at = text[start:end], _skip(text, end)
    except (ValueError, IndexError, RecursionError):
        return {}
    return members


def _skip(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _stands_at(mark: str, text: str, at: int) -> bool:
    """Whether the character at `at` is one of `mark`."""
    return mark in text[max(at - len(mark) + 1, 0) : at + len(mark)]


def _thinking_marks(grammar: Grammar) -> Iterable[str]:
    """The literals that open or close reasoning in a reply."""
    thinking = {name for name, state in grammar.states.items() if state.slot == "reasoning"}
    thinking |= {name for name, state in grammar.states.items() if state.otherwise in thinking}
    for name, state in grammar.states.items():
        for mark in state.marks:
            if not mark.tools and (name in thinking or mark.to in thinking):
                yield mark.at
