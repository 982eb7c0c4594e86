"""Which strings and constants a schema admits, where that can be said."""

from __future__ import annotations

from typing import Any

import pytest

from colibri.schema import Schema
from colibri.texts import Lengths, Texts, texts

REST = (True, False, None)
MANY = {"$defs": {f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 2} for at in range(40)}}


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, (Lengths(), *REST)),
        (True, (Lengths(), *REST)),
        ({"type": "string"}, (Lengths(),)),
        ({"type": ["null", "boolean", "integer"]}, REST),
        ({"type": "object"}, ()),
        ({"type": "string", "format": "date", "title": "When"}, (Lengths(),)),
        ({"minLength": 2, "maxLength": 3.0}, (Lengths(2, 3), *REST)),
        ({"type": "string", "minLength": 3, "maxLength": 2}, ()),
        ({"enum": ["a", "", 1, None, True, [1]]}, ("a", "", True, None)),
        ({"enum": [0, 1]}, ()),
        ({"type": "string", "enum": ["a", None], "minLength": 1}, ("a",)),
        ({"const": "a", "enum": ["a", "b"]}, ("a",)),
        ({"const": False}, (False,)),
        ({"anyOf": [{"const": "a"}, {"type": "null"}, {"const": "a"}]}, ("a", None)),
        ({"allOf": [{"minLength": 2}, {"type": "string", "maxLength": 4}]}, (Lengths(2, 4),)),
        ({"oneOf": [{"const": "a"}, {"type": "integer"}]}, ("a",)),
        ({"oneOf": [{"const": "a"}, {"type": "string"}]}, None),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"const": "x"}}}, ("x",)),
        ({"$ref": "#"}, None),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": "#/$defs/d0", **MANY}, None),
        ({"type": "string", "pattern": "a"}, None),
        ({"not": {"const": "a"}}, None),
        ({"minLength": -1}, None),
        ({"maxLength": True}, None),
        ({"maxLength": float("inf")}, None),
        ({"enum": "ab"}, None),
        ({"type": 3}, None),
        ({"anyOf": {}}, None),
        (False, None),
        (7, None),
    ],
)
def test_texts(node: Any, expected: Texts | None) -> None:
    assert texts(Schema(node, node)) == expected
