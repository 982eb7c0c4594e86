"""What every protocol shares: the request it parses to, the reply it writes, the error it answers.

A protocol does no IO and knows neither engine nor family. What they can do reaches it as an `Offer`,
what they said as events and `Token` records; everything it returns is plain data for a server to send.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from attrs import Factory, frozen

from colibri.conversation import Conversation, Tool, ToolChoice
from colibri.errors import ColibriError
from colibri.events import Event

__all__ = [
    "Alternative",
    "Chunk",
    "Explain",
    "Offer",
    "PromptInput",
    "ProtocolError",
    "Reply",
    "Request",
    "Sampling",
    "Token",
    "Usage",
    "WireError",
    "WireProtocol",
    "active_tools",
]

PromptInput: TypeAlias = Conversation | str | tuple[int, ...]
"""What the model reads: a conversation to render, the exact text, or token ids."""

Chunk: TypeAlias = dict[str, Any]
"""One JSON object of a stream."""


def active_tools(prompt: PromptInput) -> tuple[Tool, ...]:
    """The tools that the model may call."""
    if not isinstance(prompt, Conversation) or prompt.tool_choice == ToolChoice("none"):
        return ()
    return prompt.tools


@frozen
class Offer:
    """What the server offers for its model: what family, engine and settings allow together.

    model: the served id. max_tokens: the ceiling of one reply; default_tokens: the budget of a request that
    names none, the ceiling if None. slots: KV slots that `cache_slot` may name. sampling: names of the
    `Sampling` fields that the engine honours. max_choices: the largest `n`. max_logprobs: the largest
    number of alternatives a position; 0 is no log probabilities at all. echo: the engine reads out prompt
    positions. token_ids: it takes token ids as a prompt. media: kinds of input beside text that family and
    engine both take. tools: tool declarations are served; tools_in_words: the operator could have them
    served in words. efforts: effort levels of the variant beyond the common ones. continue_assistant: a
    trailing assistant message is continued.
    """

    model: str
    max_tokens: int = 1024
    default_tokens: int | None = None
    slots: int = 1
    sampling: frozenset[str] = frozenset({"temperature", "top_p"})
    max_choices: int = 1
    max_logprobs: int = 0
    echo: bool = False
    token_ids: bool = False
    media: frozenset[str] = frozenset()
    tools: bool = False
    tools_in_words: bool = False
    efforts: tuple[str, ...] = ()
    continue_assistant: bool = True


@frozen
class Sampling:
    """How the client wants tokens chosen; None is what it left out. Ranges as in `SamplingParams`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[int, float] | None = None


@frozen
class Request:
    """One request, checked and free of its protocol's spelling.

    prompts: one, or a batch in which all or none are answered. choices: how many replies to each prompt;
    reply `c` of prompt `p` is choice `p * choices + c`. max_tokens: at most the offer's; 0 only reads the
    prompt. stop: None when the client sent none, so that a family's own stops apply to conversations.
    logprobs: how many alternatives to show at each position (0 shows only the token's own value), None
    for no log probabilities. echo: return the prompt before the reply. schema: JSON schema that the
    content must fit. cache_slot pins a KV slot; `affinity` names the conversation, a mere preference.
    ignore_leading_stop: discard stop sequences before the first character that is not white space.
    strict_tool_calls: refuse a reply whose calls do not match their declarations.
    """

    model: str
    prompts: tuple[PromptInput, ...]
    max_tokens: int
    choices: int = 1
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_leading_stop: bool = False
    stream: bool = False
    include_usage: bool = False
    logprobs: int | None = None
    echo: bool = False
    schema: Mapping[str, Any] | None = None
    strict_tool_calls: bool = False
    cache_slot: int | None = None
    affinity: str | None = None


