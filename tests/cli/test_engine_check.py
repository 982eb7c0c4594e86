"""`colibri engine-check`: the checks are the engine's own; here is what the command makes of them."""

import json
import sys
from pathlib import Path

import pytest

ENGINE = str(Path(__file__).parents[1] / "engine" / "fake_workers" / "engine.py")
CMD = [sys.executable, "-I", "-S", ENGINE]


@pytest.mark.parametrize("argv", [[*CMD, "--slots", "1"], [" ".join([*CMD, "--slots", "1"])]])
def test_a_program_that_passes(run, argv):
    result = run("engine-check", *argv)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "ok      becomes ready"
    assert "skipped keeps slots apart: it has one slot" in lines
    assert lines[-1] == "ok      finishes at the end of its input"


def test_a_program_that_fails(run):
    result = run("engine-check", "--timeout", "1", *CMD, "load-io")
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED  becomes ready: it says that it cannot load its model, kind=io")


def test_the_results_for_programs(run):
    result = run("engine-check", "--json", "/no/such/program")
    assert result.exit_code == 1
    (only,) = json.loads(result.stdout)
    assert (only["name"], only["passed"]) == ("becomes ready", False)
    assert "/no/such/program cannot be started" in only["detail"]


def test_a_program_must_be_named(refused):
    assert refused("engine-check").startswith("Missing argument 'CMD...'")
