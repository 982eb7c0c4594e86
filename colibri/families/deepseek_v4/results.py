"""DeepSeek's encoder writes tool results in the order of their calls, whatever order they came in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["in_call_order"]

Message = dict[str, Any]


def in_call_order(messages: list[Message], variables: Mapping[str, Any]) -> list[Message]:
    """Sort the tool results of every user turn by the last assistant's calls; other messages stay.

    Results and user texts up to the next turn share one user turn; results change places among
    themselves only. A result without a known call counts as one for the first call.
    """
    ordered = list(messages)
    order: dict[str, int] = {}
    run: list[int] = []
    for index, message in enumerate([*messages, {"role": ""}]):
        if message["role"] == "tool":
            run.append(index)
        elif message["role"] != "user" and run:
            results = sorted(
                (messages[at] for at in run), key=lambda m: order.get(m.get("tool_call_id", ""), 0)
            )
            for at, result in zip(run, results, strict=True):
                ordered[at] = result
            run = []
        if message["role"] == "assistant" and message.get("tool_calls"):
            calls = message["tool_calls"]
            order = {call.get("id"): number for number, call in enumerate(calls) if call.get("id")}
    return ordered
