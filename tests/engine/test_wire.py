"""The serve line protocol: every frame is read back however the bytes are cut, and no other gets through."""

from __future__ import annotations

import math
import re
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import evolve, fields
from hypothesis import given
from hypothesis import strategies as st

from colibri_engine.api import (
    Accepted,
    Candidate,
    Capabilities,
    Done,
    Echo,
    Job,
    Piece,
    Progress,
    SamplingParams,
)
from colibri_engine.errors import CheckpointError, ContextLengthExceeded, EngineFailed, JobError
from colibri_engine.frames import MAX_BLOCKS, MAX_LINE
from colibri_engine.replies import MAX_PIECE, capabilities_of
from colibri_engine.wire import (
    Cancel,
    Caps,
    Event,
    Failure,
    LoadFailure,
    Malformed,
    Other,
    Ready,
    ReplyReader,
    RequestReader,
    Started,
    Stop,
    Submit,
    WireError,
    encode_cancel,
    encode_capabilities,
    encode_error,
    encode_event,
    encode_failure,
    encode_load_failure,
    encode_ready,
    encode_started,
    encode_stop,
    encode_submit,
)

IDS = st.integers(1, 2**63)
COUNTS = st.integers(0, 2**31)
REALS = st.floats(allow_nan=False)
FINITE = st.floats(0, 1e6)
BYTES = st.binary(max_size=12) | st.sampled_from([b"\n", b"DONE 1 STAT 0 0 0 0 0 0\n", b"a=b\n"])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["\nCANCEL 1\n", "é🙂\n"])
PLAIN = st.text("ab =,:é", min_size=1).map(lambda text: " ".join(text.split())).filter(bool)


@st.composite
def jobs(draw, version=2):
    text = draw(TEXTS)
    prompt = draw(st.just(text) | st.lists(COUNTS, max_size=5).map(tuple))
    logprobs = draw(st.none() | st.integers(2 - version, 32))
    job = Job(
        prompt,
        draw(COUNTS),
        sampling=SamplingParams(draw(FINITE), draw(FINITE)),
        logprobs=logprobs,
        echo=logprobs is not None,
        slot=draw(st.none() | st.integers(0, 15)),
        pin=draw(st.booleans()),
    )
    if version == 1:
        return job
    spans = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted).map(tuple)
    sampling = SamplingParams(
        *(draw(FINITE), draw(FINITE), draw(COUNTS), draw(FINITE), draw(FINITE)),
        draw(st.none() | st.integers(-(2**63), 2**63)),
        *(draw(REALS) for _ in range(3)),
        draw(st.dictionaries(COUNTS, REALS, max_size=3)),
    )
    return evolve(
        job,
        trusted=draw(st.none() | st.lists(spans, max_size=4).map(tuple)) if isinstance(prompt, str) else None,
        sampling=sampling,
        stop_token_ids=tuple(draw(st.lists(COUNTS, max_size=3))),
        echo=draw(st.booleans()),
        echo_from=draw(COUNTS),
        grammar=draw(st.none() | st.tuples(st.sampled_from(["json_schema", "regex", "lark"]), TEXTS)),
    )


CANDIDATES = st.lists(st.builds(Candidate, COUNTS, REALS, st.none() | BYTES), max_size=4).map(tuple)


@st.composite
def scored(draw, kind, **fields):
    logprob = draw(REALS | st.none())
    given = {name: draw(strategy) for name, strategy in fields.items()}
    top = draw(CANDIDATES) if logprob is not None or kind is Echo else ()
    return kind(logprob=logprob, top=top, **given)


TOKENS = st.none() | COUNTS
EVENTS = st.one_of(
    st.builds(Accepted, COUNTS, COUNTS),
    st.builds(Progress, COUNTS, COUNTS),
    scored(Piece, data=BYTES, token_id=TOKENS, control=st.none() | st.booleans()),
    scored(Echo, position=COUNTS, data=BYTES, token_id=TOKENS),
    st.builds(Done, st.sampled_from(["stop", "length", "cancelled"]), COUNTS, COUNTS, COUNTS, FINITE, FINITE),
)
ERRORS = st.one_of(
    st.builds(ContextLengthExceeded, COUNTS, COUNTS),
    st.builds(JobError, PLAIN),
    st.builds(EngineFailed, PLAIN),
)


