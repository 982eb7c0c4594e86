"""A model family as one frozen value: how its prompt is written and how its reply is read.

A `Family` is built from data by `colibri.loading`; nobody subclasses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from attrs import Factory, define, field, frozen

from colibri.conversation import Conversation, Tool, Turn
from colibri.events import Event

if TYPE_CHECKING:
    from colibri.grammar import Grammar
    from colibri.provenance import Segment
    from colibri.templates import ChatTemplate

__all__ = [
    "Effort",
    "Family",
    "Features",
    "Folding",
    "Identity",
    "ParserLike",
    "Prompt",
    "Serve",
    "Start",
    "Stops",
]

Start: TypeAlias = Literal["reasoning", "text"] | None
Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


def _no_segments() -> tuple[Segment, ...]:
    return ()


@define(frozen=True, slots=False)
class Prompt:
    """An exact prompt.

    text: what the model reads. start: where its reply begins, inside "reasoning", inside "text", or
    None when the reply opens its own. stop: strings that end the turn, beside the end tokens.
    """

    text: str
    start: Start = None
    stop: tuple[str, ...] = ()
    _trace: Callable[[], tuple[Segment, ...]] = field(default=_no_segments, eq=False, repr=False)
    conversation: Conversation | None = field(default=None, eq=False, repr=False)

    @cached_property
    def segments(self) -> tuple[Segment, ...]:
        """Who wrote each character: the format, or which turn and part. Computed when first read."""
        return self._trace()


class ParserLike(Protocol):
    """Reads one reply, piece by piece."""

    def feed(self, text: str, control: bool | None = None) -> list[Event]:
        """Take the next characters.

        `control` says that they are one authentic control token (True), ordinary text (False), or that
        the engine cannot tell (None).
        """
        ...

    def finish(self, reason: str) -> list[Event]:
        """End the reply: `reason` is "stop" or "length"."""
        ...


class Render(Protocol):
    """Write a conversation's exact prompt, byte for byte the official template's; pure.

    `cue=False` leaves the generation cue off. What the conversation leaves open, such as thinking, is as the
    template has it; `colibri.generation.prepare` fills in a server's defaults.

    Raises:
        RenderError: the format refuses the conversation.
        RequestError: a thinking level is unknown.
    """

    def __call__(self, conversation: Conversation, cue: bool = True) -> Prompt: ...


class NewParser(Protocol):
    """A parser for one reply: `feed` it pieces of any size, then `finish`; it never raises on what it reads.

    tools: those the request declares; without any, nothing is a call. prompt: what is replied to, which
    tells where the reply begins; start: the same where the prompt is not at hand. salvage: make an argument
    of what an unreadable call holds. The text is read without the end token.
    """

    def __call__(
        self,
        tools: Sequence[Tool] = (),
        prompt: Prompt | None = None,
        start: Start = None,
        *,
        salvage: bool = False,
    ) -> ParserLike: ...


class Extend(Protocol):
    """The next prompt: `prompt`, the `reply` as it was sampled, then `turns` and a cue.

    None where the format rewrites the past, so that the conversation has to be rendered again.
    """

    def __call__(self, prompt: Prompt, reply: str, turns: Sequence[Turn]) -> Prompt | None: ...


@frozen
class Identity:
    """How a checkpoint is recognised as this family's.

    model_types: values of config.json's model_type (or a GGUF's general.architecture), lower case.
    template_hashes: SHA-256 of official chat templates. template_marks: texts that all occur in the
    official template and, together, in no other one. `needs_template` families never claim a checkpoint
    by model type alone.
    """

    model_types: tuple[str, ...] = ()
    template_hashes: frozenset[str] = frozenset()
    template_marks: tuple[str, ...] = ()
    template_absent: tuple[str, ...] = ()
    needs_template: bool = False


@frozen
class Stops:
    """What ends a turn.

    strings: stop sequences that the server applies when the client sends none; `patient` ones are
    ignored while only white space precedes them. tokens: spellings of the end tokens, which never reach
    the reply; token_ids: their ids in the official vocabulary, for engines without a tokenizer.
    """

    strings: tuple[str, ...] = ()
    patient: bool = False
    tokens: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()


@frozen
class Features:
    """What a variant offers.

    tools: the format has tool calls; tools_served: the server offers them. thinking: "none", "switch" (can
    be turned off) or "always"; efforts: levels it distinguishes, in rising order. forced_tool: what a
    forced tool does to the prompt. media: kinds of input beside text. prefix_stable: whether the prompt
    of the next user turn starts with this prompt and its reply: always, never, or when past reasoning is
    preserved.
    """

    tools: bool = False
    tools_served: bool = False
    thinking: Literal["none", "switch", "always"] = "none"
    efforts: tuple[str, ...] = ()
    preserve_thinking: bool = False
    roles: tuple[str, ...] = ("system", "user", "assistant")
    forced_tool: Literal["narrow", "narrow+line", "message", "ignored"] = "ignored"
    media: tuple[str, ...] = ()
    prefix_stable: Literal["always", "never", "preserved"] = "never"


@frozen
class Folding:
    """What the server rewrites before rendering because the official format has no place for it.

    late_system: system turns after the first place are legal. text_parts: user and assistant turns may
    be lists of text parts; tool_text_parts: so may tool results. bare_tools: a tool needs no description.
    """

    late_system: bool = True
    text_parts: bool = True
    tool_text_parts: bool = True
    bare_tools: bool = True


@frozen
class Serve:
    """The server's defaults where they differ from the official template's; None leaves those.

    model_id: the name clients use for the model; None is the family's id.
    """

    model_id: str | None = None
    thinking: bool | None = None
    effort: str | None = None
    preserve_thinking: bool | Literal["when_off"] | None = None
    sampling: Mapping[str, float] = Factory(dict)


@frozen
class Family:
    """One variant of a model family.

    `render(conversation, cue=True)` writes the prompt, `new_parser(tools=(), prompt=None, start=None)` reads
    a reply to it, `extend(prompt, reply, turns)` is the next prompt built on the text already sampled:
    `help(Family.render)` and so on say more.
    `network(config, tensors)` gives the engine's ArchSpec, or None when only other engines can run it.
    `control_tokens` are all spellings by which the format steers the model: those of the reply's grammar,
    the end tokens, and what else the template writes (`prompt.control_tokens` of the family's file).
    `tool_grammar` is that of replies which may call, where it is another.
    """

    id: str
    title: str
    identity: Identity
    stops: Stops
    features: Features
    folding: Folding
    serve: Serve
    grammar: Grammar = field(repr=False)
    template: ChatTemplate = field(repr=False)
    render: Render = field(repr=False)
    new_parser: NewParser = field(repr=False)
    extend: Extend = field(repr=False)
    network: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = field(default=None, repr=False)
    control_tokens: tuple[str, ...] = field(default=(), repr=False)
    tool_grammar: Grammar | None = field(default=None, repr=False)

    def reply_grammar(self, tools: Sequence[Tool]) -> Grammar:
        """How replies are written when these tools may be called."""
        return self.tool_grammar or self.grammar if tools else self.grammar

    @property
    def served_as(self) -> str:
        """The name clients use for it unless the operator gives another."""
        return self.serve.model_id or self.id

    @property
    def model_types(self) -> tuple[str, ...]:
        """Values of model_type that this family may serve."""
        return self.identity.model_types


# Where help() looks for what an attribute of a slotted class means.
_CALLED = {"render": Render.__doc__, "new_parser": NewParser.__doc__, "extend": Extend.__doc__}
Family.__slots__ = {**dict.fromkeys(Family.__slots__), **_CALLED}  # type: ignore[attr-defined]