@frozen
class Usage:
    """Token counts of one generation; `cached_tokens` of the prompt needed no prefill."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int | None = None


class Alternative(Protocol):
    """One candidate at a position."""

    @property
    def token_id(self) -> int:
        """Its id in the vocabulary."""
        ...

    @property
    def logprob(self) -> float:
        """Natural logarithm of its probability."""
        ...

    @property
    def data(self) -> bytes | None:
        """Its bytes, if the engine can spell them."""
        ...


class Token(Protocol):
    """One token of the returned text, located in it by the pipeline.

    Its bytes may be part of a code point, whose character then belongs to the token that completes it.
    """

    @property
    def text(self) -> str:
        """Its characters that the client receives."""
        ...

    @property
    def data(self) -> bytes:
        """The engine's bytes for it."""
        ...

    @property
    def token_id(self) -> int | None:
        """Its id, if the engine tells."""
        ...

    @property
    def logprob(self) -> float | None:
        """Natural logarithm of its probability; None at the prompt's first position."""
        ...

    @property
    def top(self) -> Sequence[Alternative]:
        """Candidates at its position, in the engine's order."""
        ...

    @property
    def cut(self) -> bool:
        """Whether `text` lacks some of its characters."""
        ...


@frozen
class WireError:
    """An error as a client sees it; every protocol wraps it in its own envelope."""

    status: int
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = Factory(dict)


class ProtocolError(ColibriError):
    """A refusal that already knows its status, parameter and code."""

    def __init__(self, wire: WireError) -> None:
        super().__init__(wire.message)
        self.wire = wire

    @classmethod
    def bad(cls, message: str, param: str | None = None, code: str | None = "invalid_value") -> ProtocolError:
        """A 400: `message` is a whole sentence that names the field."""
        return cls(WireError(400, message, param=param, code=code))


class Reply(Protocol):
    """Writes one reply. Every list holds JSON objects in the order in which a stream sends them.

    A whole reply is the fold of the stream, so it is fed in the same way: `start`, `feed` until each
    choice has had its `Finished`, then `finish` in a stream or `whole` otherwise.
    """

    def start(self) -> list[Chunk]:
        """What opens the stream, once the engine has accepted the prompt."""
        ...

    def feed(self, events: Sequence[Event], tokens: Sequence[Token] = (), choice: int = 0) -> list[Chunk]:
        """The next events of one choice, with the tokens of the returned text that are settled by now.

        Raises:
            ProtocolError: the finished reply does not keep what the request asks of it.
        """
        ...

    def echo(self, tokens: Sequence[Token], choice: int = 0) -> list[Chunk]:
        """Tokens of the prompt, for requests with `echo`, before the choice's first `feed`."""
        ...

    def keepalive(self, progress: tuple[int, int] | None = None, mark: str = "") -> Chunk:
        """A chunk without content that clients count as a sign of life.

        `progress` is how many prompt tokens of how many are read; `mark` makes it visible.
        """
        ...

    def finish(self, usages: Sequence[Usage]) -> list[Chunk]:
        """What ends the stream; one usage a choice."""
        ...

    def whole(self, usages: Sequence[Usage]) -> Chunk:
        """The reply as one object; one usage a choice."""
        ...


class Explain(Protocol):
    """Turns any exception into what the client is told.

    `request` is None while there is none yet; `choice` says whose generation failed.
    """

    def __call__(self, error: BaseException, request: Request | None = None, choice: int = 0) -> WireError:
        """The error to answer with; it never raises."""
        ...


@frozen
class WireProtocol:
    """A protocol as a value, so that a server handles all of them in one way.

    parse: body and offer to a request. reply: request and creation time (Unix seconds) to a `Reply`.
    error: any exception to what the client is told; envelope: that as a JSON object. named_events: SSE
    frames carry the chunk's `type` as their event name. done: the data of a last SSE frame.
    """

    name: Literal["openai_chat", "openai_completions", "openai_responses", "anthropic_messages"]
    parse: Callable[[Mapping[str, Any], Offer], Request]
    reply: Callable[[Request, int], Reply]
    error: Explain
    envelope: Callable[[WireError], Chunk]
    named_events: bool = False
    done: str | None = None
