"""POST /v1/completions: raw text or token ids in, their continuation out, with log probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import define, field

from colibri.events import Event, Finished, TextDelta
from colibri.protocols.base import (
    Chunk,
    Offer,
    Request,
    Token,
    Usage,
    WireProtocol,
)
from colibri.protocols.fields import boolean, read, refuse, refused
from colibri.protocols.openai_errors import envelope, explain
from colibri.protocols.openai_logprobs import LegacyLogprobs, check_covered, check_recorded
from colibri.protocols.openai_messages import chosen_tool, declared_tools
from colibri.protocols.openai_options import delivery_options, generation_options, most_logprobs
from colibri.protocols.openai_replies import Heading, usage_object
from colibri.protocols.output_schema import check_content

__all__ = ["COMPLETIONS", "CompletionReply", "parse"]

_Raw: TypeAlias = str | tuple[int, ...]

_MAX_MEMBERS = 128
_MAX_BATCH_TOKENS = 65_536


def parse(body: Mapping[str, Any], offer: Offer) -> Request:
    """The request that `body` asks for.

    Raises:
        ColibriError: a field is malformed or not offered; `explain` says how to answer.
    """
    prompts = _prompts(body.get("prompt"), offer)
    chosen_tool(body, declared_tools(body))
    only_read = bool(body.get("echo") and body.get("logprobs"))
    options = generation_options(body, offer, least_tokens=0 if only_read else 1)
    logprobs, echo = _readout(body, offer)
    group_score = body.get("group_score")
    if group_score is not None and group_score is not False:
        refused("group_score", "by this server; leave it out", "unsupported_value")
    delivery = delivery_options(body, offer)
    if len(prompts) > 1:
        _check_batch(prompts, options, delivery)
    return Request(prompts=prompts, **options, logprobs=logprobs, echo=echo, **delivery)


def _prompts(value: Any, offer: Offer) -> tuple[_Raw, ...]:
    """One prompt, or the members of a batch; a batch of one is that prompt."""
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list) or not value:
        refuse("prompt", "a non-empty string, an array of strings, token ids, or an array of token id arrays")
    if all(type(item) is int for item in value):
        return (_token_ids("prompt", value, offer),)
    if len(value) > _MAX_MEMBERS:
        refuse("prompt", f"a batch of at most {_MAX_MEMBERS} members", "prompt_batch_cap_exceeded")
    kind: type[Any] = type(value[0])
    if kind not in (str, list) or any(type(item) is not kind for item in value):
        refuse("prompt", "an array of strings only, of token ids only, or of token id arrays only")
    return tuple(_member(f"prompt[{index}]", item, offer) for index, item in enumerate(value))


def _member(name: str, item: Any, offer: Offer) -> _Raw:
    if isinstance(item, str):
        if not item:
            refuse(name, "a non-empty string")
        return item
    return _token_ids(name, item, offer)


def _token_ids(name: str, value: list[Any], offer: Offer) -> tuple[int, ...]:
    if not value or any(type(item) is not int or not 0 <= item < 2**31 for item in value):
        refuse(name, "a non-empty array of token ids", "invalid_value")
    if not offer.token_ids:
        refused(name, "as token ids by this model's engine; send text")
    return tuple(value)


def _check_batch(prompts: Sequence[_Raw], options: Mapping[str, Any], delivery: Mapping[str, Any]) -> None:
    """Refuse a batch that is too large, or that asks for what only one prompt can have."""
    if delivery["stream"]:
        refuse("stream", "false for a batch of prompts", "unsupported_value")
    if options["choices"] != 1:
        refuse("n", "1 for a batch of prompts", "unsupported_value")
    size = sum(len(prompt.encode()) if isinstance(prompt, str) else len(prompt) for prompt in prompts)
    if size > _MAX_BATCH_TOKENS:
        refuse(
            "prompt",
            f"a batch of at most {_MAX_BATCH_TOKENS} tokens (or bytes of text) in all",
            "prompt_batch_token_budget_exceeded",
        )
    if len(prompts) * options["max_tokens"] > _MAX_BATCH_TOKENS:
        refuse(
            "max_tokens",
            f"at most {_MAX_BATCH_TOKENS // len(prompts)} for a batch of {len(prompts)} prompts",
            "batch_completion_budget_exceeded",
        )


def _readout(body: Mapping[str, Any], offer: Offer) -> tuple[int | None, bool]:
    """How many alternatives to show, and whether to return the prompt."""
    echo = read(body, {"echo": boolean}).get("echo", False)
    if body.get("top_logprobs") is not None:
        refused("top_logprobs", "by text completions; there `logprobs` is the number of alternatives")
    count = body.get("logprobs")
    if count is None or count is False:
        count = 0
    count = most_logprobs("logprobs", count, offer)
    if count and not offer.max_logprobs:
        refused("logprobs", "by this model's engine; leave it out")
    if echo and not count:
        refused("echo", "without `logprobs`: the echo is built of token records", "unsupported_parameter")
    if echo and not offer.echo:
        refused("echo", "by this model's engine, which reads out no prompt positions")
    return count or None, echo


@define
class _Text:
    """The text and token records of one choice so far.

    echoed, replied: whether there are records of its prompt, and of its reply.
    """

    logprobs: LegacyLogprobs | None
    text: list[str] = field(factory=list)
    arrays: dict[str, list[Any]] = field(factory=dict)
    echoed: bool = False
    replied: bool = False
    finish_reason: str | None = None

    def add(self, choice: Mapping[str, Any]) -> None:
        """Take a chunk's entry for this choice."""
        self.text.append(choice["text"])
        for name, values in (choice["logprobs"] or {}).items():
            self.arrays.setdefault(name, []).extend(values)
        self.finish_reason = choice["finish_reason"] or self.finish_reason


