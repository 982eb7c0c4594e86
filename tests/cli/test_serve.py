import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from itertools import chain

import pytest
from click.testing import CliRunner

from colibri.cli import serve
from colibri.cli.program import program
from colibri.registry import load
from colibri.server.served import Served
from colibri.server.settings import SETTINGS, Settings


@pytest.fixture
def server(smollm2_path, tmp_path):
    """A server on a free port with the real model, as a process; gives it and the lines it announced."""
    process = subprocess.Popen(
        [sys.executable, "-m", "colibri", "serve", "--model", smollm2_path, "--port", "0", "--ctx", "256"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
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
    body = json.loads(words[words.index("-d") + 1])
    with urllib.request.urlopen(f"{url}/models", timeout=60) as answer:
        assert body["model"] == json.load(answer)["data"][0]["id"]
    body |= {"max_tokens": 4, "temperature": 0}
    request = urllib.request.Request(
        words[1], json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        message = json.load(answer)["choices"][0]["message"]
    assert message["content"]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1] == "stopped"


@pytest.mark.parametrize("model_id", [None, "mine/own"])
def test_the_request_to_try_names_the_model_as_it_is_served(capsys, model_id):
    settings = Settings(model_id=model_id)
    for family in load().values():
        serve._announce(settings, family, "http://127.0.0.1:1")
        words = shlex.split(capsys.readouterr().out.splitlines()[1])
        assert json.loads(words[-1])["model"] == Served(family, None, settings).id


def test_every_setting_is_an_option_with_its_help_and_variable():
    shown = " ".join(CliRunner().invoke(program, ["serve", "--help"], terminal_width=200).stdout.split())
    for row in SETTINGS:
        assert row.flag.partition("/")[0] in shown
        default = f"; default: {row.shown_default}" if row.shown_default else ""
        assert f"[{row.variable}{default}]" in shown
    assert "[COLIBRI_PORT; default: 8000]" in shown
    assert "[COLIBRI_ACCESS_LOG; default: on]" in shown


def test_stop_ends_the_server_of_a_port(server, run, tmp_path, monkeypatch):
    process, (place, _) = server
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    port = place.strip().rpartition(":")[2].partition("/")[0]
    shown = run("stop", "--port", port, "--dry-run").stdout
    assert shown == f"the server on port {port} is process {process.pid}; it would be stopped\n"
    assert process.poll() is None
    assert run("stop", "--port", port).stdout == f"stopped the server on port {port}\n"
    assert process.wait(timeout=30) == 0


def test_stop_without_a_server_is_refused(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("COLIBRI_PORT", "1")
    assert refused("stop") == "no server of this user runs on port 1; name its port with --port"


@pytest.fixture
def check(run, monkeypatch):
    """`check(…)` runs `colibri serve --check-config` without settings of the environment."""
    for name in chain.from_iterable(row.variables for row in SETTINGS):
        monkeypatch.delenv(name, raising=False)

    def invoke(*args, runner=run):
        return runner("serve", "--check-config", *args)

    return invoke


def test_the_settings_are_checked_and_written_as_toml(check, index, tmp_path, monkeypatch):
    config = tmp_path / "colibri.toml"
    config.write_text('port = 0\nallowed_host = ["a.example"]\nqueue_timeout = 5\n')
    monkeypatch.setenv("COLI_API_KEY", "sekret")
    result = check("--config", str(config), "--no-access-log", "--host", "0.0.0.0")
    assert result.exit_code == 0, result.output
    assert "sekret" not in result.stdout
    assert "# api_key: 1 given" in result.stdout
    assert tomllib.loads(result.stdout) == {
        "host": "0.0.0.0",
        "port": 0,
        "allowed_host": ["a.example"],
        "queue_timeout": 5.0,
        "access_log": False,
    }
    again = tmp_path / "again.toml"
    again.write_text(result.stdout)
    assert check("--config", str(again)).stdout == result.stdout
    assert index.calls == []


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--port", "70000"), "`port` must be a whole number from 0 to 65535, not 70000"),
        (("--host", "0.0.0.0"), "`host` 0.0.0.0 can be reached from other machines and no key is set"),
        (("--host", "no.such.host.invalid", "--api-key", "k"), "`host` no.such.host.invalid is no address"),
        (("--host", "*"), "`host` must be an address or a host name, not '*'"),
        (("--allowed-host", "*"), "`allowed_host` must be a list of host names"),
        (("--api-key-file", "nowhere"), "`api_key_file` nowhere cannot be read"),
        (("--model", "nowhere"), "nowhere: no such file or folder"),
        (("--family", "nowhere"), "no family is called 'nowhere'"),
        (("--family", "nowhere", "--engine-cmd", "true"), "no family is called 'nowhere'"),
        (("--engine", "steam"), "steam"),
        (("--engine-cmd", "'"), "`engine_cmd` must be a command with its arguments, every quote closed"),
        (("--engine-cmd", "true"), "`engine_cmd` needs `model` or `family`"),
        (
            ("--family", "glm52", "--engine-cmd", "/nowhere/it -x"),
            "`engine_cmd`: there is no program /nowhere/it",
        ),
    ],
)
def test_what_would_keep_the_server_from_starting(check, refused, index, flags, reason):
    assert reason in check(*flags, runner=refused)


def serve_and_check(run, model, *flags):
    """What `colibri serve` and its --check-config answer to the same settings."""
    given = ["serve", "--model", model, *flags]
    return run(*given), run(*given, "--check-config")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--family", "glm52"), "family glm52 brings no network that this engine can run"),
        (
            ("--family", "glm52", "--engine", "local"),
            "family glm52 brings no network that this engine can run",
        ),
        (("--ctx", "10000"), "context is 10000; this network was made for 1 to 8192 positions"),
        (("--host", "192.0.2.1", "--api-key", "k"), "192.0.2.1:0 cannot be listened on"),
        (("--host", "no.such.host.invalid", "--api-key", "k"), "`host` no.such.host.invalid is no address"),
        (("--host", "0.0.0.0"), "no key is set"),
        (("--api-key-file", "nowhere"), "`api_key_file` nowhere cannot be read"),
        (("--engine-cmd", "nowhere"), "`engine_cmd`: there is no program nowhere"),
        (("--engine-cmd", "'"), "every quote closed"),
        (("--allowed-host", "*"), "each in full since there are no wildcards"),
    ],
)
def test_what_the_server_refuses_the_check_refuses_in_the_same_words(refused, smollm2_path, flags, reason):
    served, check = serve_and_check(refused, smollm2_path, "--port", "0", *flags)
    assert served == check
    assert reason in check


def test_a_port_in_use_is_refused_by_the_server_and_by_the_check(refused, smollm2_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        served, check = serve_and_check(refused, smollm2_path, "--port", port)
    assert served == check == f"`port` {port} on 127.0.0.1 is in use; choose another with --port"


def test_the_family_of_the_checkpoint_is_checked(check, smollm2_path, tmp_path, refused):
    assert check("--model", smollm2_path, "--port", "0").exit_code == 0
    assert (
        check("--model", smollm2_path, "--family", "glm52", "--engine-cmd", "true", "--port", "0").exit_code
        == 0
    )
    (tmp_path / "config.json").write_text('{"model_type": "zebra"}')
    assert check("--model", tmp_path, "--port", "0", runner=refused)
