"""Which characters of a conversation a model wrote, the ground of a training loss."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from attrs import evolve

from colibri.conversation import Conversation
from colibri.errors import ColibriError
from colibri.family import Family, Prompt
from colibri.messages import Places
from colibri.provenance import Span, trusted_spans

__all__ = ["reply_spans"]


def reply_spans(family: Family, prompt: Prompt) -> tuple[Span, ...]:
    """What the model writes of a rendered conversation: characters [start, end) of each assistant turn.

    A span starts behind the generation cue and ends with the end token, where the format writes one,
    even if that is the first thing of the following turn. What a format writes into an assistant's turn
    for somebody else, such as a tool's result, is left out. Empty for a prompt without a conversation.
    """
    if prompt.conversation is None:
        return ()
    cue = _units(_cue(family, prompt.conversation), family)
    ends = list(_end_tokens(family, prompt))
    spans = []
    for start, end in _written(prompt, prompt.conversation):
        start += _given(cue, _units(prompt.text[start:end], family))
        end = next((stop for begin, stop in ends if start <= begin <= end), end)
        if start < end:
            spans.append((start, end))
    return tuple(spans)


def _written(prompt: Prompt, conversation: Conversation) -> Iterator[Span]:
    """The stretch that each assistant turn begins with, up to the first word of another turn."""
    places = Places(conversation)

    def speaker(path: tuple[str | int, ...] | None) -> int | None:
        turn = places.where(path).turn if path and path[0] == "messages" else None
        return turn if turn is not None and conversation.turns[turn].role == "assistant" else None

    done: set[int] = set()
    current: int | None = None
    start = end = 0
    for segment in prompt.segments:
        turn = speaker(segment.scope)
        if segment.kind == "value" and segment.path[0] == "messages" and speaker(segment.path) is None:
            turn = None
        if turn != current:
            if current is not None:
                yield start, end
                done.add(current)
            current, start = (None if turn in done else turn), segment.start
        end = segment.end
    if current is not None:
        yield start, end


def _cue(family: Family, conversation: Conversation) -> str:
    """What the format writes to ask for the first of the conversation's replies."""
    turns = conversation.turns
    first = next((index for index, turn in enumerate(turns) if turn.role == "assistant"), len(turns))
    asked = evolve(conversation, turns=turns[:first], open_last=False)
    try:
        return family.render(asked).text.removeprefix(family.render(asked, cue=False).text)
    except ColibriError:  # the conversation begins with a reply that nobody asked for
        return ""


def _units(text: str, family: Family) -> list[str]:
    """The text as control tokens, newlines, and what stands between them, character by character."""
    tokens = sorted(family.control_tokens, key=len, reverse=True)
    return re.findall("|".join([*map(re.escape, tokens), "."]), text, re.DOTALL)


def _given(cue: Sequence[str], units: Sequence[str]) -> int:
    """How many characters of a turn the cue gave; where they part, it is behind a token or newline."""
    common = next((i for i, pair in enumerate(zip(cue, units, strict=False)) if pair[0] != pair[1]), None)
    if common is None:
        return len("".join(cue)) if len(cue) <= len(units) else 0
    while common and len(cue[common - 1]) == 1 and cue[common - 1] != "\n":
        common -= 1
    return len("".join(cue[:common]))


def _end_tokens(family: Family, prompt: Prompt) -> Iterator[Span]:
    """The end tokens that the format itself wrote."""
    if not family.stops.tokens:
        return
    pattern = re.compile("|".join(map(re.escape, sorted(family.stops.tokens, key=len, reverse=True))))
    for start, end in trusted_spans(prompt.segments):
        for match in pattern.finditer(prompt.text, start, end):
            yield match.span()
