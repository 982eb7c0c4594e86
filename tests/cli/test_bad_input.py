import socket
import struct
from importlib.resources import files

import pytest

import colibri_smollm2

MESSAGES = '{"messages": [{"role": "user", "content": "Hi"}]}'


def gguf(architecture: str) -> bytes:
    """A GGUF file of one key and no tensors."""

    def text(words: str) -> bytes:
        return struct.pack("<Q", len(words)) + words.encode()

    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    return header + text("general.architecture") + struct.pack("<I", 8) + text(architecture)


@pytest.mark.parametrize("command", ["run", "chat", "serve"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("cut.gguf", gguf("llama")[:-3], "cut.gguf"),
        ("empty.gguf", b"", "empty.gguf"),
        ("other.gguf", b"PK\x03\x04" + bytes(100), "other.gguf"),
        ("martian.gguf", gguf("martian"), "'martian': no installed family knows it; installed families: "),
    ],
    ids=["cut", "empty", "zip", "martian"],
)
def test_a_model_that_cannot_be_read(refused, tmp_path, command, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    arguments = [command, "--model", str(path), *(["Hi"] if command == "run" else [])]
    assert words in refused(*arguments)
    assert path.read_bytes() == content


@pytest.mark.parametrize("command", ["run", "chat", "serve", "render", "parse"])
def test_a_model_that_is_not_there(refused, command):
    sentence = refused(command, "--model", "nowhere.gguf", input=MESSAGES)
    assert sentence.startswith("nowhere.gguf: no such file or folder; name a checkpoint, or one of")
    assert "smollm2" in sentence


@pytest.mark.parametrize("command", ["run", "render", "parse", "chat", "serve"])
def test_a_family_that_is_not_installed_is_told_before_anything_is_fetched(refused, command, index):
    sentence = refused(command, "--family", "zebra", input=MESSAGES)
    assert sentence.startswith("no family is called 'zebra'; installed: ")
    assert "smollm2" in sentence
    assert index.calls == []


BROKEN_PLUGIN = """
from pathlib import Path
from colibri import hookimpl, load_family

@hookimpl
def colibri_families():
    return [load_family(Path({folder!r}) / "smollm2.toml")]
"""


def test_a_template_with_a_syntax_error_names_file_and_line(refused, install, tmp_path):
    for file in files(colibri_smollm2).iterdir():
        if file.name.endswith((".toml", ".jinja")):
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "smollm2.jinja").write_text("{% for turn in messages %}\n{{ turn.content }\n{% endfor %}")
    data = tmp_path / "smollm2.toml"
    data.write_text(data.read_text().replace('id = "smollm2"', 'id = "broken"'))
    install("colibri-broken", BROKEN_PLUGIN.format(folder=str(tmp_path)))
    sentence = refused("render", "--disable-plugin", "colibri-smollm2", "--family", "broken", input=MESSAGES)
    assert sentence == "smollm2.jinja, line 2: unexpected '}'"


BROKEN_REQUESTS = [
    (b"", "line 1 column 1"),
    (b'{"messages":\n [}', "line 2 column 3"),
    (b'{"messages": NaN}', "NaN"),
    (b'{"messages": [], "messages": []}', "`messages` occurs twice"),
    (b'\xff{"messages": []}', "byte 0"),
    (b"[" * 5000, "nests"),
    (b"[]", "must be a JSON object"),
    (b'{"messages": {}}', "`messages` must be a list"),
    (b'{"messages": ["hi"]}', "`messages.0` must be an object"),
    (b'{"messages": [{"role": 5}]}', "`messages.0.role`"),
    (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "surrogate"),
    (b'{"messages": [], "tools": 1}', "`tools` must be a list"),
    (b'{"messages": [], "reasoning_effort": 3}', "`reasoning_effort` must be"),
    (b'{"messages": [], "chat_template_kwargs": []}', "`chat_template_kwargs` must be an object"),
    (b'{"messages": [], "enable_thinking": "yes"}', "`enable_thinking` must be true or false"),
    (b'{"messages": [], "chat_template_kwargs": {"tools": []}}', "`chat_template_kwargs.tools` is not"),
]


