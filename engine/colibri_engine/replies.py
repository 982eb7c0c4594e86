"""What an engine writes: that it is ready, what it can do, and what becomes of its jobs.

    READY between two bytes 1 on each side; CAPS key=value …; STAT …; LOAD_FAIL kind=KIND detail
    ACCEPT id prompt_tokens [cached=TOKENS]
    PROGRESS id done total
    DATA id bytes [logprob k (token logprob)×k] [tok=ID] [ctl=0|1] [cand=BYTES,…]
    ECHO id bytes position logprob k (token logprob)×k [tok=ID] [cand=BYTES,…]
    DONE id STAT tokens tokens_per_second hit_rate gigabytes prompt_tokens limited [reason=…] [cached=…] …
    ERROR id CODE …

PROGRESS and the `key=value` words are for jobs of version 2. DATA and ECHO are followed by the token's bytes
and those of the candidates whose sizes `cand=` counts, `-` for one that has no spelling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from .api import Accepted, Candidate, Capabilities, Done, Echo, EngineEvent, Piece, Progress
from .errors import (
    CheckpointError,
    ContextLengthExceeded,
    EchoPositionMalformed,
    EngineError,
    EngineFailed,
    JobError,
    LogprobTailMalformed,
)
from .frames import FieldError, frame, option, real, split_options, whole

__all__ = [
    "MAX_PIECE",
    "READY",
    "Caps",
    "Event",
    "Failure",
    "LoadFailure",
    "capabilities_of",
    "counted_sizes",
    "encode_capabilities",
    "encode_error",
    "encode_event",
    "encode_load_failure",
    "read_caps",
    "read_error",
    "read_event",
    "read_load_failure",
]

READY: Final = "\x01\x01READY\x01\x01"

MAX_PIECE: Final = 1 << 16
"""Bytes of a token."""

_MESSAGE: Final = 1000
_REASONS: Final = ("stop", "length", "cancelled")
_CODES: Final = {
    "CANCELLED": "the engine gave the request up; send it again",
    "EMPTY_PROMPT": "the prompt has no tokens; it needs at least one",
    "NOT_FOUND": "the engine does not know the request",
    "SLOT_BUSY": "the engine's slot is busy; send the request again",
}
_JOB_CODES: Final = ("BAD_REQUEST", "EMPTY_PROMPT")


@frozen
class Caps:
    """What the engine announces, word by word."""

    words: Mapping[str, str]


@frozen
class LoadFailure:
    """The engine has no model. kind: nomem, io, format or unsupported."""

    kind: str
    detail: str

    @property
    def error(self) -> EngineError:
        """What whoever wanted to open the model is told."""
        if self.kind == "nomem":
            return EngineFailed(f"the engine has not enough memory for the model: {self.detail}")
        return CheckpointError(self.detail or f"the engine cannot load the model ({self.kind})")


@frozen
class Event:
    """Something that happened to a job."""

    id: int
    event: EngineEvent


@frozen
class Failure:
    """The end of a job that failed."""

    id: int
    code: str
    error: EngineError


def encode_capabilities(able: Capabilities) -> bytes:
    """CAPS of an engine that speaks version 2."""
    words = [
        "CAPS proto=2",
        f"max_len={able.context_length}",
        f"slots={able.slots}",
        f"pins={able.pins}",
        f"logprobs={able.max_logprobs}",
        f"echo={able.echo:d}",
        f"ids={able.token_ids:d}",
        f"cand={able.candidates_spelled:d}",
        f"copies={able.copies_prefixes:d}",
        f"sampling={','.join(sorted(able.sampling))}",
        f"grammars={','.join(sorted(able.grammars))}",
    ]
    return frame(" ".join(words))


def read_caps(words: Sequence[str]) -> Caps:
    """The words of a CAPS line.

    Raises:
        ValueError: one of them is no `key=value`.
    """
    plain, found = split_options(words)
    if len(plain) > 1:
        raise ValueError(f"the word {plain[1]!r:.40} is no key=value")
    return Caps(found)


def capabilities_of(words: Mapping[str, str], *, context: int, slots: int) -> Capabilities:
    """What the words of all CAPS lines mean; context, slots: what holds if they do not say.

    Raises:
        ValueError: a number is none.
    """

    def number(name: str, default: int = 0) -> int:
        return whole(words[name], name) if name in words else default

    def names(name: str, default: str = "") -> frozenset[str]:
        return frozenset(filter(None, words.get(name, default).split(",")))

    return Capabilities(
        context_length=number("max_len", context),
        slots=number("slots", slots),
        pins=number("pins"),
        max_logprobs=number("logprobs"),
        echo=number("echo") > 0,
        token_ids=number("ids") > 0,
        candidates_spelled=number("cand") > 0,
        copies_prefixes=number("copies") > 0,
        sampling=names("sampling", "temperature,top_p"),
        grammars=names("grammars"),
    )


def encode_load_failure(kind: str, detail: str) -> bytes:
    """The last line of an engine that cannot load its model."""
    return frame(f"LOAD_FAIL kind={kind} {_one_line(detail)}")


def read_load_failure(words: Sequence[str]) -> LoadFailure:
    """The line, whose detail is free text."""
    rest = list(words[1:])
    kind = rest.pop(0).removeprefix("kind=") if rest and rest[0].startswith("kind=") else "unknown"
    return LoadFailure(kind, " ".join(rest))


def encode_event(id: int, event: EngineEvent, version: int = 2) -> bytes:
    """The frame of an event; nothing for what version 1 has no frame for."""
    return _ENCODERS[type(event)](id, event, version)


def encode_error(id: int, error: EngineError) -> bytes:
    """The frame that ends a job which failed."""
    if isinstance(error, ContextLengthExceeded):
        return frame(f"ERROR {id} CONTEXT_EXCEEDED {error.used} {error.limit}")
    code = "BAD_REQUEST" if isinstance(error, JobError) else "ENGINE_FAILED"
    return frame(f"ERROR {id} {code} {_one_line(error.message)}")


def read_error(words: Sequence[str], blocks: Sequence[bytes] = ()) -> Failure:
    """The end of a job that failed.

    Raises:
        ValueError: there is no code, or the numbers of CONTEXT_EXCEEDED are none.
    """
    if len(words) < 3:
        raise ValueError("ERROR has no code")
    id, code, rest = whole(words[1], "id"), words[2], words[3:]
    if code == "CONTEXT_EXCEEDED":
        return Failure(id, code, _context_exceeded(rest))
    message = " ".join(rest) or _CODES.get(code) or f"the engine refused the request with {code:.40}"
    kind = JobError if code in _JOB_CODES else EngineFailed
    return Failure(id, code, kind(message))


def counted_sizes(words: Sequence[str]) -> list[int]:
    """The sizes of the blocks of DATA and ECHO; see `frames.Sizes`."""
    spelled = option(words, "cand")
    sizes = spelled.split(",") if spelled else []
    return [whole(words[2], "bytes"), *(whole(size, "cand") for size in sizes if size != "-")]


def read_event(words: Sequence[str], blocks: Sequence[bytes]) -> Event:
    """The event of an ACCEPT, PROGRESS, DATA, TOOL, ECHO or DONE frame.

    Raises:
        ValueError: naming the field that is wrong.
    """
    try:
        return Event(whole(words[1], "id", 1), _READERS[words[0]](words, blocks))
    except IndexError:
        raise ValueError(f"{words[0]} has too few words") from None


def _context_exceeded(words: Sequence[str]) -> ContextLengthExceeded:
    """`used limit`, or `prompt_tokens= requested= capacity=`."""
    fixed, found = split_options(words)
    if len(fixed) >= 2:
        return ContextLengthExceeded(whole(fixed[0], "used"), whole(fixed[1], "limit"))
    used, limit = (whole(found.get(name, ""), name) for name in ("prompt_tokens", "capacity"))
    return ContextLengthExceeded(used, limit)


def _encode_accepted(id: int, event: Accepted, version: int) -> bytes:
    return frame(f"ACCEPT {id} {event.prompt_tokens}" + f" cached={event.cached_tokens}" * (version == 2))


def _encode_progress(id: int, event: Progress, version: int) -> bytes:
    return frame(f"PROGRESS {id} {event.done} {event.total}") if version == 2 else b""


def _encode_piece(id: int, event: Piece, version: int) -> bytes:
    line = f"DATA {id} {len(event.data)}"
    if event.logprob is not None:
        line += _scores(event.logprob, event.top)
    if version != 2:
        return frame(line, event.data)
    if event.token_id is not None:
        line += f" tok={event.token_id}"
    if event.control is not None:
        line += f" ctl={event.control:d}"
    return frame(line + _counts(event.top), event.data, *_spellings(event.top))


def _encode_echo(id: int, event: Echo, version: int) -> bytes:
    line = f"ECHO {id} {len(event.data)} {event.position}{_scores(event.logprob, event.top)}"
    if version != 2:
        return frame(line, event.data)
    if event.token_id is not None:
        line += f" tok={event.token_id}"
    return frame(line + _counts(event.top), event.data, *_spellings(event.top))


def _encode_done(id: int, event: Done, version: int) -> bytes:
    made, seconds = event.completion_tokens, event.decode_seconds
    speed, limited = made / seconds if seconds else 0.0, event.reason == "length"
    line = f"DONE {id} STAT {made} {speed:.2f} 0.0 0.00 {event.prompt_tokens} {limited:d}"
    if version == 2:
        line += f" reason={event.reason} cached={event.cached_tokens}"
        line += f" prefill={event.prefill_seconds!r} decode={event.decode_seconds!r}"
    return frame(line)


_ENCODERS: Final[Mapping[type, Callable[[int, Any, int], bytes]]] = {
    Accepted: _encode_accepted,
    Progress: _encode_progress,
    Piece: _encode_piece,
    Echo: _encode_echo,
    Done: _encode_done,
}


def _scores(logprob: float | None, top: Sequence[Candidate]) -> str:
    own = "nan" if logprob is None else repr(logprob)
    return f" {own} {len(top)}" + "".join(f" {other.token_id} {other.logprob!r}" for other in top)


def _counts(top: Sequence[Candidate]) -> str:
    if not top:
        return ""
    return " cand=" + ",".join("-" if other.data is None else str(len(other.data)) for other in top)


def _spellings(top: Sequence[Candidate]) -> list[bytes]:
    return [other.data for other in top if other.data is not None]


_Found = Mapping[str, str]
_Blocks = Sequence[bytes]


def _read_accepted(words: Sequence[str], blocks: _Blocks) -> Accepted:
    fixed, found = split_options(words)
    return Accepted(whole(fixed[2], "prompt_tokens"), whole(found.get("cached", "0"), "cached"))


def _read_progress(words: Sequence[str], blocks: _Blocks) -> Progress:
    return Progress(whole(words[2], "done"), whole(words[3], "total"))


def _read_piece(words: Sequence[str], blocks: _Blocks) -> Piece:
    """A token without a log probability has no record of it; one whose value is nan has."""
    logprob, top, found = _read_record(words[3:], blocks)
    control = {"0": False, "1": True}.get(found.get("ctl", ""))
    return Piece(_piece_bytes(blocks), _token(found), control, logprob, top)


def _read_tool(words: Sequence[str], blocks: _Blocks) -> Piece:
    """Markup of tool calls on a channel of its own: what comes this way the engine itself vouches for."""
    return Piece(_piece_bytes(blocks), control=True)


def _read_echo(words: Sequence[str], blocks: _Blocks) -> Echo:
    try:
        position = whole("".join(words[3:4]), "position")
    except ValueError as error:
        raise FieldError(str(error), EchoPositionMalformed) from None
    logprob, top, found = _read_record(words[4:], blocks)
    if logprob is None:
        raise FieldError("logprob is missing", LogprobTailMalformed)
    own = None if math.isnan(logprob) else logprob
    return Echo(position, _piece_bytes(blocks), _token(found), own, top)


def _read_done(words: Sequence[str], blocks: _Blocks) -> Done:
    words, found = split_options(words)
    if words[2] != "STAT":
        raise ValueError("DONE has no STAT")
    made, speed = whole(words[3], "tokens"), real(words[4], "tokens_per_second")
    prompt, limited = [*words[7:9], *("0", "0")[len(words[7:9]) :]]
    reason: Any = found.get("reason", "length" if limited != "0" else "stop")
    if reason not in _REASONS:
        raise ValueError(f"reason is {reason!r:.40}; it must be one of {', '.join(_REASONS)}")
    seconds = made / speed if math.isfinite(speed) and speed > 0 else 0.0
    return Done(
        reason,
        prompt_tokens=whole(prompt, "prompt_tokens"),
        completion_tokens=made,
        cached_tokens=whole(found.get("cached", "0"), "cached"),
        prefill_seconds=real(found.get("prefill", "0"), "prefill"),
        decode_seconds=real(found["decode"], "decode") if "decode" in found else seconds,
    )


_READERS: Final[Mapping[str, Callable[[Sequence[str], _Blocks], EngineEvent]]] = {
    "ACCEPT": _read_accepted,
    "PROGRESS": _read_progress,
    "DATA": _read_piece,
    "TOOL": _read_tool,
    "ECHO": _read_echo,
    "DONE": _read_done,
}


def _token(found: _Found) -> int | None:
    return whole(found["tok"], "tok") if "tok" in found else None


def _piece_bytes(blocks: _Blocks) -> bytes:
    if len(blocks[0]) > MAX_PIECE:
        raise ValueError(f"a token has {len(blocks[0])} bytes; {MAX_PIECE} are possible")
    return blocks[0]


def _read_record(words: Sequence[str], blocks: _Blocks) -> tuple[float | None, tuple[Candidate, ...], _Found]:
    """`[logprob k (token logprob)×k] key=value …`, with the spellings that follow the token's bytes.

    Raises:
        FieldError: it cannot be read.
    """
    try:
        scores, found = split_options(words)
        own, top = _read_scores(scores, found, blocks) if scores else (None, ())
        return own, top, found
    except ValueError as error:
        raise FieldError(str(error), LogprobTailMalformed) from None


def _read_scores(words: Sequence[str], found: _Found, blocks: _Blocks) -> tuple[float, tuple[Candidate, ...]]:
    own, count = real(words[0], "logprob"), whole("".join(words[1:2]), "k")
    if len(words) != 2 + 2 * count:
        raise ValueError(f"{count} candidates are announced, and others come")
    sizes = found["cand"].split(",") if found.get("cand") else ["-"] * count
    if len(sizes) != count:
        raise ValueError(f"{count} candidates have {len(sizes)} spellings")
    spellings = iter(blocks[1:])
    top = tuple(
        Candidate(
            whole(words[2 + 2 * index], "a candidate's token"),
            real(words[3 + 2 * index], "a candidate's logprob"),
            None if size == "-" else next(spellings),
        )
        for index, size in enumerate(sizes)
    )
    return own, top


def _one_line(message: str) -> str:
    return " ".join(message.split())[:_MESSAGE]
