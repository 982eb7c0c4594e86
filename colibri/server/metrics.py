"""What /metrics tells, in the Prometheus text format 0.0.4, without prompts, paths or request ids."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from attrs import asdict
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from colibri.server.admission import Counters
from colibri_engine.api import Accepted, Capabilities, Done, Engine, EngineEvent, Job, Piece
from colibri_engine.scoring import Scoring

__all__ = ["CONTENT_TYPE", "Histogram", "LoopWatch", "MeasuredEngine", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
"""The media type of the text format that `Metrics.text` writes."""

_BUCKETS = ("0.001", "0.01", "0.05", "0.1", "0.5", "1", "5", "10", "30", "60", "300")
_LOOP_BUCKETS = ("0.001", "0.005", "0.01", "0.02", "0.05", "0.1", "1")
_GAUGES = {
    "active": "Requests that hold a KV slot.",
    "queued": "Requests that wait for a KV slot.",
    "capacity": "KV slots.",
    "max_queue": "Requests that may wait.",
}
_COUNTERS = {
    "admitted": "Requests admitted to a KV slot.",
    "completed": "Admitted requests that returned normally.",
    "failed": "Admitted requests that raised an error.",
    "rejected": "Requests refused because the queue was full.",
    "timed_out": "Requests that waited their whole time.",
    "cancelled": "Requests whose client hung up, before or after admission.",
}
_TOKENS = {
    "prompt_tokens": "Prompt tokens that the engine accepted.",
    "cached_tokens": "Prompt tokens that needed no prefill.",
    "completion_tokens": "Tokens generated.",
    "prefill_seconds": "Seconds spent reading prompts.",
    "decode_seconds": "Seconds spent generating.",
}


class Histogram:
    """Counts of durations in seconds, with bucket labels spelled as given."""

    def __init__(self, name: str, text: str, buckets: Sequence[str] = _BUCKETS) -> None:
        self.name = name
        self.text = text
        self._labels = (*buckets, "+Inf")
        self._bounds = [float(label) for label in buckets]
        self._counts = [0] * len(self._labels)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def collect(self) -> Metric:
        """The samples: cumulative buckets, sum, count."""
        metric = Metric(self.name, self.text, "histogram")
        total = 0
        for label, count in zip(self._labels, self._counts, strict=True):
            total += count
            metric.add_sample(f"{self.name}_bucket", {"le": label}, total)
        metric.add_sample(f"{self.name}_sum", {}, self._sum)
        metric.add_sample(f"{self.name}_count", {}, total)
        return metric


class Metrics(Collector):
    """All numbers of one server; counters start at zero with the process."""

    def __init__(self, counters: Callable[[], Counters], connections: Callable[[], int]) -> None:
        prefix = "colibri_scheduler_"
        self.queue_wait = Histogram(f"{prefix}queue_wait_seconds", "Wait until admission.")
        self.slot_duration = Histogram(
            f"{prefix}slot_duration_seconds", "How long slots were held, however it ended."
        )
        self.first_output = Histogram(
            f"{prefix}first_output_seconds", "From the engine call to its first nonempty output."
        )
        self.engine_call = Histogram(
            f"{prefix}engine_call_seconds", "Duration of engine calls, failed and cancelled ones too."
        )
        self.loop_block = Histogram(
            "colibri_event_loop_block_seconds",
            "How late the event loop was, while requests were served.",
            _LOOP_BUCKETS,
        )
        self.tokens = dict.fromkeys(_TOKENS, 0.0)
        self.responses: dict[tuple[str, str], int] = {}
        self._counters = counters
        self._connections = connections
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def answered(self, route: str, status: int) -> None:
        """Count one answer to a request."""
        key = (route, str(status))
        self.responses[key] = self.responses.get(key, 0) + 1

    def text(self) -> bytes:
        """Everything, in the text format 0.0.4."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """One metric after the other, for the registry."""
        counters = asdict(self._counters())
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"colibri_scheduler_{name}", text, counters[name])
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"colibri_scheduler_{name}", text, counters[name])
        for histogram in (self.queue_wait, self.slot_duration, self.first_output, self.engine_call):
            yield histogram.collect()
        for name, text in _TOKENS.items():
            yield CounterMetricFamily(f"colibri_{name}", text, self.tokens[name])
        answers = CounterMetricFamily(
            "colibri_http_responses", "Answers by route and status.", labels=("route", "status")
        )
        for labels, count in self.responses.items():
            answers.add_metric(labels, count)
        yield answers
        yield GaugeMetricFamily("colibri_http_connections", "Open connections.", self._connections())
        yield self.loop_block.collect()


class LoopWatch:
    """Measures how late the event loop runs its timers while requests are served."""

    INTERVAL = 0.01

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._running = 0
        self._timer: asyncio.TimerHandle | None = None
        self.longest = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Measure as long as at least one body runs."""
        self._running += 1
        if self._timer is None:
            self._arm()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running and self._timer is not None:
                self._timer.cancel()
                self._late(self._timer.when())
                self._timer = None

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.INTERVAL
        self._timer = loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        self._late(due)
        self._arm()

    def _late(self, due: float) -> None:
        """Observe how late a timer is that was due then; one that is not due yet tells nothing."""
        late = asyncio.get_running_loop().time() - due
        if late >= 0:
            self.longest = max(self.longest, late)
            self._histogram.observe(late)


class MeasuredEngine(Scoring):
    """An engine whose generations are timed and whose tokens are counted."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    @property
    def capabilities(self) -> Capabilities:
        """The engine's own."""
        return self._engine.capabilities

    async def generate(self, job: Job) -> AsyncGenerator[EngineEvent, None]:
        """The engine's events, unchanged.

        Raises:
            EngineError: as the engine does.
        """
        clock = asyncio.get_running_loop().time
        began, made, accepted, done = clock(), 0, Accepted(0), None
        try:
            async with aclosing(self._engine.generate(job)) as events:
                async for event in events:
                    if isinstance(event, Piece):
                        if not made and event.data:
                            self._metrics.first_output.observe(clock() - began)
                        made += 1
                    elif isinstance(event, Accepted):
                        accepted = event
                    elif isinstance(event, Done):
                        done = event
                    yield event
        finally:
            self._metrics.engine_call.observe(clock() - began)
            self._count(done or Done("cancelled", accepted.prompt_tokens, made, accepted.cached_tokens))

    def _count(self, done: Done) -> None:
        tokens = self._metrics.tokens
        for name in tokens:
            tokens[name] += getattr(done, name)

    async def tokenize(self, text: str, trusted: Sequence[tuple[int, int]] | None = None) -> list[int]:
        """As the engine does."""
        return await self._engine.tokenize(text, trusted)

    async def detokenize(self, token_ids: Sequence[int]) -> bytes:
        """As the engine does."""
        return await self._engine.detokenize(token_ids)

    async def stats(self) -> Mapping[str, Any]:
        """As the engine does."""
        return await self._engine.stats()

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.close()