@pytest.mark.parametrize(("body", "words"), BROKEN_REQUESTS)
@pytest.mark.parametrize("command", ["render", "parse"])
def test_a_broken_request_is_named_with_its_place(refused, tmp_path, body, words, command):
    file = tmp_path / "request.json"
    file.write_bytes(body)
    where = [str(file)] if command == "render" else ["--request", str(file)]
    assert words in refused(command, "--family", "qwen36", *where, input="a reply")


def test_a_request_without_messages_renders_nothing(refused):
    assert "`messages` must be a list" in refused("render", "--family", "qwen36", input="{}")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("not json", "stdin line 2 is not JSON: Expecting value at column 1"),
        ('{"text": 5}', "stdin line 2: a recorded chunk is"),
        ("[1]", "stdin line 2: a recorded chunk is"),
        ('{"choices": [3]}', "stdin line 2: a recorded chunk is"),
        ('{"text": "a", "control": "yes"}', "stdin line 2: a recorded chunk is"),
        ('data: {"choices": [{"text": {}}]}', "stdin line 2: a recorded chunk is"),
        ("[" * 100_000, "stdin line 2 nests too deep"),
    ],
)
def test_a_broken_recording_names_the_line(refused, line, words):
    assert words in refused("parse", "--family", "smollm2", "--stream", input=f'"fine"\n{line}\n')


def test_bytes_that_are_no_text_are_named(refused):
    sentence = refused("parse", "--family", "smollm2", input=b"fine \xe9\xff")
    assert sentence == "stdin: byte 5 is not UTF-8 text"


@pytest.mark.parametrize("command", ["render", "parse"])
def test_files_that_cannot_be_read_are_named(refused, tmp_path, command):
    absent = str(tmp_path / "absent.json")
    assert refused(command, "--family", "smollm2", absent) == f"{absent}: No such file or directory"
    assert refused(command, "--family", "smollm2", str(tmp_path)) == f"{tmp_path}: Is a directory"


def test_a_start_that_contradicts_the_request(refused, tmp_path):
    file = tmp_path / "request.json"
    file.write_text(MESSAGES)
    sentence = refused("parse", "--family", "qwen36", "--start", "text", "--request", str(file), input="x")
    assert "--start contradicts --request" in sentence


def test_a_port_in_use_is_named(refused, smollm2_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = refused("serve", "--model", smollm2_path, "--port", str(port))
    assert f"`port` {port} on 127.0.0.1 is in use" in sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "70000"], "`port` must be a whole number from 0 to 65535, not 70000"),
        (["--kv-slots", "many"], "'many' is not a valid integer"),
        (["--config", "absent.toml"], "absent.toml: cannot be read"),
        (["--host", "0.0.0.0"], "key"),
        (["--engine", "steam"], "'steam' is not one of 'process', 'local'"),
        (["--port", "0", "--engine-cmd", "true"], "the engine exited with status 0 before it was ready"),
    ],
)
def test_settings_that_do_not_fit(refused, smollm2_path, arguments, words):
    assert words in refused("serve", "--model", smollm2_path, *arguments)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--redact",), "--redact says how --record keeps a reply; name a file with --record"),
        (("--events", "--explain"), "--events and --explain are two ways to show one reply; drop one"),
    ],
)
def test_options_of_parse_that_do_not_go_together(refused, options, sentence):
    assert refused("parse", "--family", "smollm2", *options, input="x") == sentence


def test_a_recording_of_another_version(refused):
    sentence = refused("parse", "--family", "smollm2", input='{"colibri_recording": 2}\n')
    assert sentence == "stdin line 1: no recording of version 1; record the reply again"
