"""The serve line protocol, both halves, without any IO: bytes in, messages out, and messages into bytes.

A server writes SUBMIT, STOP and CANCEL frames to an engine's standard input and reads the frames of
`replies` from its standard output; the end of the input asks the engine to finish its jobs and exit. Each
side passes over kinds of frames that it does not know. A frame that makes no sense fails only its own job,
as long as it is known where the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import frozen

from .errors import EngineFailed
from .frames import FieldError, Frame, FrameReader, Sizes, WireError, frame, whole
from .replies import (
    READY,
    Caps,
    Event,
    Failure,
    LoadFailure,
    counted_sizes,
    encode_capabilities,
    encode_error,
    encode_event,
    encode_load_failure,
    read_caps,
    read_error,
    read_event,
    read_load_failure,
)
from .submission import Submit, encode_submit, read_submit, submit_sizes

__all__ = [
    "Cancel",
    "Caps",
    "Event",
    "Failure",
    "LoadFailure",
    "Malformed",
    "Other",
    "Ready",
    "Reply",
    "ReplyReader",
    "Request",
    "RequestReader",
    "Started",
    "Stop",
    "Submit",
    "WireError",
    "encode_cancel",
    "encode_capabilities",
    "encode_error",
    "encode_event",
    "encode_failure",
    "encode_load_failure",
    "encode_ready",
    "encode_started",
    "encode_stop",
    "encode_submit",
]


@frozen
class Stop:
    """End a job as if its last token had been an end token."""

    id: int


@frozen
class Cancel:
    """End a job that nobody reads."""

    id: int


@frozen
class Ready:
    """The engine has its model; what it can do follows."""


@frozen
class Started:
    """The engine has said what it can do, and waits for jobs."""


@frozen
class Malformed:
    """A frame of a job that makes no sense. reason: which field, and what was expected. failure: its name."""

    id: int
    kind: str
    reason: str
    failure: type[EngineFailed] = EngineFailed


@frozen
class Other:
    """A frame of a kind that is of no use here; it is passed over."""

    kind: str


Request: TypeAlias = Submit | Stop | Cancel | Malformed | Other
Reply: TypeAlias = Ready | Caps | Started | LoadFailure | Event | Failure | Malformed | Other
_Read: TypeAlias = Callable[[Sequence[str], Sequence[bytes]], Any]


class RequestReader:
    """What an engine reads."""

    def __init__(self) -> None:
        self._frames = FrameReader(_REQUEST_SIZES)

    @property
    def between_frames(self) -> bool:
        """Whether the stream could end here."""
        return self._frames.between_frames

    def feed(self, data: bytes) -> Iterator[Request]:
        """The messages that `data` completes.

        Raises:
            WireError: the stream cannot be read on.
        """
        for each in self._frames.feed(data):
            yield _read(each, _REQUESTS, frozenset(_REQUESTS))


class ReplyReader:
    """What a server reads. ready: whether READY came already; before it, only LOAD_FAIL has a meaning."""

    def __init__(self, *, ready: bool = False) -> None:
        self._ready = ready
        self._frames = FrameReader(_REPLY_SIZES if ready else {})

    @property
    def between_frames(self) -> bool:
        """Whether the stream could end here."""
        return self._frames.between_frames

    def feed(self, data: bytes) -> Iterator[Reply]:
        """The messages that `data` completes.

        Raises:
            WireError: the stream cannot be read on, or what the engine announces makes no sense.
        """
        for each in self._frames.feed(data):
            if each.kind == READY:
                self._ready, self._frames.sizes = True, _REPLY_SIZES
            yield _read(each, _REPLIES if self._ready else _BEFORE, _OF_JOBS)


def encode_stop(id: int) -> bytes:
    """The frame of `Stop`."""
    return frame(f"STOP {id}")


def encode_cancel(id: int) -> bytes:
    """The frame of `Cancel`."""
    return frame(f"CANCEL {id}")


def encode_ready() -> bytes:
    """The first line of an engine that has its model."""
    return frame(READY)


def encode_started() -> bytes:
    """The line that ends an engine's introduction."""
    return frame("STAT 0 0.00 0.0 0.00")


def encode_failure(id: int, code: str) -> bytes:
    """The frame that ends a job with nothing but a code."""
    return frame(f"ERROR {id} {code}")


def _read(given: Frame, readers: Mapping[str, _Read], numbered: frozenset[str]) -> Any:
    """The message of a frame. numbered: the kinds that belong to a job."""
    read = readers.get(given.kind)
    if read is None:
        return Other(given.kind)
    try:
        return read(given.words, given.blocks)
    except ValueError as error:
        if given.kind not in numbered:
            raise WireError(f"{given.kind.strip(chr(1))}: {error}") from None
        failure = error.failure if isinstance(error, FieldError) else EngineFailed
        return Malformed(_id(given), given.kind, str(error), failure)


def _id(given: Frame) -> int:
    """Which job a frame belongs to.

    Raises:
        WireError: nobody knows.
    """
    try:
        return whole(given.words[1], "id")
    except (ValueError, IndexError):
        raise WireError(f"a {given.kind} line names no job") from None


def _plain(message: type) -> _Read:
    return lambda words, blocks: message()


def _naming(message: Callable[[int], Any]) -> _Read:
    """STOP and CANCEL, which have an id and nothing else."""

    def read(words: Sequence[str], blocks: Sequence[bytes]) -> Any:
        if len(words) != 2:
            raise ValueError(f"{words[0]} has {len(words)} words; it takes an id")
        return message(whole(words[1], "id", 1))

    return read


def _unsupported(words: Sequence[str], blocks: Sequence[bytes]) -> Any:
    raise ValueError(f"{words[0]} is not supported")


def _block_at(index: int) -> Sizes:
    return lambda words: [whole(words[index], "bytes")]


_REQUESTS: Final[Mapping[str, _Read]] = {
    "SUBMIT": read_submit,
    "STOP": _naming(Stop),
    "CANCEL": _naming(Cancel),
    "IMAGE": _unsupported,
    "DECIDE": _unsupported,
}
_REQUEST_SIZES: Final[Mapping[str, Sizes]] = {
    "SUBMIT": submit_sizes,
    "IMAGE": _block_at(2),
    "DECIDE": _block_at(3),
}
_OF_JOBS: Final = frozenset({"ACCEPT", "PROGRESS", "DATA", "TOOL", "ECHO", "DONE", "ERROR"})
_REPLIES: Final[Mapping[str, _Read]] = {
    READY: _plain(Ready),
    "STAT": _plain(Started),
    "CAPS": lambda words, blocks: read_caps(words),
    "LOAD_FAIL": lambda words, blocks: read_load_failure(words),
    "ERROR": read_error,
    **dict.fromkeys(_OF_JOBS - {"ERROR"}, read_event),
}
_BEFORE: Final = {"LOAD_FAIL": _REPLIES["LOAD_FAIL"]}
_REPLY_SIZES: Final[Mapping[str, Sizes]] = {
    "DATA": counted_sizes,
    "ECHO": counted_sizes,
    "TOOL": _block_at(2),
    "DECISION": _block_at(2),
}
