"""What `make` would run; nothing is."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def planned(tmp_path):
    """The commands of a target in a checkout without a virtual environment."""
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("setup.py", "pyproject.toml"):
        (tmp_path / name).touch()

    def plan(target: str) -> str:
        done = subprocess.run(
            ["make", "--dry-run", target],
            cwd=tmp_path,
            env={
                name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    return plan


def test_serve_installs_what_constrains_replies_and_leaves_talking_to_the_server(planned):
    commands = planned("serve")
    assert "--editable '.[constrain]'" in commands
    assert "curl" not in commands
    assert commands.splitlines()[-1] == ".venv/bin/colibri serve --host 127.0.0.1 --port 8000"


def test_what_takes_long_is_told(planned):
    for target in ("serve", "test", "check"):
        commands = planned(target)
        assert (
            commands.index("creating .venv")
            < commands.index("building colibri")
            < commands.index("--editable")
        )
