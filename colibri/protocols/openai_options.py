"""The request options that chat and completions share: what is read, what is ignored, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import fields, frozen

from colibri.protocols.base import Offer, Sampling
from colibri.protocols.fields import (
    Check,
    boolean,
    integer,
    mapping,
    number,
    read,
    refuse,
    refused,
    text,
    token_ids,
)
from colibri.protocols.output_schema import schema_of_format

__all__ = ["IGNORED", "MAX_LOGPROBS", "delivery_options", "generation_options", "most_logprobs"]

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
_MAX_STOPS, _LONGEST_STOP = 4, 1024
_SAMPLING_FIELDS = frozenset(attribute.name for attribute in fields(Sampling))


@frozen
class _SamplingField:
    """A sampling field: its check, the values that ask for nothing, and the code of a refusal.

    Where the engine does not honour the field any other value is refused, or ignored if there is no code.
    """

    check: Check
    idle: tuple[Any, ...] = ()
    refusal: Literal["unsupported_parameter", "unsupported_value"] | None = None

    def offered(self, name: str, offer: Offer) -> Check:
        """The check that holds under this offer."""
        if name in offer.sampling:
            return self.check
        return self._unoffered

    def _unoffered(self, name: str, value: Any) -> None:
        if self.refusal is not None and (isinstance(value, bool) or value not in self.idle):
            refused(name, "by this model's engine; leave it out", self.refusal)


def _logit_bias(name: str, value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping) or not all(
        key.isascii() and key.isdigit() and len(key) < 10 for key in value
    ):
        refuse(name, "an object of token ids and numbers from -100 to 100")
    bias = number(-100, 100)
    return {int(key): bias(f"{name}.{key}", amount) for key, amount in value.items()}


def _top_k(name: str, value: Any) -> int:
    return max(0, int(integer(-1, 2**31 - 1)(name, value)))


def _seed(name: str, value: Any) -> int | None:
    return value & _SEED_BITS if type(value) is int else None


def _stop(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_stop_sequence(name, value),)
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_STOPS:
        refuse(name, f"a non-empty string or an array of 1 to {_MAX_STOPS} of them")
    return tuple(_stop_sequence(f"{name}.{index}", item) for index, item in enumerate(value))


def _stop_sequence(name: str, value: Any) -> str:
    if len(text(name, value)) > _LONGEST_STOP:
        refuse(name, f"at most {_LONGEST_STOP} characters long")
    return str(value)


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


def _choices(most: int) -> Check:
    def check(name: str, value: Any) -> int:
        if type(value) is not int or not 1 <= value <= most:
            expected = "1 with this model's engine" if most == 1 else f"an integer from 1 to {most}"
            refuse(name, expected, "unsupported_value")
        return value

    return check


_LOGIT_BIAS = _SamplingField(_logit_bias, ({},), "unsupported_value")
_PENALTY = _SamplingField(number(-2, 2), (0,), "unsupported_parameter")
_OTHER_SAMPLING: Mapping[str, _SamplingField] = {
    "temperature": _SamplingField(number(0, 2)),
    "top_p": _SamplingField(number(0, 1, above=True)),
    "top_k": _SamplingField(_top_k),
    "min_p": _SamplingField(number(0, 1)),
    "typical_p": _SamplingField(number(0, 1, above=True)),
    "repetition_penalty": _SamplingField(number(0, 10, above=True)),
}


def generation_options(body: Mapping[str, Any], offer: Offer, *, least_tokens: int = 1) -> dict[str, Any]:
    """What to generate, as keyword arguments of `Request`, checked in the order of the table.

    `least_tokens` is the smallest legal budget.

    Raises:
        ProtocolError: a field is malformed, or asks for what is not offered.
    """
    budget = integer(least_tokens)
    table: Mapping[str, Check] = {
        "n": _choices(offer.max_choices),
        "best_of": _only_one,
        "logit_bias": _LOGIT_BIAS.offered("logit_bias", offer),
        "suffix": _no_suffix,
        "modalities": _modalities,
        "stop": _stop,
        "stop_token_ids": token_ids,
        "frequency_penalty": _PENALTY.offered("frequency_penalty", offer),
        "presence_penalty": _PENALTY.offered("presence_penalty", offer),
        "response_format": schema_of_format,
        "max_completion_tokens": budget,
        "max_tokens": budget,
        **{name: field.offered(name, offer) for name, field in _OTHER_SAMPLING.items()},
        "seed": _seed,
    }
    found = read(body, table)
    default = offer.max_tokens if offer.default_tokens is None else offer.default_tokens
    wanted = found.get("max_completion_tokens", found.get("max_tokens", default))
    return {
        "model": offer.model,
        "choices": found.get("n", 1),
        "max_tokens": min(wanted, offer.max_tokens),
        "sampling": Sampling(**{name: value for name, value in found.items() if name in _SAMPLING_FIELDS}),
        "stop": found.get("stop"),
        "stop_token_ids": found.get("stop_token_ids", ()),
        "schema": found.get("response_format"),
    }


def delivery_options(body: Mapping[str, Any], offer: Offer) -> dict[str, Any]:
    """Where to run and how to send it, as keyword arguments of `Request`.

    Raises:
        ProtocolError: a field is malformed; `stream_options` only counts in a stream.
    """
    found = read(
        body,
        {
            "x_colibri_ignore_leading_stop": boolean,
            "cache_slot": integer(0, offer.slots - 1),
            "stream": boolean,
        },
    )
    stream = found.get("stream", False)
    options = read(body, {"stream_options": mapping}) if stream else {}
    return {
        "ignore_leading_stop": found.get("x_colibri_ignore_leading_stop", False),
        "cache_slot": found.get("cache_slot"),
        "stream": stream,
        "include_usage": bool(options.get("stream_options", {}).get("include_usage")),
    }


def most_logprobs(name: str, value: Any, offer: Offer, *, wanted: bool = True) -> int:
    """A number of alternatives a position, at most what the engine can read out.

    Unless they are `wanted`, it need only be one that could be asked of some engine.

    Raises:
        ProtocolError: it is not an integer in range.
    """
    most = min(MAX_LOGPROBS, offer.max_logprobs) if wanted else 0
    return int(integer(0, most or MAX_LOGPROBS)(name, value))
