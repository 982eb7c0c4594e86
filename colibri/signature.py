"""A declared function as replies are held to it: its parameters in order, each with what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from colibri.conversation import Tool
from colibri.lark import alone, json_of
from colibri.schema import Schema
from colibri.texts import Texts, admits_all, texts

__all__ = ["Parameter", "Signature"]

# What an object must be beyond its properties one by one.
_ENTANGLED = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "$ref",
        "allOf",
        "anyOf",
        "const",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "enum",
        "if",
        "maxProperties",
        "minProperties",
        "not",
        "oneOf",
        "patternProperties",
        "propertyNames",
    }
)


class Parameter:
    """One parameter. kinds: the JSON types it admits, None when it does not say."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.kinds = schema.kinds

    @cached_property
    def anything(self) -> bool:
        """Whether every value will do."""
        return admits_all(self._schema.node)

    @cached_property
    def texts(self) -> Texts | None:
        """The strings it admits; see `colibri.texts.texts`."""
        return texts(self._schema)

    @cached_property
    def json(self) -> str | None:
        """Its values as JSON, in Lark's words; None where that cannot be said."""
        return json_of(alone(self._schema))


class Signature:
    """The parameters of a function. names: in the order of their declaration. required: some of them.

    needed: how many of the names there are up to the last that is required. separate: whether arguments
    that fit one by one, the required ones among them, fit as a whole.
    """

    def __init__(self, tool: Tool) -> None:
        self._schema = schema = Schema(tool.parameters, tool.parameters)
        self.name = tool.name
        self.names = schema.names
        self.required = frozenset(schema.required)
        self.needed = max((at + 1 for at, name in enumerate(self.names) if name in self.required), default=0)
        self.separate = (
            tool.parameters.keys().isdisjoint(_ENTANGLED)
            and self.required <= frozenset(self.names)
            and _may_be_object(tool.parameters)
        )
        self._parameters: dict[int, Parameter] = {}

    def parameter(self, index: int) -> Parameter:
        """The parameter with that index in `names`."""
        if index not in self._parameters:
            member = self._schema.member(self.names[index])
            self._parameters[index] = Parameter(member or Schema(True, True))
        return self._parameters[index]

    @cached_property
    def json(self) -> str | None:
        """All arguments as a JSON object, in Lark's words; None where that cannot be said."""
        node = self._schema.node
        return json_of({**node, "type": "object"}) if _may_be_object(node) else None


def _may_be_object(node: Mapping[str, object]) -> bool:
    kinds = node.get("type", "object")
    return kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
