"""`colibri serve` is ended the hard way, and its engine with it, whatever that is doing."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..engine.processes import fake_argv

DEAF = "trap '' TERM HUP INT; while :; do sleep 0.1 & wait; done"
BODY = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, "max_tokens": 6000}


def wait_for(condition, what):
    for _ in range(1500):
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come")


def alive(pid):
    """Whether a process runs; one that is only waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def children(pid):
    """The processes that a process has started, and theirs."""
    found = [
        int(word)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for word in path.read_text().split()
    ]
    return found + [below for child in found for below in children(child)]


@contextmanager
def serving(state, *flags):
    """The process of a server and a function that gives its address once it answers."""
    command = [sys.executable, "-m", "colibri", "serve", "--port", "0", "--no-access-log", *map(str, flags)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(state)},
    )
    with process:
        try:
            yield process, lambda: process.stdout.readline().split()[-1]
        finally:
            process.kill()


@contextmanager
def streaming(url):
    """A reply that is being generated."""
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(BODY).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        while b'"content":"' not in answer.readline():
            pass
        yield


def end_hard(process, how):
    if how == "killed":
        process.kill()
        assert process.wait(timeout=10) == -signal.SIGKILL
        return
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    # The second may come when the server has let go of the signal, which then ends it by itself.
    assert process.wait(timeout=10) in (128 + signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.parametrize("how", ["killed", "second signal"])
def test_our_engine_ends_with_its_server(smollm2_path, tmp_path, how):
    with serving(tmp_path, "--model", smollm2_path) as (process, url), streaming(url()):
        (engine,) = children(process.pid)
        end_hard(process, how)
        wait_for(lambda: not alive(engine), "the end of the engine")


@pytest.mark.parametrize("phase", ["loading", "serving"])
def test_a_second_signal_kills_any_engine_and_what_it_has_started(tmp_path, phase):
    engine = tmp_path / "engine.sh"
    program = " ".join(fake_argv("--delay", "0.05", "no-exit")) if phase == "serving" else ":"
    engine.write_text(f"sleep 1000 &\n{program}\n{DEAF}\n")
    with serving(tmp_path, "--family", "qwen36", "--engine-cmd", f"sh {engine}") as (process, url):
        if phase == "serving":
            with streaming(url()):
                started = children(process.pid)
                end_hard(process, "second signal")
        else:
            started = wait_for(lambda: len(found := children(process.pid)) > 1 and found, "the engine")
            end_hard(process, "second signal")
        assert started
        wait_for(lambda: not any(map(alive, started)), "the end of the engine")
