"""lm-eval's completions and chat clients against a server with the real model.

Its numbers must be those of an engine in the test's own process.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import pytest

from colibri.engines import open_engine
from colibri_engine.api import Done, Job, Piece, SamplingParams

from .conftest import process_with_model

pytestmark = pytest.mark.skipif(find_spec("lm_eval") is None, reason="needs the extra `clients`: lm-eval")

RUNS = Path(__file__).with_name("lm_eval_runs.py")
TASKS = Path(__file__).parents[1] / "data" / "lm_eval"
CONTEXT = 512
GREEDY = SamplingParams(temperature=0)
END = "<|im_end|>"
COMPLETIONS = ("tokens", "texts")


@pytest.fixture(scope="module")
def url(smollm2_path, tmp_path_factory):
    """The address of a server with the real model."""
    with process_with_model(smollm2_path, tmp_path_factory.mktemp("state"), "--ctx", str(CONTEXT)) as url:
        yield url


@pytest.fixture(scope="module")
def told(url, tmp_path_factory):
    """What every run of lm-eval told, by its name."""
    home = tmp_path_factory.mktemp("home")
    process = subprocess.run(
        [sys.executable, str(RUNS), url],
        cwd=TASKS,
        env={**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.fixture
async def engine(smollm2_path):
    """The model in this process."""
    async with open_engine(smollm2_path, context=CONTEXT) as engine:
        yield engine


async def continued(engine, prompt, most):
    """The tokens of the greedy reply, at most so many, and why it ended."""
    events = [event async for event in engine.generate(Job(prompt, most, sampling=GREEDY))]
    done = next(event for event in events if isinstance(event, Done))
    return [event for event in events if isinstance(event, Piece)], done.reason


def said(sample):
    """lm-eval's answer to each request of a sample."""
    return [response for (response,) in sample["resps"]]


def cut(text, stops=("\n", ",")):
    """The text before the first stop sequence."""
    return min((text.partition(stop)[0] for stop in stops), key=len)


@pytest.mark.parametrize("run", COMPLETIONS)
async def test_log_likelihoods_are_the_engines(told, engine, run):
    seen = set()
    for sample in told[run]["samples"]["choices"]:
        for (context, continuation), (likelihood, greedy) in zip(
            sample["arguments"], said(sample), strict=True
        ):
            prefix = await engine.tokenize(context or END)
            ids = (await engine.tokenize((context or END) + continuation))[len(prefix) :]
            (score,) = await engine.score(prefix, [ids])
            best, _ = await continued(engine, prefix, len(ids))
            assert likelihood == pytest.approx(score.total), continuation
            assert greedy == ([piece.token_id for piece in best] == ids), continuation
            _, reason = await continued(engine, [*prefix, *ids], 1)
            seen.add((greedy, reason))
    assert seen >= {(True, "length"), (False, "length"), (True, "stop")}
    assert told[run]["scores"]["choices"]["acc,none"] == 1


@pytest.mark.parametrize("run", COMPLETIONS)
async def test_perplexity_is_the_engines(told, engine, run):
    total = words = 0
    for sample in told[run]["samples"]["rolling"]:
        ((text,),) = sample["arguments"]
        (score,) = await engine.score(await engine.tokenize(END), [await engine.tokenize(text)])
        assert said(sample) == [pytest.approx(score.total)], text
        total += score.total
        words += len(text.split())
    assert told[run]["scores"]["rolling"]["word_perplexity,none"] == pytest.approx(math.exp(-total / words))


@pytest.mark.parametrize("run", COMPLETIONS)
async def test_generations_are_the_engines(told, engine, run):
    for sample in told[run]["samples"]["questions"]:
        ((context, options),) = sample["arguments"]
        pieces, _ = await continued(engine, context, options["max_gen_toks"])
        expected = cut(b"".join(piece.data for piece in pieces).decode("utf-8", "ignore"))
        assert said(sample) == [expected]
        assert expected


def test_chat_generations_are_those_of_a_plain_request(told, url):
    for sample in told["chat"]["samples"]["questions"]:
        (((messages,), options),) = sample["arguments"]
        body = {"messages": json.loads(messages), "max_tokens": options["max_gen_toks"], "temperature": 0}
        request = urllib.request.Request(
            f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.load(answer)["choices"][0]["message"]["content"]
        assert said(sample) == [cut(content)]
        assert cut(content)
