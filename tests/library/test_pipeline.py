"""Engine pieces to events: bytes, stop sequences, and where every token went."""

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.events import Finished, Framing, TextDelta
from colibri.parser import Parser
from colibri.pipeline import ReplyStream, Said, Token
from colibri.reply import Reply, fold, join
from colibri_engine.api import Candidate, Echo, Piece

from .replies import Case, cases, check_laws, grammar, in_random_sizes, parser, tools

GLM = (
    "Ok.</think>Let me see.<tool_call>find_folio<arg_key>shelf</arg_key><arg_value>A1</arg_value></tool_call>"
)


def stream(name: str = "glm47", start: Any = "reasoning", **options: Any) -> ReplyStream:
    return ReplyStream(Parser(grammar(name), tools("tools3"), start=start, ids=lambda: "id"), **options)


def run(subject: ReplyStream, pieces: list[Piece], reason: str = "stop") -> Said:
    said = [subject.feed(piece) for piece in pieces] + [subject.finish(reason)]
    events = [event for part in said for event in part.events]
    return Said(events, [token for part in said for token in part.tokens], said[-1].ended)


def pieces(texts: list[str], control: bool | None = None) -> list[Piece]:
    return [Piece(text.encode(), control=control) for text in texts]


def reply(said: Said) -> Reply:
    return fold(said.events)


def test_code_points_are_never_split() -> None:
    data = "é🌋".encode()
    said = run(stream("chatml", "text"), [Piece(data[at : at + 1]) for at in range(len(data))])
    assert [event.text for event in said.events if isinstance(event, TextDelta)] == ["é", "🌋"]


def test_bytes_that_are_not_utf8_become_replacement_characters() -> None:
    said = run(stream("chatml", "text"), [Piece(b"a\xff"), Piece(b"\xe2\x82"), Piece(b"b\xf0\x9f")])
    assert reply(said).content == "a\ufffd\ufffdb\ufffd"
    check_laws(join(said.events), "a\ufffd\ufffdb\ufffd")


def test_a_stop_sequence_ends_the_reply() -> None:
    subject = stream("chatml", "text", stops=["END"])
    assert not subject.feed(Piece(b"All is well. E")).ended
    assert subject.feed(Piece(b"NDless")).ended
    assert subject.feed(Piece(b" more")).ended
    assert subject.stopped == "END"
    said = subject.finish("length")
    assert said.events == [Framing("stop", 13, 25), Finished("stop", 25, 25)]


def test_a_stop_sequence_is_sought_in_the_raw_reply() -> None:
    """It ends the turn inside reasoning and inside a call; a call that may end there is complete."""
    for stop, content, calls in [("k.", "", 0), ("A1", "Let me see.", 0), ("</tool_call>", "Let me see.", 1)]:
        said = run(stream(stops=[stop]), pieces(list(GLM)))
        assert (reply(said).content, len(reply(said).tool_calls)) == (content, calls)
        assert said.ended
        check_laws(join(said.events), GLM)


def test_leading_stops_are_dropped_and_counted() -> None:
    raw = " <|user|>\nHi <|user|>x"
    said = run(stream("chatml", "text", stops=["<|user|>"], patient=True), pieces(list(raw)))
    assert join(said.events) == [
        Framing("stop", 0, 10),
        TextDelta("Hi ", 10, 13),
        Framing("stop", 13, 22),
        Finished("stop", 22, 22),
    ]


@pytest.mark.parametrize("stops", [(), ("zzz",), ("zzz", "</zzz>", "<tool_callx")])
def test_the_filter_keeps_told_control_tokens(stops: tuple[str, ...]) -> None:
    special = "|".join(map(re.escape, grammar("glm47").special))
    told = [
        Piece(part.encode(), control=re.fullmatch(special, part) is not None)
        for part in re.split(f"({special})", GLM)
        if part
    ]
    said = run(stream(stops=stops), told)
    assert [call.arguments for call in reply(said).tool_calls] == ['{"shelf": "A1"}']
    assert join(said.events) == join(run(stream(), told).events)
    spelled = run(stream(stops=stops), pieces(in_random_sizes(GLM, random.Random(1)), control=False))
    assert reply(spelled).reasoning == GLM


def test_tokens_are_the_content() -> None:
    texts = [
        "Ok",
        ".</think>",
        "Let",
        " me",
        " see.",
        "<tool_call>",
        "find_folio",
        GLM[GLM.index("<arg_key>") :],
    ]
    said = run(stream(tokens=True), [Piece(text.encode(), at, None, -0.5) for at, text in enumerate(texts)])
    assert [token.text for token in said.tokens] == ["Let", " me", " see."]
    assert [token.token_id for token in said.tokens] == [2, 3, 4]
    assert all(token.logprob == -0.5 and not token.cut for token in said.tokens)


def test_a_token_that_a_stop_cuts_keeps_what_was_emitted() -> None:
    top = (Candidate(7, -0.1, b"Hello"),)
    said = run(stream("chatml", "text", stops=["lo"], tokens=True), [Piece(b"Hello", 7, None, -0.1, top)])
    assert list(said.tokens) == [Token("Hel", b"Hello", 7, -0.1, top, cut=True)]


def test_a_character_belongs_to_the_token_that_completes_it() -> None:
    data = "é!".encode()
    said = run(stream("chatml", "text", tokens=True), [Piece(data[:1]), Piece(data[1:])])
    assert [(token.text, token.data, token.cut) for token in said.tokens] == [
        ("", data[:1], False),
        ("é!", data[1:], False),
    ]


def test_one_decoder_reads_prompt_and_reply() -> None:
    data = "aé".encode()
    subject = stream("chatml", "text", tokens=True)
    echoed = subject.echo(Echo(0, data[:2], 1, None))
    assert [token.text for token in echoed.tokens] == ["a"]
    said = run(subject, [Piece(data[2:])])
    assert "".join(token.text for token in said.tokens) == reply(said).content == "é"


def subject_for(case: Case, stops: tuple[str, ...], patient: bool) -> ReplyStream:
    return ReplyStream(parser(case), stops=stops, patient=patient, tokens=True)


@given(st.data())
def test_joined_tokens_are_the_content(data: st.DataObject) -> None:
    """For every recorded reply, cut anywhere, with and without a stop sequence."""
    case = data.draw(st.sampled_from(cases()))
    raw = case["raw"].encode()
    borders = sorted(data.draw(st.sets(st.integers(1, len(raw)), max_size=40)) | {len(raw)})
    chunks = [raw[start:end] for start, end in zip([0, *borders], borders, strict=False)]
    stops = data.draw(st.sampled_from([(), ("e",), (" ", "\n"), ("</",)]))
    patient = data.draw(st.booleans())
    subject = subject_for(case, stops, patient)
    said = run(subject, [Piece(chunk) for chunk in chunks], case["finish_reason_in"])
    check_laws(join(said.events), case["raw"])
    assert "".join(token.text for token in said.tokens) == reply(said).content
    once = run(subject_for(case, stops, patient), [Piece(raw)], case["finish_reason_in"])
    assert join(said.events) == join(once.events)
