import json
import os
import shutil
import socket
import struct
import sys

import pytest

from colibri.cli import checks
from colibri.server import pidfile

FAMILY = "import colibri\n\n\n@colibri.hookimpl\ndef colibri_families():\n    return []\n"


@pytest.fixture
def examine(run, tmp_path, monkeypatch):
    """`examine(…)` runs the doctor; gives its findings by name and whether all is well."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def invoke(*args):
        result = run("doctor", "--json", "--port", str(free_port()), *args)
        told = json.loads(result.stdout)
        assert result.exit_code == (0 if told["ok"] else 1)
        assert all(one["repair"] for one in told["checks"] if one["state"] == "fails")
        return {one["name"]: one for one in told["checks"]}, told["ok"]

    return invoke


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_all_is_well_with_a_model(examine, smollm2_path):
    found, well = examine("--model", smollm2_path)
    assert well
    assert list(found) == [
        "machine",
        "engine",
        "constraint",
        "memory",
        "cache",
        "plugins",
        "model",
        "family",
        "network",
        "key",
        "port",
    ]
    assert found["family"]["found"].endswith("(smollm2), from colibri-smollm2, served as smollm2")


def test_a_model_that_is_not_fetched_is_no_failure(examine, index):
    found, well = examine()
    assert well
    assert found["model"]["state"] == "note"
    assert "colibri pull smollm2" in found["model"]["repair"]


def test_a_model_that_is_not_there(examine, index):
    found, well = examine("--model", "nowhere")
    assert not well
    assert "nowhere: no such file" in found["model"]["found"]


def test_a_damaged_model(examine, tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    found, well = examine("--model", str(path))
    assert not well
    assert str(path) in found["model"]["found"]


def test_an_architecture_that_no_family_knows(examine, tmp_path):
    path = tmp_path / "zebra.gguf"
    architecture = [struct.pack("<Q", len(text)) + text for text in (b"general.architecture", b"zebra")]
    path.write_bytes(
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + architecture[0] + struct.pack("<I", 8) + architecture[1]
    )
    found, well = examine("--model", str(path))
    assert not well
    assert found["model"]["state"] == "ok"
    assert "'zebra': no installed family knows it" in found["family"]["found"]


def test_a_family_without_a_network(examine, smollm2_path):
    found, well = examine("--model", smollm2_path, "--family", "qwen36")
    assert not well
    assert found["family"]["state"] == "ok"
    assert "family qwen36 brings no network that this engine can run" in found["network"]["found"]
    assert found["family"]["found"].endswith("served as qwen3.6-colibri")
    assert examine("--model", smollm2_path, "--family", "nope")[0]["family"]["state"] == "fails"


def test_a_model_larger_than_the_memory(examine, smollm2_path, monkeypatch, tmp_path):
    (tmp_path / "max").write_text("50000000\n")
    monkeypatch.setattr(checks, "_CGROUP", tmp_path / "max")
    found, well = examine("--model", smollm2_path)
    assert not well
    assert found["memory"]["found"] == "50 MB available"
    assert found["model"]["found"].endswith("more than the 50 MB that are available")


def test_memory_that_cannot_be_told(examine, smollm2_path, monkeypatch, tmp_path):
    monkeypatch.setattr(checks, "_MEMINFO", tmp_path / "none")
    found, well = examine("--model", smollm2_path)
    assert well
    assert found["memory"]["state"] == "note"


def test_a_cache_that_cannot_be_written(examine, smollm2_path, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COLIBRI_CACHE", str(tmp_path / "file" / "cache"))
    found, well = examine("--model", smollm2_path)
    assert not well
    assert "cannot be written" in found["cache"]["found"]


def test_a_cache_without_room(examine, index, monkeypatch):
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 9, 1))
    found, well = examine()
    assert not well
    assert found["cache"]["state"] == "fails"


def test_plugins_that_failed(examine, install, smollm2_path):
    install("colibri-zebra", "import nothing_of_this_name\n")
    install("colibri-yak", FAMILY)
    found, well = examine("--model", smollm2_path)
    assert not well
    assert "nothing_of_this_name" in found["plugin colibri-zebra"]["found"]
    assert "--disable-plugin colibri-zebra" in found["plugin colibri-zebra"]["repair"]
    assert "colibri-yak" in found["plugins"]["found"]
    assert examine("--model", smollm2_path, "--disable-plugin", "colibri-zebra")[1]


def test_a_plugin_that_is_asked_for_and_not_there(examine, smollm2_path, monkeypatch):
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "colibri-nowhere")
    found, well = examine("--model", smollm2_path)
    assert not well
    assert "colibri-nowhere is not installed" in found["plugins"]["found"]
    assert "family" not in found


def test_a_port_that_is_taken(examine, smollm2_path, run):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found, well = examine("--model", smollm2_path, "--port", str(port))
        assert not well
        assert f"`port` {port} on 127.0.0.1 is in use" in found["port"]["found"]
        with pidfile.record(pidfile.Running(os.getpid(), port, 1.0)):
            found, well = examine("--model", smollm2_path, "--port", str(port))
        assert well
        assert found["port"]["repair"] == f"to end it: colibri stop --port {port}"


def test_the_settings_of_a_server(examine, tmp_path, monkeypatch, smollm2_path, run):
    config = tmp_path / "colibri.toml"
    config.write_text('model_id = "mine"\nhost = "0.0.0.0"\napi_key_file = "keys"\ncontext = 10000\n')
    monkeypatch.setenv("COLIBRI_MODEL", str(smollm2_path))
    found, well = examine("--config", str(config))
    assert not well
    assert {name for name, one in found.items() if one["state"] == "fails"} == {"network", "key"}
    assert found["family"]["found"].endswith("served as mine")
    assert "context is 10000" in found["network"]["found"]
    assert f"`api_key_file` {tmp_path / 'keys'} cannot be read" in found["key"]["found"]
    (tmp_path / "keys").write_text("secret\n")
    config.write_text('host = "0.0.0.0"\napi_key_file = "keys"\n')
    assert examine("--config", str(config))[1]
    config.write_text("prot = 1")
    assert "did you mean `port`" in run("doctor", "--config", str(config)).stderr


def test_an_engine_of_the_settings(examine, index, monkeypatch):
    monkeypatch.setenv("COLIBRI_ENGINE_CMD", f"{sys.executable} -m engine")
    found, well = examine("--family", "qwen36")
    assert well
    assert found["model"]["found"] == "what the engine brings"
    assert found["network"]["state"] == "ok"
    assert examine()[0]["family"]["state"] == "fails"
    monkeypatch.setenv("COLIBRI_ENGINE_CMD", "/nowhere/engine")
    assert "there is no program /nowhere/engine" in examine("--family", "qwen36")[0]["network"]["found"]


@pytest.mark.parametrize("installed", [True, False])
def test_whether_replies_can_be_held_to_a_schema(examine, index, monkeypatch, installed):
    monkeypatch.setattr(checks, "available", lambda: frozenset({"regex"} if installed else ()))
    found, well = examine()
    assert well
    assert found["constraint"]["state"] == ("ok" if installed else "note")
    assert ("colibri-llm[constrain]" in found["constraint"]["repair"]) is not installed


def test_a_wrong_choice_of_kernels(examine, smollm2_path, monkeypatch):
    monkeypatch.setenv("COLIBRI_CPU", "abacus")
    found, well = examine("--model", smollm2_path)
    assert found["engine"]["state"] in ("fails", "ok")  # it is read once a process
    assert well == (found["engine"]["state"] == "ok")


def test_a_table_for_people(run, smollm2_path):
    shown = run("doctor", "--model", smollm2_path, "--port", str(free_port())).stdout.splitlines()
    assert shown[0] == "\tCHECK\tFOUND\tREPAIR"
    assert all(line.count("\t") == 3 for line in shown)
