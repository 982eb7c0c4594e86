"""Rules around a prompt: what is rewritten before rendering, when a turn may be continued, how to go on."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from colibri.conversation import (
    Conversation,
    Part,
    Reasoning,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
)
from colibri.errors import ConversationError, RenderError, RequestError, Where
from colibri.family import Family, Folding, NewParser, Prompt, Render
from colibri.provenance import Segment
from colibri.reply import ReplyCall
from colibri.reply import fold as fold_events
from colibri.schema import is_json
from colibri.unfinished import finished

__all__ = ["check_continuation", "extend", "fold", "serve_defaults"]

_KNOWN_ROLES = frozenset({"system", "user", "assistant", "tool"})


def fold(conversation: Conversation, family: Family) -> Conversation:
    """Rewrite what the family's official format has no place for, losing no text.

    `developer` becomes `system`. Where `Folding.late_system` is false, leading system turns join with a
    blank line and later ones move into the neighbouring user turn. Where text parts are not taken, they
    join without a separator and null becomes an empty string. Where tools need a description, one without
    gets an empty one. Arguments of a call that a reply's end cut off, which clients send back as they got
    them, are closed where they stop.

    Raises:
        ConversationError: a role is unknown.
    """
    turns = [_with_whole_calls(_known_role(index, turn)) for index, turn in enumerate(conversation.turns)]
    if not family.folding.late_system:
        turns = _move_system(turns)
    turns = [_flatten(turn, family.folding) for turn in turns]
    tools = conversation.tools if family.folding.bare_tools else tuple(map(_described, conversation.tools))
    return evolve(conversation, turns=tuple(turns), tools=tools)


def _described(tool: Tool) -> Tool:
    if isinstance(tool.function.get("description"), str):
        return tool
    function = {**tool.function, "description": ""}
    bare = "function" not in tool.declaration
    return Tool(function if bare else {**tool.declaration, "function": function})


def _known_role(index: int, turn: Turn) -> Turn:
    role = "system" if turn.role == "developer" else turn.role
    if role not in _KNOWN_ROLES:
        raise ConversationError(
            f"`messages.{index}.role` is {turn.role!r}; use system, developer, user, assistant or tool",
            where=Where(turn=index, field="role"),
        )
    return evolve(turn, role=role)


def _with_whole_calls(turn: Turn) -> Turn:
    if not any(isinstance(part, ToolCall) for part in turn.parts):
        return turn
    return evolve(turn, parts=tuple(map(_whole_call, turn.parts)))


def _whole_call(part: Part) -> Part:
    if not isinstance(part, ToolCall) or not part.arguments or is_json(part.arguments):
        return part
    whole = finished(part.arguments)
    return part if whole is None else evolve(part, arguments=whole)


def _move_system(turns: Sequence[Turn]) -> list[Turn]:
    lead = 0
    while lead < len(turns) and turns[lead].role == "system":
        lead += 1
    folded = [_joined("system", [_text(turn) for turn in turns[:lead]])] if lead else []
    pending: list[str] = []
    for turn in turns[lead:]:
        if turn.role == "system":
            if not pending and folded and folded[-1].role == "user":
                folded[-1] = _append(folded[-1], "\n\n" + _text(turn))
            else:
                pending.append(_text(turn))
            continue
        if pending and turn.role == "user":
            turn = _prepend(turn, "\n\n".join(pending) + "\n\n")
        elif pending:
            folded.append(_joined("user", pending))
        pending = []
        folded.append(turn)
    if pending:
        folded.append(_joined("user", pending))
    return folded


def _text(turn: Turn) -> str:
    return "".join(part.text for part in turn.parts if isinstance(part, Text))


def _joined(role: str, texts: Sequence[str]) -> Turn:
    return Turn(role, (Text("\n\n".join(texts)),))


def _append(turn: Turn, text: str) -> Turn:
    if turn.listed:
        return evolve(turn, parts=(*turn.parts, Text(text)))
    return evolve(turn, parts=(Text(_text(turn) + text),))


def _prepend(turn: Turn, text: str) -> Turn:
    if turn.listed:
        return evolve(turn, parts=(Text(text), *turn.parts))
    return evolve(turn, parts=(Text(text + _text(turn)),))


def _flatten(turn: Turn, folding: Folding) -> Turn:
    parts = turn.parts
    if not folding.tool_text_parts:
        parts = tuple(_flat_result(part) for part in parts)
    has_media = any(not isinstance(part, Text | Reasoning | ToolCall | ToolResult) for part in parts)
    if folding.text_parts or has_media or turn.role == "tool":
        return evolve(turn, parts=parts)
    before = tuple(part for part in parts if isinstance(part, Reasoning))
    after = tuple(part for part in parts if isinstance(part, ToolCall))
    return evolve(turn, parts=(*before, Text(_text(turn)), *after), listed=False)


def _flat_result(part: Part) -> Part:
    if not isinstance(part, ToolResult) or any(not isinstance(inner, Text) for inner in part.parts):
        return part
    text = "".join(inner.text for inner in part.parts if isinstance(inner, Text))
    return evolve(part, parts=(Text(text),), listed=False)


def serve_defaults(conversation: Conversation, family: Family) -> Conversation:
    """Fill what the request leaves open with the family's serving defaults."""
    serve, thinking = family.serve, conversation.thinking
    enabled, effort, preserve = thinking.enabled, thinking.effort, thinking.preserve
    if enabled is None and effort is None:
        enabled, effort = serve.thinking, serve.effort if serve.thinking is not False else None
    on = enabled if enabled is not None else effort != "none"
    if preserve is None and serve.preserve_thinking is not None:
        preserve = not on if serve.preserve_thinking == "when_off" else serve.preserve_thinking
    return evolve(conversation, thinking=Thinking(enabled, effort, thinking.budget_tokens, preserve))