def read(reader, data, cuts=()):
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    messages = []
    for start, end in pairwise(edges):
        messages += reader.feed(data[start:end])
    return messages


def shown(message):
    """A message as something that compares: errors do not."""
    if isinstance(message, Failure):
        return message.id, message.code, type(message.error), message.error.message
    return message


@given(st.builds(Submit, IDS, jobs(), st.just(2)) | st.builds(Submit, IDS, jobs(version=1), st.just(1)))
def test_jobs_are_read_back(submit):
    reader = RequestReader()
    assert read(reader, encode_submit(submit)) == [submit]
    assert reader.between_frames


@pytest.mark.parametrize("kind", [Job, SamplingParams])
def test_the_jobs_here_have_all_fields_that_there_are(kind):
    """So that nothing can be added to a job and forgotten in its frame."""
    drawn: dict[str, set[str]] = {}

    @given(jobs())
    def draw(job):
        part = job if kind is Job else job.sampling
        for each in fields(kind):
            drawn.setdefault(each.name, set()).add(repr(getattr(part, each.name)))

    draw()
    assert {name for name, values in drawn.items() if len(values) < 2} == set()


@given(IDS, EVENTS)
def test_events_are_read_back(id, event):
    reader = ReplyReader(ready=True)
    assert read(reader, encode_event(id, event)) == [Event(id, event)]
    assert reader.between_frames


@given(IDS, EVENTS)
def test_version_1_keeps_what_it_has_words_for(id, event):
    messages = read(ReplyReader(ready=True), encode_event(id, event, 1))
    if isinstance(event, Progress):
        assert not messages
        return
    (message,) = messages
    if isinstance(event, Done):
        assert message.event.reason == ("length" if event.reason == "length" else "stop")
        assert message.event.completion_tokens == event.completion_tokens
        assert message.event.prompt_tokens == event.prompt_tokens
        return
    if isinstance(event, Accepted):
        event = evolve(event, cached_tokens=0)
    elif isinstance(event, Piece):
        event = evolve(event, token_id=None, control=None)
    else:
        event = evolve(event, token_id=None)
    if isinstance(event, Echo | Piece):
        event = evolve(event, top=tuple(evolve(other, data=None) for other in event.top))
    assert message == Event(id, event)


@given(IDS, ERRORS)
def test_errors_are_read_back(id, error):
    (message,) = read(ReplyReader(ready=True), encode_error(id, error))
    assert message.id == id
    assert type(message.error) is type(error)
    assert message.error.message == error.message


OF_TYPES = {
    "int": COUNTS,
    "bool": st.booleans(),
    "frozenset[str]": st.frozensets(st.sampled_from(["seed", "regex"])),
}
NOT_SAID = {"tokenize", "media"}
"""What no engine can say: the server tokenizes, and there are no frames for media."""


@given(
    st.builds(
        Capabilities,
        **{each.name: OF_TYPES[each.type] for each in fields(Capabilities) if each.name not in NOT_SAID},
    )
)
def test_capabilities_are_read_back(able):
    (caps,) = read(ReplyReader(ready=True), encode_capabilities(able))
    assert isinstance(caps, Caps)
    assert caps.words["proto"] == "2"
    assert capabilities_of(caps.words, context=1, slots=1) == able


def test_an_engine_that_announces_nothing_takes_text_and_two_numbers():
    able = capabilities_of({"vision": "0", "chat": "0"}, context=100, slots=3)
    assert able == Capabilities(context_length=100, slots=3)
    assert able.sampling == {"temperature", "top_p"}
    assert capabilities_of({"max_len": "7"}, context=100, slots=1).context_length == 7


def test_single_words_are_read_back():
    requests = encode_stop(3) + encode_cancel(2**64 - 1)
    assert read(RequestReader(), requests) == [Stop(3), Cancel(2**64 - 1)]
    replies = encode_ready() + encode_started() + encode_load_failure("io", "no  such\nfile")
    assert read(ReplyReader(), replies) == [Ready(), Started(), LoadFailure("io", "no such file")]
    (failure,) = read(ReplyReader(ready=True), encode_failure(9, "NOT_FOUND"))
    assert (failure.id, failure.code) == (9, "NOT_FOUND")


