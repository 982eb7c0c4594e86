"""Every code block of the README and of docs/ runs, in order, as a reader would run it."""

from __future__ import annotations

import re
import site
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

import colibri
import colibri_engine

sys.path.insert(0, str(Path(__file__).parent))
from pages import Run, blocks

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = [page for page in PAGES if blocks(page)]
SERVER = "http://127.0.0.1:8000"
OWN_PORT = "8017"
"""The port on which a page starts a server of its own."""


@pytest.fixture(scope="session")
def server(smollm2_path, tmp_path_factory):
    """A server of the small model; its address."""
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "colibri", "serve", "--port", "0", "--model", str(smollm2_path)],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield _address(process, log)
    finally:
        process.terminate()
        process.wait(30)


def _address(process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
            return _ready(found[0], deadline)
        time.sleep(0.05)
    raise AssertionError(f"the server did not start:\n{log.read_text()}")


def _ready(address, deadline):
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return address
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the server never became healthy")


@pytest.fixture
def scratch_python(tmp_path):
    """A virtual environment that sees what is installed here, so that a page can install a plugin."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    library = next((folder / "lib").iterdir()) / "site-packages"
    paths = [path for path in [*site.getsitepackages(), *sys.path] if path.endswith("site-packages")]
    # addsitedir, unlike a bare path, also reads the .pth files of editable installs.
    lines = [f"import site; site.addsitedir({path!r})" for path in dict.fromkeys(paths)]
    (library / "seen.pth").write_text("\n".join(lines) + "\n")
    for program in ("colibri", "pip", "pytest"):
        script = folder / "bin" / program
        script.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m {program} "$@"\n')
        script.chmod(0o755)
    return folder / "bin" / "python"


@pytest.fixture
def own_port(smollm2_path, tmp_path, monkeypatch):
    """A free port; a server that is left on it is stopped."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    yield port
    subprocess.run([sys.executable, "-m", "colibri", "stop", "--port", port], capture_output=True, timeout=60)


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page, tmp_path, request, monkeypatch):
    steps = blocks(page)
    python, replace = Path(sys.executable), {}
    if any("pip install" in step.body for step in steps if step.language == "sh"):
        python = request.getfixturevalue("scratch_python")
    if any(SERVER in step.body for step in steps if step.language in ("sh", "python")):
        replace[SERVER] = request.getfixturevalue("server")
    if any(OWN_PORT in step.body for step in steps):
        replace[OWN_PORT] = request.getfixturevalue("own_port")
    work = tmp_path / "work"
    work.mkdir()
    run = Run(page, work, python=python, root=ROOT, replace=replace)
    for step in steps:
        run.block(step)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 125


def test_links_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            assert not anchor or anchor in anchors(there), f"{page.name}: {target}#{anchor}"


def anchors(page):
    """What the page's headings are called in links, as GitHub has it."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_variable_of_the_environment_is_documented():
    packages = [Path(package.__file__).parent for package in (colibri, colibri_engine)]
    sources = [path.read_text("utf-8") for package in packages for path in package.rglob("*.py")]
    read = {name for text in sources for name in re.findall(r"\"(COLI(?:BRI)?_[A-Z_]+[A-Z])\"", text)}
    written = "".join(page.read_text("utf-8") for page in PAGES)
    assert {name for name in read if f"`{name}`" not in written} == set()
