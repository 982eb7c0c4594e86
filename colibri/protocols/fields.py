"""Checks of single request fields, to be put into tables.

A check takes the field's wire name and its value, which is never null, and returns the value to use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NoReturn, TypeAlias

from colibri.protocols.base import ProtocolError

__all__ = [
    "Check",
    "boolean",
    "integer",
    "list_of",
    "mapping",
    "number",
    "one_of",
    "read",
    "refuse",
    "refused",
    "text",
    "token_ids",
]

Check: TypeAlias = Callable[[str, Any], Any]


def read(body: Mapping[str, Any], table: Mapping[str, Check]) -> dict[str, Any]:
    """The checked values of those fields of `table` that the body has, in the table's order.

    Raises:
        ProtocolError: the first one that is malformed.
    """
    return {
        name: check(name, value) for name, check in table.items() if (value := body.get(name)) is not None
    }


def refuse(name: str, expected: str, code: str = "invalid_value") -> NoReturn:
    """Refuse the field `name`, which should have been `expected`.

    Raises:
        ProtocolError: always.
    """
    raise ProtocolError.bad(f"`{name}` must be {expected}", name, code)


def refused(name: str, why: str, code: str = "unsupported_parameter") -> NoReturn:
    """Refuse the field `name` because this server does not offer it; `why` ends the sentence.

    Raises:
        ProtocolError: always.
    """
    raise ProtocolError.bad(f"`{name}` is not supported {why}", name, code)


def boolean(name: str, value: Any) -> bool:
    """Either true or false."""
    if not isinstance(value, bool):
        refuse(name, "true or false")
    return value


def text(name: str, value: Any) -> str:
    """A string that is not empty."""
    if not isinstance(value, str) or not value:
        refuse(name, "a non-empty string")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, Mapping):
        refuse(name, "an object")
    return value


def integer(low: int, high: int | None = None) -> Check:
    """An integer from `low` to `high`, both included; no upper bound if None."""
    expected = f"an integer from {low} to {high}" if high is not None else f"an integer, {low} or more"

    def check(name: str, value: Any) -> int:
        if type(value) is not int or value < low or (high is not None and value > high):
            refuse(name, expected)
        return value

    return check


def number(low: float, high: float, *, above: bool = False) -> Check:
    """A number from `low` to `high`, both included unless `above` leaves out `low`."""
    expected = f"a number {'above' if above else 'from'} {low:g} {'and at most' if above else 'to'} {high:g}"

    def check(name: str, value: Any) -> float:
        if type(value) not in (int, float) or not (isinstance(value, int) or isfinite(value)):
            refuse(name, expected)
        if not low <= value <= high or (above and value == low):
            refuse(name, expected)
        return float(value)

    return check


def one_of(*words: str) -> Check:
    """One of these strings."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            refuse(name, "one of " + ", ".join(words))
        return value

    return check


def list_of(item: Check, most: int | None = None) -> Check:
    """An array of 1 to `most` items, each named `field.index` when refused."""
    expected = f"an array of 1 to {most} items" if most is not None else "a non-empty array"

    def check(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not value or (most is not None and len(value) > most):
            refuse(name, expected)
        return tuple(item(f"{name}.{index}", inner) for index, inner in enumerate(value))

    return check


_TOKEN_IDS = list_of(integer(0, 2**31 - 1))


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """An array of token ids, which may be empty."""
    return () if value == [] else _TOKEN_IDS(name, value)
