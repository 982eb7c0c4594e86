"""The chat completion, streamed or whole: events to deltas, and the message that they add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from colibri.conversation import Conversation, Text
from colibri.events import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallBroken,
    ToolCallDelta,
    ToolCallStart,
)
from colibri.protocols.base import Chunk, PromptInput, Request, Token, Usage, active_tools
from colibri.protocols.openai_logprobs import chat_entry, check_covered
from colibri.protocols.openai_replies import Heading, usage_object
from colibri.protocols.output_schema import check_content
from colibri.protocols.strict_tools import check_calls

__all__ = ["ChatReply", "fold_chunks"]


@define
class _Message:
    """The assistant message that the deltas of one choice add up to."""

    content: list[str] = field(factory=list)
    reasoning: list[str] = field(factory=list)
    calls: list[dict[str, Any]] = field(factory=list)
    logprobs: list[dict[str, Any]] | None = None
    finish_reason: str | None = None

    def add(self, choice: Mapping[str, Any]) -> None:
        """Take a chunk's entry for this choice."""
        delta = choice["delta"]
        if content := delta.get("content"):
            self.content.append(content)
        if reasoning := delta.get("reasoning_content"):
            self.reasoning.append(reasoning)
        for call in delta.get("tool_calls", ()):
            if "id" in call:
                self.calls.append({**call, "function": {**call["function"], "arguments": []}})
            self.calls[call["index"]]["function"]["arguments"].append(call["function"]["arguments"])
        if choice["logprobs"] is not None:
            self.logprobs = self.logprobs or []
            self.logprobs += choice["logprobs"]["content"]
        self.finish_reason = choice["finish_reason"] or self.finish_reason

    def text(self) -> str:
        """The content so far."""
        return "".join(self.content)

    def named_calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call so far."""
        return [(call["function"]["name"], "".join(call["function"]["arguments"])) for call in self.calls]

    def whole(self, index: int, null_content: bool) -> dict[str, Any]:
        """The choice of a whole reply; `null_content` makes null of an empty content."""
        message: dict[str, Any] = {
            "role": "assistant",
            "content": self.text() or (None if null_content or self.calls else ""),
            "refusal": None,
        }
        if self.reasoning:
            message["reasoning_content"] = "".join(self.reasoning)
        if self.calls:
            message["tool_calls"] = [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for call, (name, arguments) in zip(self.calls, self.named_calls(), strict=True)
            ]
        logprobs = None if self.logprobs is None else {"content": self.logprobs, "refusal": None}
        return {
            "index": index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": self.finish_reason,
        }


def fold_chunks(chunks: Sequence[Chunk], *, null_content: bool = False) -> list[dict[str, Any]]:
    """The choices of the whole reply that a stream's chunks amount to.

    `null_content` makes null of an empty content, as in replies to requests with tools.
    """
    messages: dict[int, _Message] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            messages.setdefault(choice["index"], _Message()).add(choice)
    return [message.whole(index, null_content) for index, message in sorted(messages.items())]


class ChatReply:
    """Writes chat completions; see `base.Reply`."""

    def __init__(self, request: Request, created: int) -> None:
        self._request = request
        self._head = Heading.new("chatcmpl-", "chat.completion.chunk", request, created)
        self._messages = [_Message() for _ in range(request.choices)]
        self._broken: list[str] = []
        self._tools = active_tools(request.prompts[0])
        self._continued = _open_text(request.prompts[0])
        if request.logprobs is not None:
            for message in self._messages:
                message.logprobs = []

    def start(self) -> list[Chunk]:
        """One chunk a choice that tells the role."""
        return [
            self._chunk(choice, {"role": "assistant", "content": ""})
            for choice in range(self._request.choices)
        ]

    def feed(self, events: Sequence[Event], tokens: Sequence[Token] = (), choice: int = 0) -> list[Chunk]:
        """The chunks for the next events; a finish reason comes alone, in a last chunk."""
        chunks: list[Chunk] = []
        finished: Finished | None = None
        for event in events:
            if isinstance(event, Finished):
                finished = event
            elif isinstance(event, ToolCallBroken):
                self._broken.append(event.reason)
            elif (delta := _delta(event)) is not None:
                chunks.append(self._chunk(choice, delta))
        if tokens:
            self._describe(chunks, tokens, choice)
        for chunk in chunks:
            self._messages[choice].add(chunk["choices"][0])
        if finished is not None:
            self._check(choice, finished)
            last = self._chunk(choice, {}, finished.reason)
            self._messages[choice].add(last["choices"][0])
            chunks.append(last)
        return chunks

    def echo(self, tokens: Sequence[Token], choice: int = 0) -> list[Chunk]:
        """Nothing: chat never returns its prompt."""
        return []

    def keepalive(self, progress: tuple[int, int] | None = None, mark: str = "") -> Chunk:
        """A reasoning delta, normally empty: every client counts it and none shows it."""
        return self._head.with_progress(self._chunk(0, {"reasoning_content": mark}), progress)

    def finish(self, usages: Sequence[Usage]) -> list[Chunk]:
        """The usage chunk, if the client wants one."""
        return self._head.usage_chunks(usages)

    def whole(self, usages: Sequence[Usage]) -> Chunk:
        """The `chat.completion` object."""
        return {
            **self._head.fields,
            "object": "chat.completion",
            "choices": [
                message.whole(index, bool(self._tools)) for index, message in enumerate(self._messages)
            ],
            "usage": usage_object(usages, self._request.choices),
        }

    def _chunk(self, choice: int, delta: dict[str, Any], finish_reason: str | None = None) -> Chunk:
        return self._head.chunk(
            {"index": choice, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        )

    def _describe(self, chunks: list[Chunk], tokens: Sequence[Token], choice: int) -> None:
        """Hang the tokens' entries on the last content chunk, or on an empty one of their own."""
        at = next((chunk for chunk in reversed(chunks) if "content" in chunk["choices"][0]["delta"]), None)
        if at is None:
            at = self._chunk(choice, {"content": ""})
            chunks.append(at)
        most = self._request.logprobs or 0
        at["choices"][0]["logprobs"] = {
            "content": [chat_entry(token, most) for token in tokens],
            "refusal": None,
        }

    def _check(self, choice: int, finished: Finished) -> None:
        """Hold a finished message to what the request asks of it."""
        message, request = self._messages[choice], self._request
        if request.strict_tool_calls:
            check_calls(message.named_calls(), self._broken, finished.reason, self._tools)
        if message.logprobs is not None:
            check_covered(message.text(), "".join(entry["token"] for entry in message.logprobs))
        if request.schema is not None and finished.reason == "stop" and not message.calls:
            check_content(self._continued + message.text(), request.schema)


def _open_text(prompt: PromptInput) -> str:
    """The text of the assistant turn that a reply continues."""
    if not isinstance(prompt, Conversation) or not prompt.open_last:
        return ""
    return "".join(part.text for part in prompt.turns[-1].parts if isinstance(part, Text))


def _delta(event: Event) -> dict[str, Any] | None:
    """The event as a delta; None for what a client is not told."""
    if isinstance(event, TextDelta):
        return {"content": event.text}
    if isinstance(event, ReasoningDelta):
        return {"reasoning_content": event.text}
    if isinstance(event, ToolCallDelta):
        call: dict[str, Any] = {"index": event.index, "function": {"arguments": event.arguments}}
        return {"tool_calls": [call]}
    if isinstance(event, ToolCallStart):
        call = {
            "index": event.index,
            "id": event.id,
            "type": "function",
            "function": {"name": event.name, "arguments": ""},
        }
        return {"tool_calls": [call]}
    return None
