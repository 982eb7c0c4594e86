"""Recorded replies in files: the chunks of a stream as they came, and what is needed to read them again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from colibri.cli.inputs import InputError, parse_json
from colibri.conversation import Tool
from colibri.recording import Chunk, Recording

__all__ = ["Recorded", "read_recording", "write_recording"]

_VERSION = 1
_MARK = "colibri_recording"


@frozen
class Recorded:
    """What a file holds; `family` is None when it does not say whose reply it is."""

    recording: Recording
    family: str | None = None


def read_recording(text: str, source: str, *, stream: bool) -> Recorded:
    """The reply in a file: a recording that `write_recording` wrote, else with `stream` one chunk a line.

    A line is a JSON string, an object `{"text": ..., "control": ..., "finish_reason": ...}`, or a chunk
    of a completions or chat-completions stream, with or without the `data:` of server-sent events. Blank
    lines, comments and `[DONE]` are skipped. Anything else is one chunk, the whole text.

    Raises:
        InputError: a line is none of these; the message names it.
    """
    first, _, rest = text.partition("\n")
    if first.startswith(f'{{"{_MARK}":'):
        head = _head(parse_json(first, f"{source} line 1"), source)
        chunks = tuple(chunk for chunk, _ in _chunks(rest, source, 2))
        return evolve(head, recording=evolve(head.recording, chunks=chunks))
    if not stream:
        return Recorded(Recording((Chunk(text),)))
    lines = list(_chunks(text, source, 1))
    ends = [end for _, end in lines if end is not None]
    return Recorded(Recording(tuple(chunk for chunk, _ in lines), finish=ends[-1] if ends else "stop"))


def write_recording(path: str, recorded: Recorded) -> None:
    """Write a recording, one chunk a line behind a line that says how to read them.

    Raises:
        OSError: the file cannot be written.
    """
    recording = recorded.recording
    head = {
        _MARK: _VERSION,
        "family": recorded.family,
        "start": recording.start,
        "prompt_end": recording.prime,
        "finish": recording.finish,
        "tools": [tool.declaration for tool in recording.tools],
    }
    lines = [head, *({"text": chunk.text, "control": chunk.control} for chunk in recording.chunks)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    # A half of a surrogate pair is written as JSON escapes it.
    Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))


def _head(value: Any, source: str) -> Recorded:
    fits = (
        value[_MARK] == _VERSION
        and isinstance(value.get("family"), str | None)
        and value.get("start") in ("reasoning", "text", None)
        and isinstance(value.get("prompt_end"), str | None)
        and value.get("finish") in ("stop", "length")
        and isinstance(tools := value.get("tools"), list)
        and all(isinstance(tool, dict) for tool in tools)
    )
    if not fits:
        raise InputError(f"{source} line 1: no recording of version {_VERSION}; record the reply again")
    tools = tuple(Tool(tool) for tool in value["tools"])
    recording = Recording((), tools, value["prompt_end"], value["start"], value["finish"])
    return Recorded(recording, value["family"])


def _chunks(text: str, source: str, first: int) -> Iterator[tuple[Chunk, str | None]]:
    """The chunks and ends of the lines, the first of which has the number `first`."""
    for number, line in enumerate(text.split("\n"), first):
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


def _chunk(value: Any) -> tuple[Chunk, str | None] | None:
    """A chunk, and what ended the reply with it, if anything did."""
    if isinstance(value, str):
        return Chunk(value), None
    if not isinstance(value, dict):
        return None
    if "choices" in value:
        return _wire_chunk(value["choices"])
    text, control = value.get("text"), value.get("control")
    if not isinstance(text, str) or not isinstance(control, bool | None):
        return None
    return Chunk(text, control), _end(value)


def _wire_chunk(choices: Any) -> tuple[Chunk, str | None] | None:
    """The first choice; a chunk without one carries only usage."""
    if choices == []:
        return Chunk(""), None
    if not isinstance(choices, list) or not isinstance(choices[0], dict):
        return None
    delta = choices[0].get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choices[0].get("text")
    return (Chunk(text or ""), _end(choices[0])) if isinstance(text, str | None) else None


def _end(value: dict[str, Any]) -> str | None:
    reason = value.get("finish_reason")
    return None if reason is None else "length" if reason == "length" else "stop"
