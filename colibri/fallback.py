"""Tools for families whose format has none: declared in words, called in the form of a family that has.

Declarations become a system text, calls of past turns become text in the donor's form, results become
user turns. The reply is read with the donor's grammar.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from colibri.conversation import Conversation, Text, Tool, ToolCall, ToolChoice, ToolResult, Turn
from colibri.errors import ConversationError, RenderError, Where
from colibri.family import Family, ParserLike, Prompt, Start
from colibri.parser import Parser

__all__ = ["with_tools"]

_DECLARATION = (
    "You have access to the following functions. Call one only when it is needed to answer the user.\n\n"
    "<tools>\n{tools}\n</tools>\n\n"
    "To call a function, reply with the call and nothing else, in this exact format:\n"
    "<tool_call>{{function-name}}<arg_key>{{arg-key}}</arg_key><arg_value>{{arg-value}}</arg_value></tool_call>"
)
_REQUIRED = "\n\nYou must call one of the functions above. Do not answer directly."
_FORCED = "\n\nYou must call the function `{name}`. Do not answer directly."


def with_tools(family: Family, donor: Family) -> Family:
    """`family` with tools in the form of `donor`, whose calls are GLM's tagged arguments."""

    def render(conversation: Conversation, cue: bool = True) -> Prompt:
        return family.render(_in_words(conversation), cue)

    def new_parser(
        tools: Sequence[Tool] = (),
        prompt: Prompt | None = None,
        start: Start = None,
        *,
        salvage: bool = False,
    ) -> ParserLike:
        if not tools:
            return family.new_parser(tools, prompt, start)
        return Parser(donor.grammar, tools, start=start or "text", salvage=salvage)

    def extend(prompt: Prompt, reply: str, turns: Sequence[Turn]) -> Prompt | None:
        return None

    features = evolve(family.features, tools=True, tools_served=True, forced_tool="narrow+line")
    return evolve(
        family,
        features=features,
        render=render,
        new_parser=new_parser,
        extend=extend,
        tool_grammar=donor.grammar,
    )


def _in_words(conversation: Conversation) -> Conversation:
    turns = [_turn(index, turn) for index, turn in enumerate(conversation.turns)]
    choice = conversation.tool_choice
    if conversation.tools and not (choice and choice.mode == "none"):
        turns = _with_system(turns, _declaration(conversation.tools, choice))
    return evolve(conversation, turns=tuple(turns), tools=(), tool_choice=None)


def _declaration(tools: Sequence[Tool], choice: ToolChoice | None) -> str:
    if choice and choice.mode == "tool":
        tools = [tool for tool in tools if tool.name == choice.name]
    text = _DECLARATION.format(tools="\n".join(_json(tool.function) for tool in tools))
    if choice and choice.mode == "required":
        text += _REQUIRED
    if choice and choice.mode == "tool":
        text += _FORCED.format(name=choice.name)
    return text


def _with_system(turns: list[Turn], text: str) -> list[Turn]:
    if turns and turns[0].role == "system":
        said = "".join(part.text for part in turns[0].parts if isinstance(part, Text))
        return [Turn("system", (Text(f"{text}\n\n{said}"),)), *turns[1:]]
    return [Turn("system", (Text(text),)), *turns]


def _turn(index: int, turn: Turn) -> Turn:
    if turn.role == "tool":
        results = (part for part in turn.parts if isinstance(part, ToolResult))
        text = "\n".join(f"<tool_response>{_result(index, result)}</tool_response>" for result in results)
        return Turn("user", (Text(text),))
    calls = [part for part in turn.parts if isinstance(part, ToolCall)]
    if not calls:
        return turn
    kept = tuple(part for part in turn.parts if not isinstance(part, ToolCall | Text))
    said = "".join(part.text for part in turn.parts if isinstance(part, Text))
    return evolve(
        turn, parts=(*kept, Text(said + "".join(_call(index, call) for call in calls))), listed=False
    )


def _result(index: int, result: ToolResult) -> str:
    if any(not isinstance(part, Text) for part in result.parts):
        raise RenderError("a tool result of this family can only hold text", where=Where(turn=index))
    return "".join(part.text for part in result.parts if isinstance(part, Text))


def _call(index: int, call: ToolCall) -> str:
    arguments = call.decoded() if call.arguments else {}
    if not isinstance(arguments, Mapping):
        raise ConversationError(
            f"the arguments of the call to {call.name!r} must be one JSON object", where=Where(turn=index)
        )
    pairs = "".join(
        f"<arg_key>{key}</arg_key><arg_value>{value if isinstance(value, str) else _json(value)}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{call.name}{pairs}</tool_call>"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
