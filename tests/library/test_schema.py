"""Typed arguments: what a schema wants, and the JSON that a model's text becomes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.literals import literal_to_json
from colibri.schema import Schema, argument, is_json, json_string


def kinds(node: Any, root: Any = None) -> set[str] | None:
    found = Schema(node, node if root is None else root).kinds
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, {"integer"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "string", "nullable": True}, {"string", "null"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "string"}, {"type": "array"}]}, {"string", "array"}),
        ({"anyOf": [{"type": "integer"}, {}]}, None),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": "integer"}]}, {"integer"}),
        ({"allOf": [{"description": "x"}, {"type": "number"}]}, {"number"}),
        ({"type": ["string", "integer"], "anyOf": [{"type": "integer"}]}, {"integer"}),
        ({"enum": ["a", 1, None]}, {"string", "integer", "number", "null"}),
        ({"const": True}, {"boolean"}),
        ({"type": "string", "enum": [1]}, {"string"}),
        ({"properties": {}}, {"object"}),
        ({"items": {}}, {"array"}),
        ({"$ref": "#/$defs/Box", "$defs": {"Box": {"type": "object"}}}, {"object"}),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "null"}}}, {"null"}),
        ({"$ref": "#/nowhere"}, None),
        ({"$ref": "https://example.com/box.json"}, None),
        ({"$ref": "#"}, None),
        ({"anyOf": [{"$ref": "#"}, {"type": "string"}]}, None),
        ({}, None),
        (True, None),
        ("string", None),
        ({"type": 3, "anyOf": 4, "enum": {}, "$ref": [], "allOf": None}, None),
    ],
)
def test_kinds(schema: Any, expected: set[str] | None) -> None:
    assert kinds(schema) == expected


def test_schemas_that_refer_to_each_other_end() -> None:
    tangle = {f"s{at}": {"anyOf": [{"$ref": f"#/$defs/s{to}"} for to in range(40)]} for at in range(40)}
    assert kinds({"$ref": "#/$defs/s0", "$defs": tangle}) is None
    assert Schema({"$ref": "#/$defs/s0"}, {"$defs": tangle}).member("x") is None


def test_members_and_items() -> None:
    root = {
        "type": "object",
        "properties": {
            "box": {"$ref": "#/$defs/Box"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "allOf": [{"properties": {"extra": {"type": "integer"}}, "required": ["extra"]}],
        "required": ["box", 3],
        "$defs": {
            "Box": {
                "anyOf": [{"properties": {"w": {"type": "integer"}}}, {"properties": {"w": {"type": "null"}}}]
            }
        },
    }
    schema = Schema(root, root)
    assert schema.names == ("box", "tags", "extra")
    assert schema.required == ("box", "extra")
    box = schema.member("box")
    assert box is not None
    width = box.member("w")
    assert width is not None
    assert width.kinds == {"integer", "null"}
    tags = schema.member("tags")
    assert tags is not None
    assert tags.items().kinds == {"string"}
    assert schema.member("other") is None
    assert Schema({"$ref": "#/$defs/Box/anyOf/1/properties/w"}, root).kinds == {"null"}
    assert Schema({"$ref": "#/%24defs/Box/anyOf/0"}, root).names == ("w",)
    for nowhere in ("#/$defs/Box/anyOf/2", "#/$defs/Box/anyOf/-1", "#/$defs/Box/anyOf/" + "9" * 5000):
        assert Schema({"$ref": nowhere}, root).kinds is None
    loose = Schema({"additionalProperties": {"type": "boolean"}}, {}).member("any")
    assert loose is not None
    assert loose.kinds == {"boolean"}


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("0042", {"string"}, '"0042"'),
        ("null", {"string"}, '"null"'),
        ("null", {"string", "null"}, "null"),
        (" null", {"string", "null"}, '" null"'),
        ('"quoted"', {"string"}, '"\\"quoted\\""'),
        ("{}", {"string", "object"}, '"{}"'),
        ("  two\n", {"string"}, '"  two\\n"'),
        ("9007199254740993", {"integer"}, "9007199254740993"),
        ("1e-07", {"number"}, "1e-07"),
        (" 42 ", {"integer"}, "42"),
        ("0042", {"integer"}, '"0042"'),
        ("True", {"boolean"}, "true"),
        ("None", {"integer", "null"}, "null"),
        ("NaN", {"number"}, '"NaN"'),
        ("-Infinity", {"number"}, '"-Infinity"'),
        ("many", {"integer"}, '"many"'),
        ('{"a": [1,  2]}', {"object"}, '{"a": [1,  2]}'),
        ("{'a': 1}", {"object"}, "\"{'a': 1}\""),
        ("1", None, "1"),
        ("some words", None, '"some words"'),
        ("", {"integer"}, '""'),
        ("1" * 5000, {"integer"}, "1" * 5000),
        ("[" * 100000, {"array"}, json.dumps("[" * 100000)),
    ],
)
def test_argument(text: str, types: set[str] | None, expected: str) -> None:
    assert argument(text, None if types is None else frozenset(types)) == expected


@given(st.text(), st.sampled_from([None, {"string"}, {"integer"}, {"string", "null"}, {"object", "array"}]))
def test_every_argument_is_json(text: str, types: set[str] | None) -> None:
    assert is_json(argument(text, None if types is None else frozenset(types)))


@pytest.mark.parametrize(
    ("value", "schema", "admitted"),
    [
        (1, {"type": "integer"}, True),
        (1, {"type": "number"}, True),
        (1.0, {"type": "integer"}, False),
        (True, {"type": "integer"}, False),
        (None, {"type": ["string", "null"]}, True),
        ({"a": [1, "x"]}, {"properties": {"a": {"items": {"type": "integer"}}}}, False),
        ({"a": [1, 2], "b": "x"}, {"properties": {"a": {"items": {"type": "integer"}}}}, True),
        ("x", {}, True),
    ],
)
def test_admits(value: Any, schema: Any, admitted: bool) -> None:
    assert Schema(schema, schema).admits(value) is admitted


PYTHON = ('"', "'")
BARE = ('<|"|>',)


@pytest.mark.parametrize(
    ("text", "quotes", "value"),
    [
        ("'O\\'Neil'", PYTHON, "O'Neil"),
        ('"a\\n\\x41\\u00e9\\U0001F30B\\101\\q"', PYTHON, "a\nAé🌋A\\q"),
        ('"\\ud83c\\udf0b"', PYTHON, "🌋"),
        ('"\\U00110000"', PYTHON, "\\U00110000"),
        ("'a\\\nb'", PYTHON, "ab"),
        ("[1, -2.5, 1e-07, True, none]", PYTHON, None),
        ("[1, -2.5, 1e-07, True, None, null, false,]", PYTHON, [1, -2.5, 1e-07, True, None, None, False]),
        ("(1, (2, 'x'))", PYTHON, [1, [2, "x"]]),
        ("{'a': {1: 2}}", PYTHON, {"a": {"1": 2}}),
        ("{'a', 'b'}", PYTHON, None),
        ("0042", PYTHON, None),
        ("1_000", PYTHON, None),
        ("name", PYTHON, None),
        ("'open", PYTHON, None),
        ("'a' 'b'", PYTHON, None),
        ("", PYTHON, None),
        (
            '{k:<|"|>say "hi"\\n<|"|>,n:100.0,first name:[true,<|"|><|"|>]}',
            BARE,
            {"k": 'say "hi"\\n', "n": 100.0, "first name": [True, ""]},
        ),
        ('<|"|>x', BARE, None),
        ('{a:"x"}', BARE, None),
    ],
)
def test_literals(text: str, quotes: tuple[str, ...], value: Any) -> None:
    spelled = literal_to_json(text, quotes)
    assert (None if spelled is None else json.loads(spelled)) == value


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(values)
def test_what_python_writes_is_read(value: Any) -> None:
    spelled = literal_to_json(repr(value), PYTHON)
    assert spelled is not None
    assert json.loads(spelled) == value


@given(st.text(), st.sampled_from([PYTHON, BARE]))
def test_no_literal_raises(text: str, quotes: tuple[str, ...]) -> None:
    spelled = literal_to_json(text, quotes)
    assert spelled is None or is_json(spelled)


@given(st.text())
def test_strings_keep_their_text(text: str) -> None:
    assert json.loads(json_string(text)) == text
