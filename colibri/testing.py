"""A test suite for a family, from one call.

In a plugin's tests::

    from colibri.testing import family_suite

    TestZebra = family_suite("zebra")

gives snapshots of the built-in corpus (needs pytest and syrupy; exact bytes, one readable file a case),
and the laws every family must hold: prompts are pure and fully accounted for, what a prompt says an
assistant wrote is read back as what it was, reading does not depend on how the text is cut, and prompts
start with the ones before as far as the family says so.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias

import pytest
from attrs import evolve, frozen
from syrupy.extensions.single_file import SingleFileSnapshotExtension

from colibri.conversation import Conversation, Part, Reasoning, Text, Thinking, ToolCall, Turn
from colibri.corpus import conversations as corpus
from colibri.differences import first_difference
from colibri.errors import ColibriError, FamilyFileError
from colibri.events import Event, ToolCallStart
from colibri.family import Family, ParserLike, Prompt
from colibri.registry import load
from colibri.reply import Reply, ReplyCall, fold, join
from colibri.stability import stability

__all__ = [
    "Told",
    "Written",
    "cuts",
    "family_suite",
    "in_random_sizes",
    "in_sizes",
    "in_tokens",
    "read",
    "told_cuts",
    "written",
]

_REFUSED = "refused"

Told: TypeAlias = tuple[str, bool | None]
"""A piece of a reply and whether it is a control token; None: the engine cannot tell."""


class PromptFile(SingleFileSnapshotExtension):
    """A snapshot that is the prompt itself, byte for byte."""

    file_extension = "txt"

    def serialize(self, data: Any, **_: Any) -> bytes:
        return str(data).encode("utf-8")


@frozen
class Written:
    """A reply in the family's own words: the prompt it answers, its text, and what it means.

    `after` is the conversation that ends with it.
    """

    name: str
    prompt: Prompt
    text: str
    after: Conversation

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that the reply makes."""
        return [part for part in self.after.turns[-1].parts if isinstance(part, ToolCall)]


def written(family: Family, conversations: Mapping[str, Conversation]) -> Iterator[Written]:
    """Every assistant turn of the conversations that the format writes behind an unchanged prompt.

    Where the default prompt opens reasoning that the turn does not have, thinking is turned off.
    """
    for name, conversation in conversations.items():
        if conversation.open_last:
            continue
        for index, turn in enumerate(conversation.turns):
            if turn.role != "assistant":
                continue
            for thinking in (conversation.thinking, Thinking(enabled=False)):
                after = evolve(conversation, turns=conversation.turns[: index + 1], thinking=thinking)
                if (reply := _written_last(family, f"{name}-{index}", after)) is not None:
                    yield reply
                    break


def _written_last(family: Family, name: str, after: Conversation) -> Written | None:
    try:
        prompt = family.render(evolve(after, turns=after.turns[:-1]))
        whole = family.render(after, cue=False)
    except ColibriError:
        return None
    if not whole.text.startswith(prompt.text):
        return None
    text = _without_end(whole.text[len(prompt.text) :], family.stops.tokens)
    return Written(name, prompt, text, after)


def read(parser: ParserLike, pieces: Sequence[str], reason: str = "stop") -> list[Event]:
    """The joined events of a reply that arrives in these pieces; random call ids are left out."""
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece)
    events = join([*events, *parser.finish(reason)])
    return [evolve(event, id="") if isinstance(event, ToolCallStart) else event for event in events]


def cuts(text: str, seed: int = 0) -> Iterator[tuple[str, list[str]]]:
    """Ways to cut a text: whole, single characters, fixed sizes and random ones."""
    yield "whole", [text]
    for size in (1, 3, 7):
        yield f"by {size}", in_sizes(text, size)
    chooser = random.Random(seed)
    for turn in range(3):
        yield f"random {turn}", in_random_sizes(text, chooser)


def told_cuts(text: str, special: Sequence[str]) -> Iterator[tuple[str, list[Told]]]:
    """Ways a reply arrives from an engine that tells control tokens and from one that cannot.

    `special` are the spellings of the control tokens, as `family.grammar.special` has them.
    """
    for plan, pieces in cuts(text):
        yield plan, [(piece, None) for piece in pieces]
    for size in (1, 3, 7, max(1, len(text))):
        yield f"tokens by {size}", in_tokens(text, special, size)


