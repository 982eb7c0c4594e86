"""Slots on disk: whole or not at all, of this model or not at all, and never a reason not to start."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from colibri_engine import local, persistence
from colibri_engine.api import Job, Piece
from colibri_engine.errors import EngineError
from colibri_engine.local import LocalEngine, open_local
from colibri_engine.persistence import SlotFiles
from colibri_engine.slots import Slots
from colibri_engine.spec import to_json

from .counting import GREEDY
from .test_local import collect, ids
from .tiny_checkpoints import write_tiny

CONTEXT = 40
OLD, NEW = [3, 1, 4, 1, 5], [2, 7, 1, 8, 2, 8]


class Planes:
    """A state of two arrays of rows, whose bytes tell which token is where."""

    def __init__(self) -> None:
        self.planes = [bytearray(CONTEXT * size) for size in (3, 2)]

    def blocks(self, positions: int) -> list[memoryview]:
        return [memoryview(self.planes[0])[: 3 * positions], memoryview(self.planes[1])[: 2 * positions]]

    def fill(self, tokens: list[int]) -> None:
        for block, size in zip(self.blocks(len(tokens)), (3, 2), strict=True):
            block[:] = bytes(token + size for token in tokens for _ in range(size))

    def holds(self, tokens: list[int]) -> bool:
        other = Planes()
        other.fill(tokens)
        return self.blocks(len(tokens)) == other.blocks(len(tokens)) if tokens else True


def slots_with(*histories: list[int]) -> Slots:
    slots = Slots(Planes, 4)
    for number, tokens in enumerate(histories):
        slot = slots.at(number)
        slot.history[:] = tokens
        if tokens:
            slot.state.fill(tokens)
    return slots


def files_in(folder: Path, *parts: str) -> SlotFiles:
    return SlotFiles(folder, parts or ["model"])


def keep(folder: Path, *histories: list[int]) -> list[Path]:
    """Save slots with these histories; the paths of their files."""
    files = files_in(folder)
    assert files.save(slots_with(*histories))
    files.close()
    return [files.path(number) for number in range(len(histories))]


def restored(folder: Path, *parts: str) -> list[list[int]]:
    """What an engine that starts now remembers; its rows are those of its tokens."""
    files, slots = files_in(folder, *parts), Slots(Planes, 4)
    files.restore(slots, CONTEXT)
    files.close()
    assert all(slot.state.holds(slot.history) for slot in slots)
    return [slot.history for slot in slots if slot.history]


def test_slots_come_back(tmp_path):
    paths = keep(tmp_path / "new" / "folder", OLD, [], NEW)
    assert restored(tmp_path / "new" / "folder") == [OLD, NEW]
    assert not paths[1].exists()
    assert paths[0].stat().st_mode & 0o777 == 0o600
    assert {path.suffix for path in paths[0].parent.iterdir()} == {".kv", ".lock"}


def test_another_model_has_other_files(tmp_path):
    keep(tmp_path, OLD)
    assert restored(tmp_path, "model", "another spec") == []
    assert restored(tmp_path) == [OLD]


def test_only_what_changed_is_written(tmp_path):
    files, slots = files_in(tmp_path), slots_with(OLD, NEW)
    asked = []
    assert files.save(slots, lambda: not asked.append(1))
    assert files.save(slots, lambda: not asked.append(1))
    assert len(asked) == 2
    slots.at(1).history.append(9)
    slots.at(1).state.fill(slots.at(1).history)
    assert not files.save(slots, lambda: False)
    assert files.save(slots)
    files.close()
    assert restored(tmp_path) == [OLD, [*NEW, 9]]


def test_a_changed_byte_is_noticed_wherever_it_is(tmp_path, caplog):
    (path,) = keep(tmp_path, OLD)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        caplog.clear()
        assert restored(tmp_path) == []
        assert f"{path} is ignored: it" in caplog.text
    path.write_bytes(whole)
    assert restored(tmp_path) == [OLD]


def test_a_file_of_another_length_is_ignored(tmp_path, caplog):
    (path,) = keep(tmp_path, OLD)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert restored(tmp_path) == []
    path.write_bytes(whole + b"\0")
    assert restored(tmp_path) == []
    assert len(caplog.records) == len(whole) + 1


def test_files_that_cannot_be_meant_are_ignored(tmp_path, caplog):
    first, second = keep(tmp_path, OLD, NEW)
    first.unlink()
    first.mkdir()
    files = files_in(tmp_path, "another")
    second.rename(files.path(1))
    files.close()
    assert restored(tmp_path) == []
    assert restored(tmp_path, "another") == []
    assert [record.getMessage().partition(" is ignored: ")[2] for record in caplog.records] == [
        f"[Errno 21] Is a directory: '{first}'",
        "it is of another model",
    ]


def test_more_tokens_than_a_slot_holds_are_ignored(tmp_path, caplog):
    keep(tmp_path, OLD)
    files, slots = files_in(tmp_path), Slots(Planes, 1)
    files.restore(slots, 4)
    files.close()
    assert not slots.at(0).history
    assert "it has 5 tokens, and a slot holds 4" in caplog.text


class Killed(BaseException):
    """The process ends here; nothing is cleaned up."""


@pytest.mark.parametrize("last", range(7))
def test_whenever_a_save_is_killed_the_old_file_or_the_new_one_is_there(tmp_path, monkeypatch, last):
    """The steps are five writes, the move into place and the folder's sync."""
    keep(tmp_path, OLD)
    steps = iter(range(100))

    def step() -> None:
        if next(steps) == last:
            raise Killed

    class Dying:
        def __init__(self, file) -> None:
            self.file = file

        def write(self, data) -> None:
            step()
            self.file.write(data)
            self.file.flush()

    write, replace, fsync = SlotFiles._write, os.replace, SlotFiles._sync_folder
    monkeypatch.setattr(SlotFiles, "_write", lambda self, file, slot: write(self, Dying(file), slot))
    monkeypatch.setattr(persistence.os, "replace", lambda *paths: (step(), replace(*paths)))
    monkeypatch.setattr(SlotFiles, "_sync_folder", lambda self: (step(), fsync(self)))
    files = files_in(tmp_path)
    with pytest.raises(Killed):
        files.save(slots_with(NEW))
    files.close()
    monkeypatch.undo()
    assert restored(tmp_path) == [NEW if last == 6 else OLD]
    keep(tmp_path, NEW)
    assert restored(tmp_path) == [NEW]
    assert {path.suffix for path in tmp_path.iterdir()} == {".kv", ".lock"}


