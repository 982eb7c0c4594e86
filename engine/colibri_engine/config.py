"""Reading a checkpoint's configuration strictly: config.json, or the key-values of a GGUF file.

A key that changes the mathematics and is not supported must stop the loading, never be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .errors import SpecError

__all__ = ["integer", "number", "require", "rope_theta"]

_ABSENT: Final = object()


def integer(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer; an absent or null key is `default`.

    Raises:
        SpecError: another kind of value, or absent without a default.
    """
    value = config.get(key)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 1:
        raise SpecError(f"the configuration's {key} must be a positive integer, not {value!r:.80}")
    return value


def number(config: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A positive number; an absent or null key is `default`.

    Raises:
        SpecError: another kind of value, or absent without a default.
    """
    value = config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SpecError(f"the configuration's {key} must be a positive number, not {value!r:.80}")
    return float(value)


def require(config: Mapping[str, Any], key: str, *allowed: Any, default: Any = _ABSENT) -> Any:
    """The value of a key of which only some values are supported.

    An absent key is `default`, by default the first of `allowed`; the default must be allowed, too.

    Raises:
        SpecError: the value is not allowed.
    """
    value = config.get(key, allowed[0] if default is _ABSENT else default)
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        choices = " or ".join(repr(choice) for choice in allowed)
        raise SpecError(f"the configuration's {key} is {value!r:.80}; this engine supports only {choices}")
    return value


def rope_theta(config: Mapping[str, Any], default: float | None = None) -> float:
    """The base of the rotary embedding of a config.json, old style or `rope_parameters`.

    Raises:
        SpecError: scaled or partial rope, or no valid base and no default.
    """
    parameters = config.get("rope_parameters")
    if parameters is None:
        require(config, "rope_scaling", None)
        return number(config, "rope_theta", default)
    if not isinstance(parameters, Mapping):
        raise SpecError(f"the configuration's rope_parameters must be an object, not {parameters!r:.80}")
    require(parameters, "rope_type", "default")
    require(parameters, "partial_rotary_factor", 1.0, 1, None)
    return number(parameters, "rope_theta", default)
