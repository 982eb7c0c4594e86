"""The internal model of a request: frozen values, free of any protocol's spelling.

A `Conversation` is what families render. It keeps every distinction that an official chat template can
see: the order and extra keys of tool declarations, whether content was null, a string or a list of
parts, and arguments as the JSON text they came in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from colibri.errors import ConversationError

__all__ = [
    "Conversation",
    "Media",
    "Part",
    "Reasoning",
    "Text",
    "Thinking",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "ToolResult",
    "Turn",
]


@frozen
class Text:
    """Words of whoever speaks in the turn."""

    text: str


@frozen
class Reasoning:
    """What the model thought before it answered; `signature` is opaque and only carried back."""

    text: str
    signature: str | None = None


@frozen
class Media:
    """An image or a sound: `data` is its URL or its base64 text, as the client sent it."""

    kind: Literal["image", "audio", "video"]
    media_type: str | None
    data: str


@frozen
class ToolCall:
    """A call of the assistant. `arguments` is JSON text exactly as it came."""

    name: str
    arguments: str
    id: str | None = None

    def decoded(self) -> Any:
        """The value that `arguments` spells, normally a dict.

        Raises:
            ConversationError: the text is not JSON.
        """
        try:
            return json.loads(self.arguments)
        except (ValueError, RecursionError) as error:
            raise ConversationError(
                f"the arguments of the call to {self.name!r} are not JSON ({error}); send one JSON object"
            ) from None


@frozen
class ToolResult:
    """What a tool answered: the id of the call, its parts, and the tool's name when the client told it.

    `listed` says that the client sent a list of parts rather than one string.
    """

    call_id: str | None
    parts: tuple[Text | Media, ...]
    name: str | None = None
    is_error: bool = False
    listed: bool = False


Part: TypeAlias = Text | Reasoning | Media | ToolCall | ToolResult


@frozen
class Turn:
    """One message: who speaks and what.

    `listed` says that the text came as a list of parts rather than one string; no Text part at all
    and not listed means that content was null or absent. `extra` holds message keys that some official
    template reads (`name`, a system message's `tools`).
    """

    role: str
    parts: tuple[Part, ...]
    listed: bool = False
    extra: Mapping[str, Any] = field(factory=dict)


@frozen
class Tool:
    """A declared function, exactly as the client spelled it: key order and extra keys reach the prompt.

    `declaration` is the whole OpenAI-shaped object, `{"type": "function", "function": {...}}`.
    """

    declaration: Mapping[str, Any]

    @property
    def function(self) -> Mapping[str, Any]:
        """The inner object with name, description and parameters."""
        inner = self.declaration.get("function", self.declaration)
        return inner if isinstance(inner, Mapping) else {}

    @property
    def name(self) -> str:
        """What the model calls it by."""
        return str(self.function.get("name", ""))

    @property
    def description(self) -> str:
        """What it does, in words; may be empty."""
        return str(self.function.get("description") or "")

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments; empty when none was given."""
        schema = self.function.get("parameters")
        return schema if isinstance(schema, Mapping) else {}

    @property
    def strict(self) -> bool:
        """Whether the client wants arguments constrained to the schema."""
        return self.function.get("strict") is True


@frozen
class ToolChoice:
    """Whether the model may, must or must not call: `tool` forces the one called `name`."""

    mode: Literal["auto", "none", "required", "tool"]
    name: str | None = None


@frozen
class Thinking:
    """How much to reason; None leaves the variant's own default.

    `effort` is one of the names none, minimal, low, medium, high, xhigh, max; `preserve` keeps the
    reasoning of past turns in the prompt.
    """

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    preserve: bool | None = None


@frozen
class Conversation:
    """Everything a family needs to write a prompt.

    `open_last` leaves the trailing assistant turn open so that the model continues it. `options` are
    keyword arguments of the official template, passed as they are; they win over `thinking`.
    """

    turns: tuple[Turn, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    thinking: Thinking = Thinking()
    open_last: bool = False
    options: Mapping[str, Any] = field(factory=dict)
