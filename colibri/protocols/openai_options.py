"""The request options that chat and completions share: what is read, what is ignored, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import frozen

from colibri.protocols.base import Offer, Sampling
from colibri.protocols.fields import (
    Check,
    boolean,
    integer,
    list_of,
    mapping,
    number,
    read,
    refuse,
    refused,
    text,
)

__all__ = ["IGNORED", "MAX_LOGPROBS", "max_tokens", "most_logprobs", "sampling", "shape", "stream_options"]

IGNORED = frozenset(
    {
        "metadata",
        "moderation",
        "parallel_tool_calls",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""Bookkeeping of hosted platforms: accepted, never read. So is every field that no table names."""

MAX_LOGPROBS = 32
"""The largest number of alternatives that may be asked for at one position."""

_SEED_BITS = (1 << 63) - 1
_MAX_STOPS = 4


@frozen
class _SamplingField:
    """A sampling field: its check, the values that ask for nothing, and the code of a refusal.

    Where the engine does not honour the field any other value is refused, or ignored if there is no code.
    """

    check: Check
    idle: tuple[Any, ...] = ()
    refusal: Literal["unsupported_parameter", "unsupported_value"] | None = None


def _logit_bias(name: str, value: Any) -> dict[int, float]:
    bias = number(-100, 100)
    if not isinstance(value, Mapping):
        refuse(name, "an object of token ids and numbers from -100 to 100")
    checked = {}
    for key, amount in value.items():
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            refuse(name, "an object whose keys are token ids")
        checked[int(key)] = bias(f"{name}.{key}", amount)
    return checked


def _top_k(name: str, value: Any) -> int:
    return max(0, int(integer(-1)(name, value)))


_SAMPLING: Mapping[str, _SamplingField] = {
    "logit_bias": _SamplingField(_logit_bias, ({},), "unsupported_value"),
    "frequency_penalty": _SamplingField(number(-2, 2), (0,), "unsupported_parameter"),
    "presence_penalty": _SamplingField(number(-2, 2), (0,), "unsupported_parameter"),
    "temperature": _SamplingField(number(0, 2)),
    "top_p": _SamplingField(number(0, 1, above=True)),
    "top_k": _SamplingField(_top_k),
    "min_p": _SamplingField(number(0, 1)),
    "typical_p": _SamplingField(number(0, 1, above=True)),
    "repetition_penalty": _SamplingField(number(0, 10, above=True)),
}


def sampling(body: Mapping[str, Any], offer: Offer) -> Sampling:
    """How tokens are to be chosen.

    Raises:
        ProtocolError: a field is out of range, or asks for what the engine cannot do.
    """
    values: dict[str, Any] = {}
    for name, field in _SAMPLING.items():
        value = body.get(name)
        if value is None:
            continue
        if name in offer.sampling:
            values[name] = field.check(name, value)
        elif field.refusal is not None and value not in field.idle:
            refused(name, "by this model's engine; leave it out", field.refusal)
    seed = body.get("seed")
    if type(seed) is int:
        values["seed"] = seed & _SEED_BITS
    return Sampling(**values)


def max_tokens(body: Mapping[str, Any], offer: Offer, *, least: int = 1) -> tuple[int, str]:
    """The budget of one reply, clamped to the offer's, and the name of the field that sets it.

    Raises:
        ProtocolError: it is not an integer of at least `least`.
    """
    for name in ("max_completion_tokens", "max_tokens"):
        value = body.get(name)
        if value is not None:
            return min(integer(least)(name, value), offer.max_tokens), name
    return offer.max_tokens, "max_tokens"


def _stop(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_STOPS:
        refuse(name, f"a non-empty string or an array of 1 to {_MAX_STOPS} of them")
    return tuple(text(f"{name}.{index}", item) for index, item in enumerate(value))


def _modalities(name: str, value: Any) -> None:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        refuse(name, "a non-empty array of strings")
    if any(word != "text" for word in value):
        refuse(name, '["text"]: this server answers in text only', "unsupported_value")


def _only_one(name: str, value: Any) -> None:
    if value != 1 or isinstance(value, bool):
        refuse(name, "1, since no candidates are ranked", "unsupported_value")


def _no_suffix(name: str, value: Any) -> None:
    refused(name, "by this server, which does not infill; leave it out")


def _choices(body: Mapping[str, Any], offer: Offer) -> int:
    value = body.get("n")
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= offer.max_choices:
        most = offer.max_choices
        refuse("n", "1" if most == 1 else f"an integer from 1 to {most}", "unsupported_value")
    return value


def shape(body: Mapping[str, Any], offer: Offer) -> dict[str, Any]:
    """The options of the reply's shape and place, as keyword arguments of `Request`.

    Raises:
        ProtocolError: one of them is malformed or not offered; the first in the order of the checks.
    """
    choices = _choices(body, offer)
    read(body, {"best_of": _only_one, "suffix": _no_suffix, "modalities": _modalities})
    table: Mapping[str, Check] = {
        "stop": _stop,
        "stop_token_ids": list_of(integer(0, 2**31 - 1)),
        "x_colibri_ignore_leading_stop": boolean,
        "cache_slot": integer(0, offer.slots - 1),
    }
    found = read(body, table)
    if "x_colibri_ignore_leading_stop" in found:
        found["ignore_leading_stop"] = found.pop("x_colibri_ignore_leading_stop")
    return {"choices": choices, **found}


def stream_options(body: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether to stream, and whether the stream ends with a usage chunk.

    Raises:
        ProtocolError: `stream` is no boolean, or `stream_options` of a stream no object.
    """
    stream = read(body, {"stream": boolean}).get("stream", False)
    if not stream:
        return False, False
    options = read(body, {"stream_options": mapping}).get("stream_options", {})
    return True, bool(options.get("include_usage"))


def most_logprobs(name: str, value: Any, offer: Offer) -> int:
    """A number of alternatives a position, at most what the engine can read out.

    Raises:
        ProtocolError: it is not an integer in range.
    """
    return int(integer(0, min(MAX_LOGPROBS, offer.max_logprobs) or MAX_LOGPROBS)(name, value))
