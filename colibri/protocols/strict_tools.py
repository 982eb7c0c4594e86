"""`strict_tool_calls`: only complete calls of declared functions with fitting arguments get out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from colibri.conversation import Tool
from colibri.protocols.base import ProtocolError, WireError
from colibri.protocols.output_schema import compile_schema, misfit

__all__ = ["check_calls", "check_declarations"]


def check_declarations(tools: Sequence[Tool]) -> None:
    """Refuse tools whose schemas cannot be enforced.

    Raises:
        ProtocolError: a schema lacks an object `properties`, has a `required` that is no list, or is
            malformed.
    """
    for index, tool in enumerate(tools):
        schema = tool.parameters
        if not isinstance(schema.get("properties"), Mapping) or not isinstance(
            schema.get("required", []), list
        ):
            raise ProtocolError.bad(
                f"`tools.{index}` needs `parameters` with an object `properties` and a list `required` for"
                " `strict_tool_calls`",
                f"tools.{index}",
            )
        compile_schema(f"tools.{index}.function.parameters", schema)


def check_calls(
    calls: Sequence[tuple[str, str]], broken: Sequence[str], finish_reason: str, tools: Sequence[Tool]
) -> None:
    """Refuse a finished reply unless every call in it is complete and fits its declaration.

    `calls` are names and JSON texts of arguments; `broken` holds the reasons of calls that did not end.

    Raises:
        ProtocolError: a 502 that says what is wrong with which call.
    """
    if broken and finish_reason == "length":
        raise _invalid("the call was cut off at the generation limit; raise `max_tokens`")
    if broken:
        raise _invalid(f"a call is incomplete or malformed ({broken[0]})")
    declared = {tool.name: tool.parameters for tool in tools}
    for name, text in calls:
        if name not in declared:
            raise _invalid(f"undeclared function {name!r}")
        _check_arguments(name, text, declared[name])


def _check_arguments(name: str, text: str, schema: Mapping[str, Any]) -> None:
    try:
        arguments = json.loads(text, object_pairs_hook=_unique)
    except _Repeated:
        raise _invalid(f"duplicate argument of {name!r}") from None
    except (ValueError, RecursionError):
        raise _invalid(f"the arguments of {name!r} are not JSON") from None
    if not isinstance(arguments, dict):
        raise _invalid(f"the arguments of {name!r} are not an object")
    unknown = arguments.keys() - schema["properties"].keys()
    if unknown:
        raise _invalid(f"unknown argument {min(unknown)!r} of {name!r}")
    for argument, value in arguments.items():
        inner = schema["properties"][argument]
        if isinstance(value, float) and isinstance(inner, Mapping) and inner.get("type") == "integer":
            raise _invalid(f"argument {argument!r} of {name!r} is not an integer")
    reason = misfit(arguments, schema)
    if reason is not None:
        raise _invalid(f"arguments of {name!r} do not fit their schema: {reason[:300]}")


class _Repeated(Exception):
    """A key occurs twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Repeated
    return members


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(
        WireError(502, f"Invalid tool call: {reason}.", type="server_error", code="invalid_model_tool_call")
    )
