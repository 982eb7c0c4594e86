import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from colibri.cli.program import program
from colibri.server.settings import SETTINGS


@pytest.fixture
def server(smollm2_path, tmp_path):
    """A server on a free port with the real model, as a process; gives it and the lines it announced."""
    process = subprocess.Popen(
        [sys.executable, "-m", "colibri", "serve", "--model", smollm2_path, "--port", "0", "--ctx", "256"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    lines = [process.stdout.readline() for _ in range(2)]
    yield process, lines
    process.kill()
    process.communicate()


def test_it_tells_where_it_listens_answers_and_ends(server):
    process, (place, curl) = server
    url = place.rsplit(" ", 1)[1].strip()
    assert url.startswith("http://127.0.0.1:")
    words = shlex.split(curl)
    assert words[:2] == ["curl", f"{url}/chat/completions"]
    body = {**json.loads(words[words.index("-d") + 1]), "max_tokens": 4, "temperature": 0}
    request = urllib.request.Request(
        words[1], json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        message = json.load(answer)["choices"][0]["message"]
    assert message["content"]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def test_every_setting_is_an_option_with_its_help_and_variable():
    shown = " ".join(CliRunner().invoke(program, ["serve", "--help"], terminal_width=200).stdout.split())
    for row in SETTINGS:
        assert row.flag.partition("/")[0] in shown
        assert f"[{row.variable}]" in shown