STREAM = b"".join(
    [
        b"starting up\nERROR: no GPU\nDATA files: 3\nCAPS lock\n",
        encode_ready(),
        b"CAPS vision=0\n",
        b"HWINFO 4 16.0 cpu|gpu\n\n",
        encode_started(),
        encode_event(1, Accepted(5, 2)),
        encode_event(1, Progress(3, 5)),
        encode_event(2, Echo(0, b"\n", 7, None, (Candidate(1, -0.5, b"\n\n"), Candidate(2, -1.5)))),
        encode_event(1, Piece("é\n".encode(), 7, False, -0.25, (Candidate(3, -2.0, b"DONE"),))),
        b"TOOL 1 7\nDONE 1\n\n",
        encode_error(2, ContextLengthExceeded(9, 8)),
        b"DATA 1 2 nonsense\nab\n",
        encode_event(1, Done("stop", 5, 1)),
    ]
)
WANT = [
    *["Other"] * 4,
    "Ready",
    "Caps",
    "Other",
    "Other",
    "Started",
    *["Event"] * 5,
]
WANT += ["Failure", "Malformed", "Event"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_cut_of_the_stream_gives_the_same_messages(cuts):
    whole = [shown(message) for message in read(ReplyReader(), STREAM)]
    assert [shown(message) for message in read(ReplyReader(), STREAM, cuts)] == whole


def test_the_stream_byte_by_byte():
    messages = read(ReplyReader(), STREAM, range(len(STREAM)))
    assert [type(message).__name__ for message in messages] == WANT


FUZZ_LINES = st.sampled_from(
    b"SUBMIT STOP CANCEL IMAGE DECIDE ACCEPT DATA ECHO DONE ERROR CAPS LOAD_FAIL PROGRESS TOOL STAT"
    b" \x01\x01READY\x01\x01 x".split(b" ")
)
FUZZ_WORDS = st.sampled_from(
    b"0 1 2 -1 nan 1e999 x = v=2 cand=1,- spans=3 ids=1 grammar=regex logit_bias=1:2 tok=1 STAT CANCELLED"
    b" 99999999999999999999999 \xff".split(b" ")
)
FUZZ = st.lists(
    st.tuples(
        FUZZ_LINES, st.lists(FUZZ_WORDS, max_size=10), st.sampled_from([b"\n", b"\na\n", b"\nab\n", b"\n\n"])
    )
).map(lambda lines: b"".join(b" ".join([kind, *words]) + end for kind, words, end in lines))


@given(
    FUZZ | st.binary(),
    st.sampled_from([RequestReader, ReplyReader, partial(ReplyReader, ready=True)]),
    st.lists(st.integers(0, 300), max_size=5),
)
def test_fuzzed_bytes_raise_nothing_but_a_named_error(data, reader, cuts):
    def outcome(cuts):
        messages, fed = [], reader()
        edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        try:
            for start, end in pairwise(edges):
                for message in fed.feed(data[start:end]):
                    messages.append(repr(shown(message)))
        except WireError as error:
            messages.append(error.message)
        return messages

    assert outcome(cuts) == outcome(())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("SUBMIT 5 0 1 8 x 0.9", "temperature is 'x'; it must be a number"),
        ("SUBMIT 5 -2 1 8 0.7 0.9", "slot is '-2'; it must be a whole number of at least -1"),
        ("SUBMIT 5 0 1 -8 0.7 0.9", "max_tokens is '-8'"),
        ("SUBMIT 5 0 1", "SUBMIT has 4 words before its options; 7 to 9 are possible"),
        ("SUBMIT 5 0 1 8 0.7 0.9 seed=3", "the option seed is unknown in version 1"),
        ("SUBMIT 5 0 1 8 0.7 0.9 v=2 beam=3", "the option beam is unknown in version 2"),
        ("SUBMIT 5 0 1 8 0.7 0.9 v=2 seed=1.5", "seed is '1.5'"),
        ("SUBMIT 5 0 1 8 0.7 0.9 v=2 logit_bias=4", "logit_bias is ''"),
        ("SUBMIT 5 0 1 8 0.7 0.9 v=2 grammar=regex", "grammar is 'regex'"),
        ("SUBMIT 5 0 1 8 0.7 0.9 v=2 echo=yes", "echo is 'yes'; it must be 0 or 1"),
        ("SUBMIT 5 0 1 8 0.7 0.9 ids=1", "a token id is 'a'"),
        ("IMAGE 5 1 2 2", "IMAGE is not supported"),
    ],
)
def test_a_senseless_request_fails_only_itself(line, reason):
    data = line.encode() + b"\na\n" + encode_stop(6)
    malformed, after = read(RequestReader(), data)
    assert isinstance(malformed, Malformed)
    assert malformed.id == 5
    assert malformed.reason.startswith(reason)
    assert after == Stop(6)


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"0:1 0:3", "spans reach to byte 3 of a prompt of 2"),
        (b"0:1 x:2", "spans is 'x'"),
        (b"1:2", "a span is"),
    ],
)
def test_spans_that_are_none(block, reason):
    prompt = "é".encode()
    data = b"SUBMIT 5 0 2 8 0.7 0.9 v=2 spans=%d\n%s%s\n" % (len(block), prompt, block)
    (malformed,) = read(RequestReader(), data)
    assert malformed.reason.startswith(reason)


