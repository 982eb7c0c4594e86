"""What chat and completions replies share: the fields of every object, usage, keepalives."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from attrs import frozen

from colibri.protocols.base import Chunk, Request, Usage

__all__ = ["Heading", "usage_object"]


@frozen
class Heading:
    """The fields that every object of one reply begins with."""

    fields: dict[str, Any]
    include_usage: bool
    choices: int

    @classmethod
    def new(cls, prefix: str, kind: str, request: Request, created: int) -> Heading:
        """A heading with a fresh random id; `kind` is the type of the stream's chunks."""
        fields = {
            "id": prefix + secrets.token_hex(16),
            "object": kind,
            "created": created,
            "model": request.model,
        }
        return cls(fields, request.stream and request.include_usage, request.choices)

    def chunk(self, choice: dict[str, Any]) -> Chunk:
        """A chunk with one choice; where usage is wanted every chunk has the key."""
        if self.include_usage:
            return {**self.fields, "choices": [choice], "usage": None}
        return {**self.fields, "choices": [choice]}

    def with_progress(self, chunk: Chunk, progress: tuple[int, int] | None) -> Chunk:
        """The chunk with how far prefill is, under the key that llama.cpp's server uses."""
        if progress is not None:
            chunk["prompt_progress"] = {"processed": progress[0], "total": progress[1]}
        return chunk

    def usage_chunks(self, usages: Sequence[Usage]) -> list[Chunk]:
        """The last chunk of a stream, with usage and no choices; none where it is not wanted."""
        if not self.include_usage:
            return []
        return [{**self.fields, "choices": [], "usage": usage_object(usages, self.choices)}]


def usage_object(usages: Sequence[Usage], choices: int) -> dict[str, Any]:
    """The sum over all choices; the prompt of `choices` replies in a row is counted once."""
    prompt = sum(usage.prompt_tokens for usage in usages[::choices])
    completion = sum(usage.completion_tokens for usage in usages)
    counted: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(usage.cached_tokens for usage in usages[::choices])},
    }
    reasoning = [usage.reasoning_tokens for usage in usages if usage.reasoning_tokens is not None]
    if reasoning:
        counted["completion_tokens_details"] = {"reasoning_tokens": sum(reasoning)}
    return counted
