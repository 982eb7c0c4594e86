"""How probable texts are after a common prefix, which is read once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from attrs import evolve

from .api import Accepted, Done, Echo, Engine, Job, Score
from .echoes import EchoOrder
from .errors import EngineFailed, JobError

__all__ = ["Scoring"]


class Scoring:
    """Gives an engine its `score`, made of what it generates."""

    async def score(
        self: Engine,
        prefix: str | Sequence[int],
        options: Sequence[str | Sequence[int]],
        *,
        trusted: Sequence[tuple[int, int]] | None = None,
        slot: int | None = None,
        pin: bool = False,
    ) -> list[Score]:
        """See `Engine.score`."""
        able = self.capabilities
        if not (able.echo and able.max_logprobs):
            raise JobError("score: this engine does not tell the log probabilities of a prompt")
        prompts = [_joined(prefix, option) for option in options]
        if trusted is None and isinstance(prefix, str):
            trusted = ((0, len(prefix)),)
        length = 0
        async for event in self.generate(Job(prefix, 0, trusted=trusted, logprobs=1, slot=slot, pin=pin)):
            if isinstance(event, Accepted):
                length = event.prompt_tokens
        job = Job(prefix, 0, trusted=trusted, logprobs=1, echo=True, echo_from=length, slot=slot)
        tasks = [asyncio.create_task(_score(self, evolve(job, prompt=prompt))) for prompt in prompts]
        try:
            scores = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for option, found in zip(options, scores, strict=True):
            if option and not found.logprobs:
                raise JobError(f"score: {option!r:.40} melts into the prefix's last token")
        return scores


def _joined(prefix: str | Sequence[int], option: str | Sequence[int]) -> str | tuple[int, ...]:
    if isinstance(prefix, str) and isinstance(option, str):
        return prefix + option
    if isinstance(prefix, str) or isinstance(option, str):
        raise JobError("score: prefix and options must all be texts or all be token ids")
    return (*prefix, *option)


async def _score(engine: Engine, job: Job) -> Score:
    order, echoes, prompt_tokens = EchoOrder(job.echo_from), list[Echo](), 0
    async for event in engine.generate(job):
        if isinstance(event, Echo):
            echoes += order.take(event)
        elif isinstance(event, Accepted):
            prompt_tokens = event.prompt_tokens
        elif isinstance(event, Done):
            if event.reason == "cancelled":
                raise EngineFailed("score: the engine gave an option up; try again")
            order.close(prompt_tokens or event.prompt_tokens)
    logprobs = [echo.logprob for echo in echoes if echo.logprob is not None]
    if len(logprobs) != len(echoes):
        raise EngineFailed("score: the engine kept the log probability of a token back")
    return Score(tuple(echo.token_id for echo in echoes), tuple(logprobs))