@pytest.mark.parametrize(
    "frame",
    [
        b"ACCEPT 5\n",
        b"ACCEPT 5 -3\n",
        b"ACCEPT 5 3 cached=x\n",
        b"PROGRESS 5 1\n",
        b"DATA 5 1 -0.5 2 7 -0.5\na\n",
        b"DATA 5 1 -0.5 1 7 -0.5 cand=1,1\nabc\n",
        b"DATA 5 1 x 0\na\n",
        b"DATA 5 1 tok=x\na\n",
        b"DATA 5 1 tok=1 7\na\n",
        b"DATA 5 %d\n%s\n" % (MAX_PIECE + 1, b"a" * (MAX_PIECE + 1)),
        b"ECHO 5 1 0\na\n",
        b"DONE 5 3 1.0\n",
        b"DONE 5 STAT x 1.0\n",
        b"DONE 5 STAT 3 1.0 0 0 2 0 reason=tired\n",
        b"ERROR 5\n",
        b"ERROR 5 CONTEXT_EXCEEDED many\n",
    ],
)
def test_a_senseless_reply_fails_only_its_job(frame):
    malformed, after = read(ReplyReader(ready=True), frame + encode_event(6, Accepted(1)))
    assert isinstance(malformed, Malformed)
    assert malformed.id == 5
    assert after == Event(6, Accepted(1))


