"""Opening a model, whichever format it comes in."""

import os
import subprocess
import sys

import pytest

from colibri_engine.checkpoint import open_checkpoint
from colibri_engine.errors import CheckpointError

from .writers import entry, folder, gguf, safetensors, string, tensor, u32

PAIRS = {"general.architecture": string("small"), "tokenizer.chat_template": string("{{ x }}")}
FILES = {
    "config.json": {"model_type": "small"},
    "model.safetensors": safetensors({"a": entry("F32", [2], 0, 8)}, bytes(8)),
}


def write(path, data):
    path.write_bytes(data)
    return path


def test_gguf_file(tmp_path):
    path = write(tmp_path / "m.gguf", gguf(PAIRS, [tensor("a", [2], 0, 0)], b"12345678"))
    with open_checkpoint(str(path)) as checkpoint:
        assert (checkpoint.path, checkpoint.format, checkpoint.architecture) == (path, "gguf", "small")
        assert checkpoint.chat_template == "{{ x }}"
        assert checkpoint.config["general.architecture"] == "small"
        assert bytes(checkpoint.data("a")) == b"12345678"
        with pytest.raises(CheckpointError, match=r"m\.gguf: there is no tensor b"):
            checkpoint.data("b")


def test_what_was_given_outlives_close(tmp_path):
    checkpoint = open_checkpoint(
        write(tmp_path / "m.gguf", gguf(PAIRS, [tensor("a", [2], 0, 0)], b"12345678"))
    )
    data = checkpoint.data("a")
    checkpoint.close()
    assert bytes(data) == b"12345678"


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": {}}, None),
        ({"tokenizer_config.json": {"chat_template": "one"}}, "one"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "rag", "template": "x"},
                        {"name": "default", "template": "two"},
                    ]
                }
            },
            "two",
        ),
        ({"tokenizer_config.json": {"chat_template": "one"}, "chat_template.jinja": b"drei\n"}, "drei\n"),
    ],
)
def test_chat_template_of_a_folder(tmp_path, files, template):
    with open_checkpoint(folder(tmp_path, FILES | files)) as checkpoint:
        assert checkpoint.chat_template == template


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty; download it again"),
        (gguf({}), "general.architecture is missing"),
        (gguf({"general.architecture": u32(1)}), "general.architecture must be a string, not 1"),
        (
            gguf(PAIRS | {"tokenizer.chat_template": u32(1)}),
            "tokenizer.chat_template must be a string, not 1",
        ),
    ],
)
def test_bad_gguf_files_are_refused(tmp_path, data, problem):
    path = write(tmp_path / "m.gguf", data)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert str(path) in caught.value.message
    assert problem in caught.value.message


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"none does not exist; expected a \.gguf file or a model folder"
    ):
        open_checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"none\.gguf cannot be read: No such file or directory"):
        open_checkpoint(tmp_path / "none.gguf")
    with pytest.raises(CheckpointError, match=r"is neither a \.gguf file nor a model folder"):
        open_checkpoint(write(tmp_path / "model.bin", b"x"))


def test_a_pipe_does_not_hang_the_reader(tmp_path):
    os.mkfifo(tmp_path / "m.gguf")
    with pytest.raises(CheckpointError, match=r"m\.gguf is not a regular file"):
        open_checkpoint(tmp_path / "m.gguf")
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        open_checkpoint(tmp_path)


def test_fingerprint_depends_on_content_alone(tmp_path):
    data = gguf(PAIRS, [tensor("a", [1 << 18], 0, 0)], bytes(1 << 20))
    with open_checkpoint(write(tmp_path / "m.gguf", data)) as first:
        print_of_first = first.fingerprint()
        assert first.fingerprint() == print_of_first
    with open_checkpoint(write(tmp_path / "moved.gguf", data)) as moved:
        assert moved.fingerprint() == print_of_first
    prints = {print_of_first}
    renamed = data.replace(b"\x01\0\0\0\0\0\0\0a", b"\x01\0\0\0\0\0\0\0b")
    for index, other in enumerate(
        (data[:-1] + b"\1", data + b"\0", renamed, data.replace(b"small", b"large"))
    ):
        with open_checkpoint(write(tmp_path / f"{index}.gguf", other)) as checkpoint:
            prints.add(checkpoint.fingerprint())
    assert len(prints) == 5


def test_reading_headers_needs_neither_numpy_nor_tokenizers():
    code = (
        "import sys, colibri_engine.checkpoint, colibri_engine.spec;"
        "print([name for name in ('numpy', 'tokenizers', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