def in_sizes(text: str, size: int) -> list[str]:
    """The text in pieces of `size` characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def in_random_sizes(text: str, chooser: random.Random, most: int = 13) -> list[str]:
    """The text in pieces of 1 to `most` characters."""
    pieces, at = [], 0
    while at < len(text):
        size = chooser.randint(1, most)
        pieces.append(text[at : at + size])
        at += size
    return pieces


def in_tokens(text: str, special: Sequence[str], size: int) -> list[Told]:
    """Control tokens whole and authentic, the rest `size` characters a piece and ordinary."""
    if not special:
        return [(piece, False) for piece in in_sizes(text, size)]
    ordered = sorted(special, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, ordered))})", text)
    told: list[Told] = []
    for part in parts:
        told += [(part, True)] if part in special else [(piece, False) for piece in in_sizes(part, size)]
    return told


def family_suite(family: str | Family, *, conversations: Mapping[str, Conversation] | None = None) -> type:
    """A class of tests for a family, given as a value or by its id; assign it to a name in `Test…`.

    `conversations` replaces the built-in corpus.
    """
    subject = load()[family] if isinstance(family, str) else family
    cases = dict(corpus() if conversations is None else conversations)
    replies = {case.name: case for case in written(subject, cases)}
    each_case = pytest.mark.parametrize("case", list(cases))
    each_reply = pytest.mark.parametrize("case", list(replies))

    class FamilySuite:
        def test_the_template_compiles(self) -> None:
            subject.template.compile()

        def test_the_cue_is_that_of_the_reply(self) -> None:
            asked = [case for case in cases.values() if case.turns and not case.open_last]
            prompts = [told for case in asked if not (told := _told(subject, case)).startswith(_REFUSED)]
            assert prompts, "the template refuses every conversation of the corpus"
            assert any(subject.grammar.cue in text for text in prompts), (
                f"no prompt holds {subject.grammar.cue!r}, the `cue` of the reply's grammar, behind which a"
                f" reply begins; one ends {prompts[0][-80:]!r}"
            )

        @each_case
        def test_prompt(self, case: str, snapshot: Any) -> None:
            assert _told(subject, cases[case]) == snapshot(extension_class=PromptFile)

        @each_case
        def test_render_is_pure(self, case: str) -> None:
            before = deepcopy(cases[case])
            once, again = _told(subject, cases[case]), _told(subject, cases[case])
            assert once == again, _difference(once, again)
            assert cases[case] == before, "the render changed the conversation it was given"

        @each_case
        def test_every_character_has_an_origin(self, case: str) -> None:
            try:
                prompt = subject.render(cases[case])
            except ColibriError:
                return
            at = 0
            for segment in prompt.segments:
                assert segment.start == at, f"{segment} does not begin where the one before ends, at {at}"
                assert segment.end > at, f"{segment} is empty"
                at = segment.end
            assert at == len(prompt.text), f"no segment covers what is behind {prompt.text[:at][-40:]!r}"

        @each_case
        def test_the_cue_only_adds(self, case: str) -> None:
            if cases[case].open_last:
                return
            try:
                with_cue = subject.render(cases[case]).text
            except ColibriError:
                return
            without = subject.render(cases[case], cue=False).text
            assert with_cue.startswith(without), _difference(without, with_cue)

        def test_prefix_stability_is_as_said(self) -> None:
            said, found = subject.features.prefix_stable, stability(subject)
            assert said == found, f"`features.prefix_stable` says {said!r}, the prompts say {found!r}"

        @each_reply
        def test_a_written_reply_is_read_back(self, case: str) -> None:
            reply = replies[case]
            said = fold(read(_parser(subject, reply), [reply.text]))
            again = evolve(reply.after, turns=(*reply.after.turns[:-1], _turn_of(said)))
            want, got = (subject.render(turns, cue=False).text for turns in (reply.after, again))
            assert got == want, f"{reply.text!r} was read as {said}: {_difference(want, got)}"
            if subject.features.tools:
                calls, meant = _calls(said.tool_calls), _calls(reply.calls)
                assert calls == meant, f"{reply.text!r} was read as the calls {calls}, not {meant}"
            assert not said.broken, f"{reply.text!r} was read as broken calls: {said.broken}"

        @each_reply
        def test_cutting_makes_no_difference(self, case: str) -> None:
            reply = replies[case]
            whole = read(_parser(subject, reply), [reply.text])
            for plan, pieces in cuts(reply.text):
                assert read(_parser(subject, reply), pieces) == whole, plan

        @each_reply
        def test_spans_cover_the_reply(self, case: str) -> None:
            reply = replies[case]
            spans = sorted((event.start, event.end) for event in read(_parser(subject, reply), [reply.text]))
            at = 0
            for start, end in spans:
                assert start <= at, f"no event covers {reply.text[at:start]!r} of {reply.text!r}"
                at = max(at, end)
            assert at == len(reply.text), f"no event covers {reply.text[at:]!r} of {reply.text!r}"

        @each_reply
        @pytest.mark.parametrize("reason", ["stop", "length"])
        def test_a_reply_cut_short_is_read(self, case: str, reason: Literal["stop", "length"]) -> None:
            reply = replies[case]
            for end in range(0, len(reply.text), max(1, len(reply.text) // 40)):
                said = fold(read(_parser(subject, reply), [reply.text[:end]], reason))
                assert len(said.tool_calls) <= len(reply.calls), f"{reply.text[:end]!r} was read as {said}"

    FamilySuite.__doc__ = f"The laws of a family, for {subject.id}."
    FamilySuite.__qualname__ = FamilySuite.__name__ = f"Test_{subject.id}"
    return FamilySuite


def _told(family: Family, conversation: Conversation) -> str:
    try:
        return family.render(conversation).text
    except FamilyFileError:
        raise
    except ColibriError as error:
        return f"{_REFUSED} ({error.code}): {error.message}"


def _difference(want: str, got: str) -> str:
    """Where two texts begin to differ."""
    found = first_difference(want, got)
    return f"at character {found.at} comes {found.right} and not {found.left}" if found else "nothing differs"


def _parser(family: Family, reply: Written) -> ParserLike:
    return family.new_parser(reply.after.tools, reply.prompt)


def _without_end(text: str, tokens: Sequence[str]) -> str:
    cut = max((text.rfind(token) for token in tokens), default=-1)
    return text if cut < 0 else text[:cut]


def _turn_of(reply: Reply) -> Turn:
    parts: list[Part] = [Reasoning(reply.reasoning)] if reply.reasoning else []
    parts.append(Text(reply.content))
    parts += [ToolCall(call.name, call.arguments, call.id) for call in reply.tool_calls]
    return Turn("assistant", tuple(parts))


def _calls(calls: Iterable[ToolCall | ReplyCall]) -> list[tuple[str, Any]]:
    return [(call.name, ToolCall(call.name, call.arguments).decoded()) for call in calls]
