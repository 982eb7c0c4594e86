"""The byte stream between a server and an engine, cut into frames: lines of words, some with blocks.

A frame is one line that ends with a newline. Lines of certain kinds say how many bytes follow them; those
blocks come back to back and one more newline closes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from .errors import EngineFailed

__all__ = [
    "MAX_BLOCKS",
    "MAX_LINE",
    "FieldError",
    "Frame",
    "FrameReader",
    "Sizes",
    "WireError",
    "frame",
    "option",
    "real",
    "split_options",
    "whole",
]

MAX_LINE: Final = 1 << 20
"""Bytes of a line."""

MAX_BLOCKS: Final = 1 << 26
"""Bytes of a frame's blocks together."""

Sizes: TypeAlias = Callable[[Sequence[str]], Sequence[int]]
"""The sizes of the blocks that a line announces; ValueError if it does not say."""


class WireError(EngineFailed):
    """What the other side sends cannot be read on: nobody knows where its next frame begins."""


class FieldError(ValueError):
    """A field that makes no sense. failure: what it means for the job."""

    def __init__(self, reason: str, failure: type[EngineFailed]) -> None:
        super().__init__(reason)
        self.failure = failure


@frozen
class Frame:
    """A line's words, the first of which is its kind, and its blocks."""

    words: Sequence[str]
    blocks: Sequence[bytes] = ()

    @property
    def kind(self) -> str:
        """The first word; an empty line has none."""
        return self.words[0] if self.words else ""


class FrameReader:
    """Cuts a stream into frames, in linear time, however it arrives.

    sizes: of the kinds that have blocks; it may change between two frames.
    """

    def __init__(self, sizes: Mapping[str, Sizes]) -> None:
        self.sizes = sizes
        self._buffer = bytearray()
        self._searched = 0
        self._words: list[str] = []
        self._lengths: Sequence[int] | None = None

    @property
    def between_frames(self) -> bool:
        """Whether the stream could end here."""
        return not self._buffer and self._lengths is None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes.

        Raises:
            WireError: a line or a block is too long, a block's size is unreadable, or a block does not end
                where its line says.
        """
        self._buffer += data
        while True:
            if self._lengths is None:
                if not self._take_line():
                    return
                find = self.sizes.get(self._words[0]) if self._words else None
                if find is None:
                    yield Frame(self._words)
                    continue
                self._lengths = self._announced(find)
            if len(self._buffer) <= sum(self._lengths):
                return
            lengths, self._lengths = self._lengths, None
            yield Frame(self._words, self._take_blocks(lengths))

    def _take_line(self) -> bool:
        """Move the next line into `words`; False if it is not complete."""
        end = self._buffer.find(b"\n", self._searched)
        self._searched = len(self._buffer)
        if max(end, self._searched if end < 0 else 0) > MAX_LINE:
            raise WireError(f"a line is longer than {MAX_LINE} bytes")
        if end < 0:
            return False
        self._words = self._buffer[:end].decode(errors="replace").split()
        del self._buffer[: end + 1]
        self._searched = 0
        return True

    def _announced(self, find: Sizes) -> Sequence[int]:
        try:
            lengths = find(self._words)
        except (ValueError, IndexError):
            raise WireError(f"a {self._words[0]} line does not say how many bytes follow it") from None
        total = sum(lengths)
        if total > MAX_BLOCKS:
            raise WireError(f"a {self._words[0]} line announces {total} bytes; {MAX_BLOCKS} are possible")
        return lengths

    def _take_blocks(self, lengths: Sequence[int]) -> list[bytes]:
        total = sum(lengths)
        if self._buffer[total] != 0x0A:
            raise WireError(f"the {total} bytes after a {self._words[0]} line are not closed by a newline")
        blocks, at = [], 0
        for length in lengths:
            blocks.append(bytes(self._buffer[at : at + length]))
            at += length
        del self._buffer[: total + 1]
        return blocks


def frame(line: str, *blocks: bytes) -> bytes:
    """The bytes of a frame whose line announces these blocks."""
    return b"".join((line.encode(), b"\n", *blocks, b"\n" if blocks else b""))


def whole(word: str, name: str, low: int = 0) -> int:
    """A decimal integer of at most 20 digits.

    Raises:
        ValueError: naming the field.
    """
    digits = word[1:] if word[:1] == "-" else word
    if len(digits) <= 20 and digits.isdigit() and digits.isascii():
        value = int(word)
        if value >= low:
            return value
    raise ValueError(f"{name} is {word!r:.40}; it must be a whole number of at least {low}")


def real(word: str, name: str) -> float:
    """A decimal number; `nan` and infinities too.

    Raises:
        ValueError: naming the field.
    """
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"{name} is {word!r:.40}; it must be a number") from None


def option(words: Sequence[str], name: str) -> str | None:
    """The value of the first `name=value` word."""
    start = f"{name}="
    for word in words:
        if word.startswith(start):
            return word[len(start) :]
    return None


def split_options(words: Sequence[str]) -> tuple[Sequence[str], dict[str, str]]:
    """A line's words up to the first `key=value`, and the `key=value` ones from there on.

    Raises:
        ValueError: a word behind the first option is none, or a key comes twice.
    """
    first = len(words)
    found: dict[str, str] = {}
    for index, word in enumerate(words):
        key, equals, value = word.partition("=")
        if equals and key not in found:
            first = min(first, index)
            found[key] = value
        elif found:
            raise ValueError(f"the word {word!r:.40} is no key=value, or its key comes twice")
    return words[:first], found