class CompletionReply:
    """Writes legacy completions; see `base.Reply`."""

    def __init__(self, request: Request, created: int) -> None:
        self._request = request
        self._head = Heading.new("cmpl-", "text_completion", request, created)
        self._texts = [
            _Text(None if request.logprobs is None else LegacyLogprobs(request.logprobs))
            for _ in range(len(request.prompts) * request.choices)
        ]

    def start(self) -> list[Chunk]:
        """Nothing: the first chunk already has text."""
        return []

    def feed(self, events: Sequence[Event], tokens: Sequence[Token] = (), choice: int = 0) -> list[Chunk]:
        """The chunks for the next events; a finish reason comes alone, in a last chunk.

        With the prompt echoed, a reply whose first token already ended it has one blank record: whoever
        scores a prompt by asking for one token more takes the last record for that token.
        """
        chunks = [self._chunk(choice, event.text) for event in events if isinstance(event, TextDelta)]
        text = self._texts[choice]
        if tokens and text.logprobs is not None:
            check_recorded(tokens)
            if not chunks:
                chunks.append(self._chunk(choice, ""))
            chunks[-1]["choices"][0]["logprobs"] = text.logprobs.arrays(tokens)
            text.replied = True
        finished = next((event for event in events if isinstance(event, Finished)), None)
        if finished is not None:
            reason = "length" if finished.reason == "length" else "stop"
            chunks.append(self._chunk(choice, "", reason))
            if text.logprobs is not None and text.echoed and not text.replied and self._request.max_tokens:
                chunks[-1]["choices"][0]["logprobs"] = text.logprobs.blank()
        for chunk in chunks:
            text.add(chunk["choices"][0])
        if finished is not None:
            self._check(text)
        return chunks

    def echo(self, tokens: Sequence[Token], choice: int = 0) -> list[Chunk]:
        """A chunk with the text of these prompt tokens."""
        text = self._texts[choice]
        text.echoed = True
        chunk = self._chunk(choice, "".join(token.text for token in tokens))
        if text.logprobs is not None:
            chunk["choices"][0]["logprobs"] = text.logprobs.arrays(tokens)
        text.add(chunk["choices"][0])
        return [chunk]

    def keepalive(self, progress: tuple[int, int] | None = None, mark: str = "") -> Chunk:
        """A chunk with no text, which clients skip."""
        return self._head.with_progress(self._chunk(0, mark), progress)

    def finish(self, usages: Sequence[Usage]) -> list[Chunk]:
        """The usage chunk, if the client wants one."""
        return self._head.usage_chunks(usages)

    def whole(self, usages: Sequence[Usage]) -> Chunk:
        """The `text_completion` object."""
        return {
            **self._head.fields,
            "choices": [
                {
                    "index": index,
                    "text": "".join(text.text),
                    "logprobs": None if text.logprobs is None else (text.arrays or text.logprobs.arrays(())),
                    "finish_reason": text.finish_reason,
                }
                for index, text in enumerate(self._texts)
            ],
            "usage": usage_object(usages, self._request.choices),
        }

    def _chunk(self, choice: int, text: str, finish_reason: str | None = None) -> Chunk:
        return self._head.chunk(
            {"index": choice, "text": text, "logprobs": None, "finish_reason": finish_reason}
        )

    def _check(self, text: _Text) -> None:
        """Hold a finished text to what the request asks of it."""
        request = self._request
        whole = "".join(text.text)
        if text.logprobs is not None:
            check_covered(whole, "".join(text.arrays.get("tokens", ())))
        if request.schema is not None and text.finish_reason == "stop":
            check_content(whole, request.schema)


COMPLETIONS = WireProtocol(
    name="openai_completions",
    parse=parse,
    reply=CompletionReply,
    error=explain,
    envelope=envelope,
    done="[DONE]",
)
