"""The examples that run a server: their files, flags and variables exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from colibri.cli.program import program
from colibri.models import CACHE
from colibri.server.settings import SETTINGS

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "examples" / "Dockerfile").read_text(encoding="utf-8")
UNIT = (ROOT / "examples" / "colibri.service").read_text(encoding="utf-8")
VARIABLES = {CACHE, *(row.variable for row in SETTINGS)}


def test_the_image_copies_what_is_there_and_all_that_is_built():
    copied = [
        word for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    if (ROOT / "colibri").is_dir():  # a checkout, not the tests alone
        assert all((ROOT / name).exists() for name in copied)
    assert set(copied) >= {
        "setup.py",
        "pyproject.toml",
        "MANIFEST.in",
        "LICENSE",
        "colibri",
        "engine",
        "plugins",
    }


@pytest.mark.parametrize("text", [DOCKERFILE, UNIT], ids=["Dockerfile", "colibri.service"])
def test_variables_are_known(text):
    named = set(re.findall(r"\bCOLI(?:BRI)?_\w+(?==)", text))
    assert named
    assert named <= VARIABLES


def test_the_image_listens_beyond_the_container_and_only_with_a_key(tmp_path):
    environment = dict(
        re.findall(r"(\bCOLIBRI_\w+)=(\S+)", re.search(r"^ENV (.+)$", DOCKERFILE, re.MULTILINE)[1])
    )
    environment |= {CACHE: str(tmp_path), "COLI_MODEL": "", "COLI_API_KEY": "", "COLIBRI_PORT": "0"}
    refused = CliRunner().invoke(program, ["serve", "--check-config"], env=environment)
    assert "no key is set" in refused.stderr
    accepted = CliRunner().invoke(
        program, ["serve", "--check-config"], env=environment | {"COLI_API_KEY": "k"}
    )
    assert accepted.exit_code == 0, accepted.output
    assert 'host = "0.0.0.0"' in accepted.stdout


def test_the_unit_names_options_that_exist(tmp_path):
    config = tmp_path / "colibri.toml"
    config.write_text("port = 8100\n")
    (checked,) = re.findall(r"^ExecStartPre=/opt/colibri/bin/colibri (.+)$", UNIT, re.MULTILINE)
    (started,) = re.findall(r"^ExecStart=/opt/colibri/bin/colibri (.+)$", UNIT, re.MULTILINE)
    assert checked == started.replace("serve", "serve --check-config")
    words = checked.replace("/etc/colibri/colibri.toml", str(config)).split()
    result = CliRunner().invoke(program, words, env={CACHE: str(tmp_path), "COLI_MODEL": ""})
    assert result.exit_code == 0, result.output


def test_the_unit_waits_longer_than_the_server_drains():
    limit = next(row.default for row in SETTINGS if row.name == "drain_limit")
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[1]) > limit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path):
    unit = tmp_path / "colibri.service"
    unit.write_text(UNIT.replace("/opt/colibri/bin/colibri", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert "colibri.service" not in done.stderr, done.stderr