@pytest.mark.parametrize(
    "data",
    [
        b"DATA 5 x\n",
        b"DATA 5\n",
        b"DATA 5 2\nabc\n",
        b"DATA 5 4\nabc\nDONE 5",
        b"DATA 5 1 cand=x\na\n",
        b"ECHO 5 %d\n" % (MAX_BLOCKS + 1),
        b"ACCEPT x 1\n",
        b"ERROR\n",
        b"CAPS oops\n",
        b"x" * (MAX_LINE + 1),
    ],
)
def test_a_stream_out_of_step_is_an_error(data):
    for cuts in ((), range(0, len(data), max(1, len(data) // 20))):
        with pytest.raises(WireError):
            read(ReplyReader(ready=True), data, cuts)


def test_the_forms_of_the_first_version():
    """What engines that know nothing of us write and read, literally."""
    job = Job("hé", 16, sampling=SamplingParams(0.7, 0.9), slot=2, logprobs=3)
    assert encode_submit(Submit(7, job, 1)) == "SUBMIT 7 2 3 16 0.7 0.9 logprobs=3\nhé\n".encode()
    assert encode_event(7, Accepted(4, 2), 1) == b"ACCEPT 7 4\n"
    piece = Piece(b"a", 5, False, -0.5, (Candidate(5, -0.5, b"a"),))
    assert encode_event(7, piece, 1) == b"DATA 7 1 -0.5 1 5 -0.5\na\n"
    done = Done("length", 4, 16, decode_seconds=2.0)
    assert encode_event(7, done, 1) == b"DONE 7 STAT 16 8.00 0.0 0.00 4 1\n"
    (event,) = read(ReplyReader(ready=True), b"DONE 7 STAT 16 8.0 97.5 12.25 4 0\n")
    assert event == Event(7, Done("stop", 4, 16, decode_seconds=2.0))
    (event,) = read(ReplyReader(ready=True), b"DONE 7 STAT 16 8.0 97.5 12.25\n")
    assert event.event.prompt_tokens == 0
    (failure,) = read(
        ReplyReader(ready=True), b"ERROR 7 CONTEXT_EXCEEDED prompt_tokens=90 requested=16 capacity=64\n"
    )
    assert (failure.error.used, failure.error.limit) == (90, 64)
    (submit,) = read(RequestReader(), b"SUBMIT 1 0 1 8 0 1 2 5\naxx\n")
    assert submit.job == Job("a", 8, sampling=SamplingParams(0.0, 1.0), slot=0)
    (echo,) = read(ReplyReader(ready=True), b"ECHO 7 1 0 nan 0\na\n")
    assert echo.event == Echo(0, b"a", None, None)


def test_the_forms_of_the_second_version():
    sampling = SamplingParams(0, 1, seed=4, min_p=0.5, logit_bias={7: -9})
    job = Job("é<a>", 16, trusted=[(1, 4)], sampling=sampling, stop_token_ids=[2, 3], grammar=("regex", "a+"))
    line = (
        "SUBMIT 7 -1 5 16 0.0 1.0 2 v=2 seed=4 min_p=0.5 logit_bias=7:-9.0 stop_ids=2,3 grammar=regex spans=3"
    )
    assert encode_submit(Submit(7, job)) == f"{line}\né<a>a+2:5\n".encode()
    assert encode_event(7, Accepted(4, 2)) == b"ACCEPT 7 4 cached=2\n"
    piece = Piece(b"a", 5, True, -0.5, (Candidate(5, -0.5, b"ab"), Candidate(6, -2.0)))
    assert encode_event(7, piece) == b"DATA 7 1 -0.5 2 5 -0.5 6 -2.0 tok=5 ctl=1 cand=2,-\naab\n"


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job("\ud800", 1), "half a surrogate pair"),
        (Job("abc", 1, trusted=[(1, 4)]), r"trusted: \[1, 4\) is no span of a text of 3 characters"),
        (Job("a", 1, stop_token_ids=range(10**6)), "the job's lists take"),
    ],
)
def test_jobs_that_cannot_be_said(job, message):
    with pytest.raises(JobError, match=message):
        encode_submit(Submit(1, job))


def test_why_a_model_was_not_loaded():
    (failure,) = read(ReplyReader(ready=True), b"LOAD_FAIL kind=nomem 12 GB are missing\n")
    assert isinstance(failure.error, EngineFailed)
    assert "12 GB are missing" in failure.error.message
    (failure,) = read(ReplyReader(ready=True), b"LOAD_FAIL kind=format bad magic\n")
    assert isinstance(failure.error, CheckpointError)
    (failure,) = read(ReplyReader(ready=True), b"LOAD_FAIL out of luck\n")
    assert (failure.kind, failure.detail) == ("unknown", "out of luck")


def test_unknown_kinds_are_passed_over():
    data = b"HELLO 1 2 3\nGPUS 0\n\n" + encode_event(1, Accepted(math.comb(4, 2)))
    assert read(ReplyReader(ready=True), data) == [
        Other("HELLO"),
        Other("GPUS"),
        Other(""),
        Event(1, Accepted(6)),
    ]
    assert read(RequestReader(), b"HELLO 1\n" + encode_stop(1)) == [Other("HELLO"), Stop(1)]


def test_the_example_of_the_description():
    """docs/serve-protocol.md shows frames that are read as what it says of them."""
    text = Path(__file__).parents[2].joinpath("docs", "serve-protocol.md").read_text("utf-8")
    blocks = dict(re.findall(r"```text (engine|server)\n(.*?)```", text, re.DOTALL))
    replies = read(ReplyReader(), blocks["engine"].replace("^A", "\x01").encode())
    assert [type(reply).__name__ for reply in replies[:3]] == ["Ready", "Caps", "Started"]
    assert [type(reply.event).__name__ for reply in replies[3:-1]] == [
        *("Accepted", "Progress", "Piece", "Accepted", "Done")
    ]
    assert replies[-1].code == "CANCELLED"
    first, second, cancel = read(RequestReader(), blocks["server"].encode())
    assert first.job.trusted == ((0, 6),)
    assert first.job.prompt == "<user>Hello!"
    assert (second.job.prompt, second.job.slot, cancel) == ("a", None, Cancel(2))
