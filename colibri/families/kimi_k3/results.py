"""Kimi K3 names every tool result by its tool and its call's number, and sorts results by call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colibri.errors import RenderError, Where

__all__ = ["named_results"]

Message = dict[str, Any]


def named_results(messages: list[Message], variables: Mapping[str, Any]) -> list[Message]:
    """Give tool messages `tool_name` and `tool_index`, in call order where every id tells its call.

    Raises:
        RenderError: a result belongs to no call, by id or by position, and names no tool itself.
    """
    written: list[Message] = []
    run: list[tuple[int, Message]] = []
    calls: list[Mapping[str, Any]] = []
    for number, message in enumerate(messages):
        if message["role"] == "tool":
            run.append((number, message))
            continue
        written += _named(run, calls)
        run = []
        if message["role"] == "assistant":
            calls = list(message.get("tool_calls") or ())
        written.append(message)
    return [*written, *_named(run, calls)]


def _named(run: list[tuple[int, Message]], calls: list[Mapping[str, Any]]) -> Iterator[Message]:
    places = {call["id"]: place for place, call in enumerate(calls) if call.get("id")}
    if all(message.get("tool_call_id") in places for _, message in run):
        run = sorted(run, key=lambda item: places[item[1]["tool_call_id"]])
    for position, (number, message) in enumerate(run):
        place = places.get(message.get("tool_call_id", ""), position)
        name = calls[place]["function"]["name"] if place < len(calls) else message.get("name")
        if not name:
            raise RenderError(
                "this result answers no call of the turn before and names no tool; give it the call's id",
                where=Where(turn=number),
            )
        yield message | {"tool_name": name, "tool_index": place + 1}
