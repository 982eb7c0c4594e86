"""An engine without a model: it says what the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import Factory, define, field

from colibri_engine.api import (
    Accepted,
    Capabilities,
    Done,
    Echo,
    EngineEvent,
    Job,
    Piece,
    Progress,
)
from colibri_engine.errors import ContextLengthExceeded, JobError

Step = str | bytes | Piece | Progress | Echo | Exception | asyncio.Event | float
Script = Callable[[Job], Iterable[Step]]


def say(*steps: Step) -> Script:
    """The same steps whatever is asked."""
    return lambda job: steps


def echo_words(job: Job) -> Iterable[Step]:
    """The prompt back, in pieces of three bytes, so that code points are split."""
    data = job.prompt.encode() if isinstance(job.prompt, str) else bytes(job.prompt)
    return [data[at : at + 3] for at in range(0, len(data), 3)]


@define
class ScriptedEngine:
    """Runs `script` for every job: text and bytes are pieces, exceptions are raised, events and numbers
    of seconds are waited for. A token is a byte of the prompt, or one of `special`."""

    script: Script = echo_words
    capabilities: Capabilities = Factory(lambda: Capabilities(context_length=100_000, tokenize=True))
    jobs: list[Job] = Factory(list)
    special: Mapping[str, int] = Factory(dict)
    tokenized: list[tuple[str, Any]] = Factory(list)
    running: int = 0
    most_running: int = 0
    finished: int = 0
    cancelled: int = 0
    failed: int = 0
    closed: bool = False
    cached: int = 0
    accept: asyncio.Event | None = None
    release: asyncio.Event | None = field(default=None)

    async def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        used = len(job.prompt.encode()) if isinstance(job.prompt, str) else len(job.prompt)
        if used >= self.capabilities.context_length:
            raise ContextLengthExceeded(used, self.capabilities.context_length)
        self.jobs.append(job)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            async for event in self._run(job, used):
                yield event
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled += 1
            if self.release is not None:
                await self.release.wait()
            raise
        except Exception:
            self.failed += 1
            raise
        else:
            self.finished += 1
        finally:
            self.running -= 1

    async def _run(self, job: Job, used: int) -> AsyncGenerator[EngineEvent, None]:
        if self.accept is not None:
            await self.accept.wait()
        yield Accepted(used, self.cached)
        made, reason = 0, "stop"
        for step in self.script(job):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, asyncio.Event):
                await step.wait()
                continue
            if isinstance(step, float):
                await asyncio.sleep(step)
                continue
            if isinstance(step, Progress | Echo):
                yield step
                continue
            if made >= job.max_tokens:
                reason = "length"
                break
            made += 1
            data = step.encode() if isinstance(step, str) else step
            yield data if isinstance(data, Piece) else Piece(data)
        yield Done(reason, used, made, self.cached)

    async def tokenize(self, text: str, trusted: Sequence[tuple[int, int]] | None = None) -> list[int]:
        if text in self.special:
            return [self.special[text]]
        self.tokenized.append((text, trusted))
        return list(text.encode())

    async def detokenize(self, token_ids: Sequence[int]) -> bytes:
        if any(token > 255 for token in token_ids):
            raise JobError("tokens: an id is no token")
        return bytes(token_ids)

    async def stats(self) -> Mapping[str, Any]:
        return {"jobs": len(self.jobs)}

    async def close(self) -> None:
        self.closed = True