def check_continuation(conversation: Conversation) -> None:
    """Refuse to continue the trailing assistant turn where the result could not be read rightly.

    Raises:
        RequestError: tools are declared, the turn holds tool calls, it is the only turn, it has no text,
            or its text ends in white space.
    """
    last = len(conversation.turns) - 1
    turn = conversation.turns[last]

    def refuse(message: str, field: str) -> RequestError:
        return RequestError(message, where=Where(turn=last, field=field))

    if conversation.tools:
        raise RequestError(
            "a trailing assistant turn cannot be continued while tools are declared; drop `tools`",
            where=Where(field="tools"),
        )
    if any(isinstance(part, ToolCall) for part in turn.parts):
        raise refuse("an assistant turn with tool calls cannot be continued", "tool_calls")
    if last == 0:
        raise RequestError(
            "a conversation of one assistant turn cannot be continued; put a user turn before it",
            where=Where(field="messages"),
        )
    text = _text(turn)
    if not text:
        raise refuse("an assistant turn without text cannot be continued", "content")
    if text[-1].isspace():
        raise refuse("the turn to continue must not end in white space; strip it", "content")


def extend(
    render: Render,
    new_parser: NewParser,
    end_tokens: Sequence[str],
    prompt: Prompt,
    reply: str,
    turns: Sequence[Turn],
) -> Prompt | None:
    """The next prompt: `prompt`, the `reply` as sampled, then `turns` and a cue.

    The past is not rendered again: a short conversation of the same shape shows what the format writes
    between a reply and what follows, and whether it would rewrite that reply. None where it would, or
    where the prompt's conversation is not known. `end_tokens` are the spellings that close a turn.
    """
    conversation = prompt.conversation
    if conversation is None or conversation.open_last:
        return None
    parser = new_parser(conversation.tools, prompt)
    said = fold_events([*parser.feed(reply), *parser.finish("stop")])
    thought = bool(said.reasoning) or any(
        isinstance(part, Reasoning) for turn in conversation.turns for part in turn.parts
    )
    parts: list[Part] = [Reasoning("r")] if thought else []
    parts.append(Text("c" if said.content or not said.tool_calls else ""))
    parts += _under_their_ids(said.tool_calls, turns)
    opening = tuple(turn for turn in conversation.turns[:1] if turn.role == "system")
    probe = evolve(
        conversation, turns=(*opening, Turn("user", (Text("u"),)), Turn("assistant", tuple(parts)))
    )
    try:
        closed = render(probe, cue=False).text
        opened = render(evolve(probe, turns=probe.turns[:-1])).text
        following = render(evolve(probe, turns=(*probe.turns, *turns)))
    except RenderError:
        return None
    # The reply ends before its end token; formats without one continue where the turn ends.
    cut = max((closed.rfind(token, len(opened)) for token in end_tokens), default=-1)
    cut = len(closed) if cut < 0 else cut
    if not closed.startswith(opened) or not following.text.startswith(closed[:cut]):
        return None
    text = prompt.text + reply + following.text[cut:]

    def trace() -> tuple[Segment, ...]:
        sampled = Segment(len(prompt.text), len(prompt.text) + len(reply), "value", ("reply",), 0, None)
        shift = len(prompt.text) + len(reply) - cut
        tail = tuple(
            evolve(segment, start=max(segment.start, cut) + shift, end=segment.end + shift)
            for segment in following.segments
            if segment.end > cut
        )
        return (*prompt.segments, sampled, *tail)

    grown = evolve(conversation, turns=(*conversation.turns, probe.turns[-1], *turns))
    return Prompt(text, following.start, following.stop, trace, grown)


def _under_their_ids(calls: Sequence[ReplyCall], turns: Sequence[Turn]) -> list[ToolCall]:
    """Calls of a reply that was read again, under the ids by which the results in `turns` know them.

    Ids that the reply does not spell are made anew by every reading; then results are taken to be in the
    order of the calls.
    """
    own = [call.id for call in calls]
    told = [part.call_id for turn in turns for part in turn.parts if isinstance(part, ToolResult)]
    ids = told if len(told) == len(own) and not set(told) <= set(own) else own
    return [ToolCall(call.name, call.arguments, call_id) for call, call_id in zip(calls, ids, strict=True)]
