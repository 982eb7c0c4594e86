"""Recorded replies: the chunks of a stream as they came, from a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from colibri.cli.inputs import InputError, parse_json

__all__ = ["Chunk", "read_chunks"]


@frozen
class Chunk:
    """What came at once.

    control: as in `Parser.feed`. cut: the token limit ended the reply here.
    """

    text: str
    control: bool | None = None
    cut: bool = False


def read_chunks(text: str, source: str) -> list[Chunk]:
    """The chunks of a recorded stream, one a line.

    A line is a JSON string, an object `{"text": ..., "control": ..., "finish_reason": ...}`, or a chunk
    of a completions or chat-completions stream, with or without the `data:` of server-sent events. Blank
    lines, comments and `[DONE]` are skipped.

    Raises:
        InputError: a line is none of these; the message names it.
    """
    return list(_chunks(text, source))


def _chunks(text: str, source: str) -> Iterator[Chunk]:
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        payload = line.removeprefix("data:").strip()
        if not payload or payload == "[DONE]" or line.startswith((":", "event:", "id:", "retry:")):
            continue
        value = parse_json(payload, f"{source} line {number}")
        chunk = _chunk(value)
        if chunk is None:
            raise InputError(
                f"{source} line {number}: a recorded chunk is a JSON string, an object with `text`, or a"
                " chunk of a completions stream"
            )
        yield chunk


def _chunk(value: Any) -> Chunk | None:
    if isinstance(value, str):
        return Chunk(value)
    if not isinstance(value, dict):
        return None
    if "choices" in value:
        return _wire_chunk(value["choices"])
    text, control = value.get("text"), value.get("control")
    if not isinstance(text, str) or not isinstance(control, bool | None):
        return None
    return Chunk(text, control, _cut(value))


def _wire_chunk(choices: Any) -> Chunk | None:
    """The first choice; a chunk without one carries only usage."""
    if choices == []:
        return Chunk("")
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        return None
    delta = choices[0].get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choices[0].get("text")
    return Chunk(text or "", None, _cut(choices[0])) if isinstance(text, str | None) else None


def _cut(value: dict[str, Any]) -> bool:
    return value.get("finish_reason") == "length"
