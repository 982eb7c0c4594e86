"""What a request becomes for the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from attrs import asdict, evolve, frozen

from colibri.constraint import reply_constraint
from colibri.control_tokens import find_control_tokens
from colibri.conversation import Conversation, Text, Turn
from colibri.errors import ColibriError, RequestError
from colibri.family import ParserLike, Prompt
from colibri.generation import PlainParser, prepare
from colibri.grammar import Grammar
from colibri.pipeline import ReplyStream
from colibri.protocols.base import PromptInput, Request, active_tools
from colibri.provenance import Span, trusted_spans
from colibri.rendering import reply_tail
from colibri.server.served import Served
from colibri_engine.api import GrammarKind, Job, SamplingParams

__all__ = ["Member", "constrained", "job_for", "warm"]


@frozen
class Member:
    """One prompt of a request.

    text: what the engine reads. trusted: where spellings of control tokens are real, None everywhere.
    prompt: how the conversation was rendered. grammar: what the reply is held to while it is generated.
    """

    text: str | tuple[int, ...]
    trusted: tuple[Span, ...] | None = None
    prompt: Prompt | None = None
    conversation: Conversation | None = None
    grammar: tuple[GrammarKind, str] | None = None

    @classmethod
    def of(cls, served: Served, given: PromptInput) -> Member:
        """The prompt as the engine reads it.

        Raises:
            ColibriError: the family's format refuses the conversation, or it spells a control token and
                the settings refuse that.
        """
        if not isinstance(given, Conversation):
            return cls(given)
        if served.settings.control_tokens == "refuse":
            _refuse_control_tokens(served, given)
        prompt = prepare(served.family, given)
        return cls(prompt.text, trusted_spans(prompt.segments), prompt, given)

    def held(self, served: Served, request: Request, token_ids: Mapping[str, int]) -> Member:
        """The same with what its reply is held to; see `constrained` for when that takes a while.

        token_ids: see `special_ids`.
        """
        if self.prompt is None or self.conversation is None:
            return evolve(self, grammar=_json(served, request.schema))
        grammar = _grammar(served, request.schema, self.conversation, self.prompt, token_ids)
        return evolve(self, grammar=grammar)

    def stream(self, served: Served, request: Request) -> ReplyStream:
        """What reads one reply to it. A family's own stops hold where the client names none."""
        family, stops, patient = served.family, request.stop, request.ignore_leading_stop
        parser: ParserLike = PlainParser()
        if self.prompt is not None and self.conversation is not None:
            parser = family.new_parser(
                active_tools(self.conversation), self.prompt, salvage=served.settings.tool_salvage
            )
            if stops is None:
                stops, patient = self.prompt.stop, patient or family.stops.patient
        return ReplyStream(parser, stops=stops or (), patient=patient, tokens=request.logprobs is not None)


def _refuse_control_tokens(served: Served, conversation: Conversation) -> None:
    for found in find_control_tokens(conversation, served.family):
        raise RequestError(
            f"{found.where} spells the control token {found.token!r} of the model's format, which this"
            " server refuses; write it otherwise",
            where=found.where,
        )


def warm(served: Served) -> None:
    """Render once, so that the first request need not wait for its template to be compiled."""
    with suppress(ColibriError):
        Member.of(served, Conversation(turns=(Turn("user", (Text("Hello"),)),)))


def constrained(request: Request) -> bool:
    """Whether a grammar of its replies may be wanted, which takes a while to write."""
    given = [prompt for prompt in request.prompts if isinstance(prompt, Conversation)]
    return request.schema is not None or any(tool.strict for prompt in given for tool in prompt.tools)


def job_for(served: Served, request: Request, member: Member, slot: int, choice: int = 0) -> Job:
    """Reply number `choice` to `member`, in the KV slot that the request holds."""
    return Job(
        prompt=member.text,
        max_tokens=request.max_tokens,
        trusted=member.trusted,
        sampling=_sampling(served, request, choice),
        stop_token_ids=request.stop_token_ids,
        logprobs=request.logprobs,
        echo=request.echo,
        slot=slot,
        grammar=member.grammar,
    )


def _sampling(served: Served, request: Request, choice: int) -> SamplingParams:
    """The request's wishes over the operator's over the family's, as far as the engine honours them.

    Several choices with one seed differ all the same, and repeatably.
    """
    settings = served.settings
    layers: tuple[Mapping[str, Any], ...] = (
        served.family.serve.sampling,
        {"temperature": settings.temperature, "top_p": settings.top_p},
        asdict(request.sampling, recurse=False),
    )
    honoured = served.engine.capabilities.sampling
    values: dict[str, Any] = {}
    for layer in layers:
        values |= {name: value for name, value in layer.items() if value is not None and name in honoured}
    if "seed" in values:
        values["seed"] += choice
    return SamplingParams(**values)


def _grammar(
    served: Served,
    schema: Mapping[str, Any] | None,
    conversation: Conversation,
    prompt: Prompt,
    token_ids: Mapping[str, int],
) -> tuple[GrammarKind, str] | None:
    """What the reply is held to while it is generated: a wanted schema, strict declarations of tools.

    None where nothing is wanted, and where the engine, or a grammar of the family's format, cannot say it;
    the finished reply is looked at in any case.
    """
    tools = active_tools(conversation)
    if conversation.open_last or not all(tool.strict for tool in tools) or (schema is None and not tools):
        return None
    grammar = served.family.reply_grammar(tools)
    if schema is not None and not tools and _only_content(grammar, prompt):
        return _json(served, schema)
    if "lark" not in served.engine.capabilities.grammars:
        return None
    state = grammar.state_behind(reply_tail(prompt.text, grammar) or "")
    text = reply_constraint(grammar, state, token_ids=token_ids, schema=schema, tools=tools)
    return None if text is None else ("lark", text)


def _json(served: Served, schema: Mapping[str, Any] | None) -> tuple[GrammarKind, str] | None:
    """Nothing but JSON of the schema."""
    if schema is None or "json_schema" not in served.engine.capabilities.grammars:
        return None
    return "json_schema", json.dumps(schema)


def _only_content(grammar: Grammar, prompt: Prompt) -> bool:
    """Whether the first token of the reply is content, neither reasoning nor a marker of the format."""
    return prompt.start == "text" or (prompt.start is None and grammar.states[grammar.begin].slot == "text")
