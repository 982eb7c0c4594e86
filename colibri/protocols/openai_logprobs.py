"""Token records as the log probability objects of chat and of legacy completions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from attrs import define, frozen

from colibri.protocols.base import Alternative, Token
from colibri.protocols.openai_errors import engine_fault

__all__ = ["LegacyLogprobs", "chat_entry", "check_covered", "check_recorded"]


@frozen
class _Entry:
    """One row of a position's table; `data` is None when the engine cannot spell the candidate."""

    label: str
    logprob: float | None
    data: bytes | None


def chat_entry(token: Token, most: int) -> dict[str, Any]:
    """The token as an item of `logprobs.content`, with at most `most` alternatives.

    Raises:
        ProtocolError: the engine has no log probability for the token, or repeats a candidate.
    """
    check_recorded([token])
    return {
        "token": token.text,
        "logprob": _finite(token.logprob),
        "bytes": list(_own_data(token)),
        "top_logprobs": [
            {
                "token": entry.label,
                "logprob": entry.logprob,
                "bytes": None if entry.data is None else list(entry.data),
            }
            for entry in _table(token, most, "top_logprobs")
        ],
    }


@define
class LegacyLogprobs:
    """The four parallel arrays of a legacy completion.

    most: alternatives a position. length: characters of the returned text that earlier tokens have.
    """

    most: int
    length: int = 0

    def arrays(self, tokens: Iterable[Token]) -> dict[str, list[Any]]:
        """The arrays for the next tokens of the text; offsets count characters from its beginning.

        Raises:
            ProtocolError: the engine repeats a candidate at one position.
        """
        rows = list(tokens)
        offsets = []
        for token in rows:
            offsets.append(self.length)
            self.length += len(token.text)
        return {
            "tokens": [token.text for token in rows],
            "token_logprobs": [_finite(token.logprob) for token in rows],
            "top_logprobs": [_by_label(token, self.most) for token in rows],
            "text_offset": offsets,
        }

    def blank(self) -> dict[str, list[Any]]:
        """The arrays for a token without text, of which nothing is known."""
        return {"tokens": [""], "token_logprobs": [None], "top_logprobs": [{}], "text_offset": [self.length]}


def check_covered(text: str, records: str, *, param: str = "logprobs") -> None:
    """Refuse to describe a reply whose token records do not spell exactly the returned text.

    Raises:
        ProtocolError: they do not.
    """
    if text != records:
        raise engine_fault(
            "engine_logprob_records_incomplete",
            "The engine's per-token records do not cover the returned text.",
            param,
        )


def check_recorded(tokens: Iterable[Token]) -> None:
    """Refuse to describe a reply one of whose tokens has no log probability; one may have nan.

    Raises:
        ProtocolError: such is among these.
    """
    if any(token.logprob is None for token in tokens):
        raise engine_fault(
            "engine_logprob_records_incomplete",
            "The engine sent a token of the returned text without its log probability.",
        )


def _by_label(token: Token, most: int) -> dict[str, float | None]:
    labelled: dict[str, float | None] = {}
    for entry, candidate in zip(_table(token, most, "logprobs"), token.top, strict=False):
        label = entry.label if entry.label not in labelled else _id_label(candidate)
        labelled[label] = entry.logprob
    return labelled


def _table(token: Token, most: int, param: str) -> list[_Entry]:
    if len({candidate.token_id for candidate in token.top}) != len(token.top):
        raise engine_fault(
            "engine_duplicate_logprob_candidate",
            "The engine's table of alternatives repeats a candidate at one position.",
            param,
        )
    own = _own(token)
    return [
        _Entry(token.text, _finite(candidate.logprob), _own_data(token))
        if index == own
        else _Entry(_label(candidate), _finite(candidate.logprob), candidate.data)
        for index, candidate in enumerate(token.top[:most])
    ]


def _own(token: Token) -> int | None:
    """Which candidate the token itself is: by id where the engine tells it, else by its exact value."""
    rows: Sequence[Alternative] = token.top
    if token.token_id is not None:
        return next((at for at, row in enumerate(rows) if row.token_id == token.token_id), None)
    return next((at for at, row in enumerate(rows) if row.logprob == token.logprob), None)


def _own_data(token: Token) -> bytes:
    return token.text.encode() if token.cut else token.data


def _label(candidate: Alternative) -> str:
    """The candidate's text; bytes that are no text as OpenAI spells them; its id if it has no spelling."""
    if candidate.data is None:
        return _id_label(candidate)
    try:
        return candidate.data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in candidate.data)


def _id_label(candidate: Alternative) -> str:
    return f"<token_id:{candidate.token_id}>"


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