def test_a_full_disk_is_a_warning_and_the_old_file_stays(tmp_path, caplog):
    (path,) = keep(tmp_path, OLD)
    path.with_suffix(".part").symlink_to("/dev/full")
    keep(tmp_path, NEW)
    assert f"{path} could not be written: No space left on device; the slot is not kept" in caplog.text
    assert not path.with_suffix(".part").is_symlink()
    assert restored(tmp_path) == [OLD]


def test_a_folder_has_one_owner(tmp_path, caplog):
    keep(tmp_path, OLD)
    owner = files_in(tmp_path)
    other, slots = files_in(tmp_path), slots_with(NEW)
    other.restore(slots, CONTEXT)
    assert slots.at(0).history == NEW
    assert other.save(slots)
    assert "is in use by another engine with this model; slots are not kept there" in caplog.text
    files_in(tmp_path, "another model").close()
    owner.close()
    other.close()
    assert restored(tmp_path) == [OLD]


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"file/kv: slots cannot be kept there: Not a directory"):
        files_in(tmp_path / "file" / "kv")


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.gguf"
    spec = write_tiny(path, context=64)

    def open_tiny(folder: Path | None = tmp_path / "kv", **options: object) -> LocalEngine:
        return open_local(path, spec, kv_folder=folder, threads=1, **options)

    return open_tiny


async def test_a_conversation_goes_on_after_a_restart(tiny):
    prompt = [3, 1, 4, 1, 5, 9, 2, 6]
    engine = tiny(slots=2)
    said = ids(await collect(engine, Job(prompt, 6, sampling=GREEDY, slot=1)))
    await engine.close()
    longer = Job([*prompt, *said, 7], 6, sampling=GREEDY, logprobs=5)
    engine = tiny(slots=2)
    events = await collect(engine, longer)
    assert events[0].cached_tokens == len(prompt) + len(said) - 1
    await engine.close()
    engine = tiny(None)
    alone = await collect(engine, longer)
    pieces = [[event for event in reply if isinstance(event, Piece)] for reply in (events, alone)]
    assert pieces[0] == pieces[1]
    await engine.close()


async def test_slots_are_saved_when_nothing_is_to_do(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_QUIET_SECONDS", 0.01)
    engine = tiny()
    await collect(engine, Job([1, 2, 3], 2, sampling=GREEDY))
    async with asyncio.timeout(20):
        while not list((tmp_path / "kv").glob("*.kv")):
            await asyncio.sleep(0.01)
    await collect(engine, Job([1, 2, 3], 2, sampling=GREEDY))
    await engine.close()


async def test_a_kill_between_writing_and_replacing(tiny, tmp_path, caplog):
    """A process that saves and is killed there leaves the file of the run before."""
    engine = tiny()
    await collect(engine, Job([1, 2, 3, 4], 0))
    await engine.close()
    (tmp_path / "spec").write_text(to_json(write_tiny(tmp_path / "again.gguf", context=64)))
    script = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from colibri_engine import persistence
        from colibri_engine.api import Job
        from colibri_engine.local import open_local
        from colibri_engine.spec import from_json

        async def main():
            folder = Path(sys.argv[1])
            spec = from_json((folder / "spec").read_text())
            engine = open_local(folder / "tiny.gguf", spec, threads=1, kv_folder=folder / "kv")
            async for event in engine.generate(Job([9] * 20, 0)):
                pass
            persistence.os.replace = lambda *paths: os.kill(os.getpid(), signal.SIGKILL)
            await engine.close()

        asyncio.run(main())
    """
    run = subprocess.run([sys.executable, "-c", dedent(script), tmp_path], check=False, timeout=60)
    assert run.returncode == -9
    assert list((tmp_path / "kv").glob("*.part"))
    with caplog.at_level(logging.WARNING):
        engine = tiny()
        events = await collect(engine, Job([1, 2, 3, 4, 5], 1))
    assert events[0].cached_tokens == 4
    assert not caplog.records
    await engine.close()


async def test_a_damaged_file_does_not_stop_the_engine(tiny, tmp_path, caplog):
    engine = tiny()
    await collect(engine, Job([1, 2, 3, 4], 0))
    await engine.close()
    (path,) = (tmp_path / "kv").glob("*.kv")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 4
    path.write_bytes(damaged)
    engine = tiny()
    events = await collect(engine, Job([1, 2, 3, 4, 5], 1))
    assert events[0].cached_tokens == 0
    assert f"{path} is ignored: its checksum is wrong" in caplog.text
    await engine.close()
