"""JSON schemas that a client sends: compiled when the request comes, applied to what the model wrote.

Regular expressions of a schema run with bounded backtracking and references are never fetched, because
both come from a stranger.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jsonschema_rs

from colibri.protocols.base import ProtocolError, WireError
from colibri.protocols.fields import mapping, refuse

__all__ = ["check_content", "compile_schema", "misfit", "schema_of_format"]

_BACKTRACK_LIMIT = 100_000

# Compiling holds up every other request, and takes about 20 ms for this much.
_LONGEST_SCHEMA, _LONGEST_PATTERNS = 128 * 1024, 8 * 1024


def compile_schema(name: str, schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """A validator for the schema in the request field `name`.

    Raises:
        ProtocolError: the schema is malformed, too large, or refers to something outside itself.
    """
    text = json.dumps(schema)
    if len(text) > _LONGEST_SCHEMA:
        refuse(name, f"at most {_LONGEST_SCHEMA} bytes of JSON")
    if sum(map(len, _patterns(schema))) > _LONGEST_PATTERNS:
        refuse(name, f"a schema with at most {_LONGEST_PATTERNS} characters of regular expressions")
    try:
        return _compiled(text)
    except ValueError as error:
        reason = getattr(error, "message", None) or str(error)
        raise ProtocolError.bad(
            f"`{name}` is not a usable JSON schema: {reason.splitlines()[0]}", name
        ) from None


@lru_cache(maxsize=32)
def _compiled(text: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(
        json.loads(text),
        offline=True,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACK_LIMIT),
    )


def _patterns(schema: Any) -> Iterator[str]:
    """The regular expressions anywhere in a schema."""
    todo = [schema]
    for node in todo:
        if isinstance(node, Mapping):
            todo += node.values()
            if isinstance(node.get("pattern"), str):
                yield node["pattern"]
            if isinstance(node.get("patternProperties"), Mapping):
                yield from node["patternProperties"]
        elif isinstance(node, list):
            todo += node


def schema_of_format(name: str, value: Any) -> Mapping[str, Any] | None:
    """The JSON schema that a `response_format` asks for; None for plain text.

    Raises:
        ProtocolError: an unknown type, or a malformed schema.
    """
    kind = mapping(name, value).get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        refuse(f"{name}.type", "text, json_object or json_schema", "unsupported_value")
    inner = mapping(f"{name}.json_schema", value.get("json_schema"))
    schema = mapping(f"{name}.json_schema.schema", inner.get("schema"))
    compile_schema(f"{name}.json_schema.schema", schema)
    return schema


def check_content(content: str, schema: Mapping[str, Any]) -> None:
    """Refuse a finished reply that is not JSON of the schema that the request gave.

    Raises:
        ProtocolError: a 502 that says what does not fit.
    """
    try:
        value = json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _misfit("it is not JSON") from None
    reason = misfit(value, schema)
    if reason is not None:
        raise _misfit(reason)


def misfit(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Why the decoded JSON `value` does not fit a schema that has been compiled before; None if it does."""
    try:
        for error in compile_schema("schema", schema).iter_errors(value):
            place = ".".join(str(step) for step in error.instance_path)
            return f"at {place}: {error.message}" if place else error.message
    except UnicodeEncodeError:
        return "a string holds an unpaired surrogate"
    return None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _misfit(reason: str) -> ProtocolError:
    return ProtocolError(
        WireError(
            502,
            f"the model's reply does not fit `response_format`: {reason[:500]}; ask again",
            type="server_error",
            param="response_format",
            code="invalid_model_output",
        )
    )
