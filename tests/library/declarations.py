"""Random schemas and declarations of functions, plain and odd, and values that fit them."""

from __future__ import annotations

import random
from typing import Any

from colibri.conversation import Tool

NAMES = ["a", "b", "city", "x y", "é"]
ODD_NAMES = ["", " a", "a>b", '" string="true">', "'q'", "&amp;", "a\nb", "</parameter>", "\x01", "a" * 130]
WORDS = ["C", "", "\nx\n", "null", "5", "é日", "</parameter>", "<parameter=a>", "</parameter>\n</function>"]
STRINGS = [*WORDS, "a</parameter>\n<parameter=zzz>", "<function=f>", "</b>", '{"a": 1}', " lead", "x" * 999]


def schema(choose: random.Random, depth: int = 2, *, strings: bool = True) -> Any:
    """A schema; strings: whether strings may stand inside arrays and objects, and anything anywhere."""
    inner = [{"type": "integer"}, {"type": ["boolean", "null"]}, {"enum": [1, 2.5, None, [1]]}]
    plain = [
        *inner,
        {"type": "string"},
        {"type": "string", "format": "date", "description": "when"},
        {"type": ["string", "null"], "minLength": 1, "maxLength": 4},
        {"type": ["integer", "string"]},
        {"enum": choose.sample(WORDS, 3)},
        {"enum": [choose.choice(WORDS), None, 7, True]},
        {"type": "string", "enum": ["C", 5]},
        {"const": choose.choice(WORDS)},
        {"$ref": "#/$defs/word"},
    ]
    if strings:
        plain += [{}, {"description": "any"}, {"type": ["object", "array"]}]
    if not depth or choose.random() < 0.6:
        return choose.choice(plain)
    part = schema(choose, depth - 1, strings=strings)
    member = part if strings else choose.choice(inner)
    return choose.choice(
        [
            {"type": "array", "items": member, "maxItems": 2},
            {"type": "object", "properties": {"k": member}, "additionalProperties": False},
            {"anyOf": [part, {"type": "null"}]},
            {"allOf": [part]},
        ]
    )


def tool(choose: random.Random, name: str, *, strings: bool = True, odd: bool = False) -> Tool:
    """A strict function with up to four parameters; odd: some of their names are hard to write."""
    names = choose.sample(NAMES + choose.sample(ODD_NAMES, 3) * odd, choose.randint(0, 4))
    parameters = {
        "type": "object",
        "properties": {key: schema(choose, strings=strings) for key in names},
        "required": [key for key in names if choose.random() < 0.5],
        "additionalProperties": False,
        "$defs": {"word": {"enum": choose.sample(WORDS, 2)}},
    }
    if odd and choose.random() < 0.3:
        parameters |= choose.choice(
            [
                {"required": ["ghost"]},
                {"minProperties": 1},
                {"anyOf": [{"required": names[:1]}]},
                {"type": []},
            ]
        )
    function = {"name": name, "description": "Does.", "strict": True, "parameters": parameters}
    return Tool({"type": "function", "function": function})


def value(choose: random.Random, node: Any, root: Any) -> Any:
    """Something of the kind that a schema wants, which may break a bound."""
    if "$ref" in node:
        return value(choose, root["$defs"]["word"], root)
    if "const" in node or "enum" in node:
        return choose.choice(node.get("enum") or [node["const"]])
    for key in ("anyOf", "allOf"):
        if key in node:
            return value(choose, choose.choice(node[key]), root)
    kinds = node.get("type", "string")
    kind = kinds if isinstance(kinds, str) else choose.choice(kinds)
    if kind == "array":
        return [value(choose, node.get("items", {}), root) for _ in range(choose.randint(0, 2))]
    if kind == "object":
        return {key: value(choose, member, root) for key, member in node.get("properties", {}).items()}
    found = {"integer": choose.randint(-9, 10**9), "boolean": choose.random() < 0.5, "null": None}
    return found[kind] if kind in found else choose.choice(STRINGS)
