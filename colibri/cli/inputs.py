"""Reading files and stdin, with errors that name the file and the place in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from colibri.errors import ColibriError

__all__ = ["InputError", "parse_json", "read_request", "read_text", "source_name"]

STDIN = "-"


class InputError(ColibriError):
    """A file or stdin does not hold what was asked for; the message names it and the place."""

    code = "invalid_input"


def read_text(path: str) -> str:
    """The text of a file, or of stdin for "-", line endings as they are.

    Raises:
        InputError: the text is not UTF-8. OSError: the file cannot be read.
    """
    try:
        return _read(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{source_name(path)}: byte {error.start} is not UTF-8 text") from None


def read_request(path: str) -> dict[str, Any]:
    """The JSON object in a file, or in stdin for "-", as strictly read as a server reads a request body.

    Raises:
        InputError: it is not UTF-8, not JSON or not an object. OSError: the file cannot be read.
    """
    from colibri.protocols.base import ProtocolError
    from colibri.protocols.json_body import decode_body

    try:
        return decode_body(_read(path))
    except ProtocolError as error:
        raise InputError(f"{source_name(path)}: {error.message}") from None


def parse_json(text: str, source: str) -> Any:
    """The JSON value that `text` spells, with `source` for its name in errors.

    Raises:
        InputError: it spells none.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{source} is not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{source} nests too deep or holds a number of too many digits") from None


def source_name(path: str) -> str:
    """What errors call the file, or stdin for "-"."""
    return "stdin" if path == STDIN else path


def _read(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
