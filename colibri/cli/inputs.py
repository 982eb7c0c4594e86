"""Reading files and stdin, with errors that name the file and the place in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from colibri.errors import RequestError

__all__ = ["InputError", "parse_json", "read_json", "read_text"]

STDIN = "-"


class InputError(RequestError):
    """A file or stdin does not hold what was asked for; the message names it and the place."""

    code = "invalid_input"


def read_text(path: str) -> str:
    """The text of a file, or of stdin for "-", line endings as they are.

    Raises:
        InputError: the text is not UTF-8. OSError: the file cannot be read.
    """
    data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{_shown(path)}: byte {error.start} is not UTF-8 text") from None


def read_json(path: str) -> Any:
    """The one JSON value in a file, or in stdin for "-".

    Raises:
        InputError: see `parse_json`. OSError: the file cannot be read.
    """
    return parse_json(read_text(path), _shown(path))


def parse_json(text: str, source: str) -> Any:
    """The value that `text` spells, with `source` for its name in errors.

    Raises:
        InputError: the text is not JSON, is nested too deeply, or spells half a surrogate pair.
    """

    def refuse(constant: str) -> NoReturn:
        raise InputError(f"{source}: {constant} is not a JSON value")

    try:
        value = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: line {error.lineno} column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise InputError(f"{source}: the JSON is nested too deeply") from None
    except ValueError:  # an integer of more digits than Python converts
        raise InputError(f"{source}: a number has too many digits") from None
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise InputError(f"{source}: a string holds half a surrogate pair") from None
    return value


def _shown(path: str) -> str:
    return "stdin" if path == STDIN else path
