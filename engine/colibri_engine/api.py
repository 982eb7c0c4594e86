"""The engine interface: text or token ids in, pieces of bytes out.

An engine knows nothing of roles, families or HTTP. Implementations are `local` (this process),
`process` (a program speaking the serve line protocol) and `remote`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from attrs import field, frozen

__all__ = [
    "Accepted",
    "Candidate",
    "Capabilities",
    "Done",
    "Echo",
    "Engine",
    "EngineEvent",
    "GrammarKind",
    "Job",
    "Piece",
    "Progress",
    "SamplingParams",
    "Score",
]

GrammarKind: TypeAlias = Literal["json_schema", "regex", "lark"]


@frozen
class SamplingParams:
    """How the next token is chosen.

    temperature: 0 is greedy; top_p in (0, 1]; top_k 0 is off; min_p in [0, 1]; seed None draws one.
    Penalties are the OpenAI ones (-2..2) and llama.cpp's repetition penalty (1 is off). `logit_bias`
    maps token id to an additive bias.
    """

    temperature: float = 0.7
    top_p: float = 0.9
    top_k: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(factory=dict)


@frozen
class Job:
    """One generation.

    prompt: the exact text, or token ids. `trusted` lists half-open character spans of a text prompt in
    which special-token spellings stand for the special tokens; None means everywhere.
    max_tokens: a ceiling; the engine clamps it to the room its context has. 0 only reads the prompt.
    logprobs: how many candidates to report per token at least, None for no log probabilities at all; `echo`
    reports the prompt's tokens too, from position `echo_from` on; what lies before that is not run again
    if the engine remembers it. slot: the KV slot to use, None for any. pin: keep the prompt in memory, when
    it is read, for other prompts that begin with it.
    grammar: (kind, text) with kind "json_schema", "regex" or "lark" to constrain the reply.
    """

    prompt: str | Sequence[int]
    max_tokens: int
    trusted: Sequence[tuple[int, int]] | None = None
    sampling: SamplingParams = SamplingParams()
    stop_token_ids: Sequence[int] = ()
    logprobs: int | None = None
    echo: bool = False
    echo_from: int = 0
    slot: int | None = None
    pin: bool = False
    grammar: tuple[GrammarKind, str] | None = None


@frozen
class Candidate:
    """One alternative at a position; `data` is None when the engine cannot spell it."""

    token_id: int
    logprob: float
    data: bytes | None = None


@frozen
class Accepted:
    """The prompt fits and the job has a slot; `cached_tokens` of it need no prefill."""

    prompt_tokens: int
    cached_tokens: int = 0


@frozen
class Progress:
    """Prefill progress: `done` of `total` prompt tokens."""

    done: int
    total: int


@frozen
class Echo:
    """One prompt position, for jobs with `echo`; `logprob` is None at position 0.

    `token_id` is None when the engine does not tell.
    """

    position: int
    data: bytes
    token_id: int | None
    logprob: float | None
    top: tuple[Candidate, ...] = ()


@frozen
class Piece:
    """One generated token: its bytes, which may be part of a code point.

    `control` is True for an authentic control token, False for ordinary text, None when the engine
    cannot tell. `logprob` is None if there is none, and nan if it is no number.
    """

    data: bytes
    token_id: int | None = None
    control: bool | None = None
    logprob: float | None = None
    top: tuple[Candidate, ...] = ()


@frozen
class Done:
    """The generation is over: `stop` (an end token), `length` (a limit) or `cancelled`."""

    reason: Literal["stop", "length", "cancelled"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0


@frozen
class Score:
    """How probable a model holds a text after another: the log probability of each of its tokens.

    token_ids: None for tokens whose id the engine does not tell.
    """

    token_ids: tuple[int | None, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """The log probability of the whole."""
        return math.fsum(self.logprobs)


EngineEvent: TypeAlias = Accepted | Progress | Echo | Piece | Done


@frozen
class Capabilities:
    """What an engine can do; what is absent here must be refused before a job is made.

    slots: jobs at a time. pins: how many pinned prompts it keeps at most. copies_prefixes: a prompt begins
    with whatever slot holds its beginning, not only with its own.
    """

    context_length: int
    slots: int = 1
    pins: int = 0
    max_logprobs: int = 0
    echo: bool = False
    token_ids: bool = False
    tokenize: bool = False
    candidates_spelled: bool = False
    copies_prefixes: bool = False
    sampling: frozenset[str] = frozenset({"temperature", "top_p"})
    grammars: frozenset[str] = frozenset()
    media: frozenset[str] = frozenset()


class Engine(Protocol):
    """A model that is loaded and can generate."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do; constant while it is open."""
        ...

    def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        """Yield Accepted, then Progress, Echo and Piece events, then one Done.

        Closing the generator (`aclose`) cancels the job.

        Raises:
            EngineError: see `colibri_engine.errors`; `ContextLengthExceeded` comes before Accepted.
        """
        ...

    async def score(
        self,
        prefix: str | Sequence[int],
        options: Sequence[str | Sequence[int]],
        *,
        trusted: Sequence[tuple[int, int]] | None = None,
        slot: int | None = None,
        pin: bool = False,
    ) -> list[Score]:
        """The log probability of each option's tokens after the prefix, which is read once.

        All are texts, or all are token ids. Texts are tokenized together with the prefix, and what exceeds
        the prefix's number of tokens is the option's; let an option begin where a token does. trusted:
        where the prefix spells control tokens, None everywhere; an option never does. slot: the slot that
        does the work, so that no other forgets anything; None takes all that are free. pin: see `Job`.

        Raises:
            JobError: the engine cannot do that, or as `generate`.
            EngineFailed: as `generate`.
        """
        ...

    async def tokenize(self, text: str, trusted: Sequence[tuple[int, int]] | None = None) -> list[int]:
        """The token ids of `text`; special-token spellings are recognised in spans `trusted`, see `Job`."""
        ...

    async def detokenize(self, token_ids: Sequence[int]) -> bytes:
        """The bytes that these tokens stand for."""
        ...

    async def stats(self) -> Mapping[str, Any]:
        """Counters for /metrics and /health: numbers by name."""
        ...

    async def close(self) -> None:
        """End all jobs and free the model; a second call does nothing."""
        ...
