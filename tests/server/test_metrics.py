"""/metrics: names, types, labels, and that the numbers are those of what happened."""

from __future__ import annotations

import asyncio
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from colibri.server.metrics import Histogram, LoopWatch

from .conftest import eventually
from .scripted import ScriptedEngine, say

PREFIX = "colibri_scheduler_"
GAUGES = {"active", "queued", "capacity", "max_queue"}
COUNTERS = {"admitted", "completed", "failed", "rejected", "timed_out", "cancelled"}
HISTOGRAMS = {"queue_wait_seconds", "slot_duration_seconds", "first_output_seconds", "engine_call_seconds"}
LABELS = ["0.001", "0.01", "0.05", "0.1", "0.5", "1", "5", "10", "30", "60", "300", "+Inf"]


async def scrape(live, **options):
    async with live.http.get("/metrics", **options) as answer:
        assert answer.status == 200
        return answer.headers, await answer.text()


async def numbers(live):
    _, text = await scrape(live)
    return {
        sample.name.removeprefix(PREFIX): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels
    }


async def test_names_types_and_labels(serve):
    async with serve() as live:
        headers, text = await scrape(live)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert "x-request-id" not in headers
    assert text.endswith("\n")
    assert "_created" not in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    kinds = {name.removeprefix(PREFIX): family.type for name, family in families.items() if PREFIX in name}
    expected = dict.fromkeys(GAUGES, "gauge") | dict.fromkeys(COUNTERS, "counter")
    assert kinds == expected | dict.fromkeys(HISTOGRAMS, "histogram")
    for name in HISTOGRAMS:
        samples = families[PREFIX + name].samples
        assert [sample.labels["le"] for sample in samples if "le" in sample.labels] == LABELS
        assert [sample.name.rpartition("_")[2] for sample in samples[-2:]] == ["sum", "count"]
        assert f"# HELP {PREFIX}{name} " in text


async def test_what_happened_is_counted(serve):
    gate = asyncio.Event()
    async with serve(ScriptedEngine(say("a", "b")), max_queue=0) as live:
        await live.chat("abc")
        live.engine.script = say(RuntimeError())
        await live.chat()
        live.engine.script = say(gate)
        running = asyncio.create_task(live.chat())
        await eventually(lambda: live.engine.running == 1)
        await live.chat()
        assert (await numbers(live))["active"] == 1
        gate.set()
        await running
        got = await numbers(live)
    assert (got["admitted_total"], got["completed_total"], got["failed_total"]) == (3, 2, 1)
    assert (got["rejected_total"], got["active"], got["capacity"]) == (1, 0, 1)
    assert got["queue_wait_seconds_count"] == got["slot_duration_seconds_count"] == 3
    assert got["engine_call_seconds_count"] == 3
    assert got["first_output_seconds_count"] == 1
    assert got["colibri_completion_tokens_total"] == 2
    assert got["colibri_prompt_tokens_total"] == sum(len(job.prompt) for job in live.engine.jobs)


async def test_the_key_guards_metrics(serve):
    async with serve(api_key=("k",)) as live:
        async with live.http.get("/metrics") as answer:
            assert answer.status == 401
        await scrape(live, headers={"Authorization": "Bearer k"})


async def test_scraping_takes_no_slot_and_asks_no_engine(serve):
    gate = asyncio.Event()
    async with serve(ScriptedEngine(say(gate))) as live:
        running = asyncio.create_task(live.chat())
        await eventually(lambda: live.engine.running == 1)
        await scrape(live)
        gate.set()
        await running
        assert len(live.engine.jobs) == 1


def test_bounds_of_a_bucket_belong_to_it():
    histogram = Histogram("h", "text", ("1", "2"))
    for seconds in (0.5, 1.0, 1.5, 2.0, 2.5):
        histogram.observe(seconds)
    counts = [sample.value for sample in histogram.collect().samples]
    assert counts == [2, 4, 5, 7.5, 5]


async def test_a_blocked_loop_is_noticed():
    histogram = Histogram("h", "text", ("0.02",))
    watch = LoopWatch(histogram)
    with watch.watching():
        time.sleep(0.06)
        await asyncio.sleep(0.02)
    assert watch.longest >= 0.04
    seen = histogram.collect().samples[-1].value
    await asyncio.sleep(0.03)
    assert histogram.collect().samples[-1].value == seen


@pytest.mark.parametrize("path", ["/v1/models", "/health"])
async def test_answers_are_counted_by_route_and_status(serve, path):
    async with serve() as live:
        await live.json("GET", path)
        await live.json("GET", f"{path}xyz")
        _, text = await scrape(live)
    assert f'colibri_http_responses_total{{route="{path}",status="200"}} 1.0' in text
    assert "xyz" not in text
