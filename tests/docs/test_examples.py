"""Every example runs as its own program and does what it says."""

import json
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = {"chat.py", "loss_mask.py", "parse_stream.py"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def run(name: str, *arguments) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={"PYTHONIOENCODING": "utf-8", "PATH": ""},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture
def request_file(tmp_path):
    def write(*messages, **fields) -> Path:
        path = tmp_path / "request.json"
        path.write_text(json.dumps({"messages": messages, **fields}), encoding="utf-8")
        return path

    return write


def test_every_example_is_listed_and_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == PROGRAMS
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"]({name})" in listed for name in PROGRAMS)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("arguments", [(), ("a", "b", "c", "d")])
def test_how_an_example_is_used_is_one_sentence(name, arguments):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments], capture_output=True, encoding="utf-8", timeout=60
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"usage: python examples/{name} [^\n]+\n", done.stderr)


def test_a_model_answers(smollm2_path):
    printed = run("chat.py", smollm2_path, "What is the capital of France?")
    assert printed == "The capital of France is Paris.\n(31 characters; stop)\n"


@contextmanager
def completions(pieces, finish_reason="stop"):
    """A server of /v1/completions that streams these pieces; its address and what it was asked."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            chunks = [{"choices": [{"text": piece, "finish_reason": None}]} for piece in pieces]
            chunks.append({"choices": [{"text": "", "finish_reason": finish_reason}]})
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write("".join([": hello\n\n", *lines, "data: [DONE]\n\n"]).encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_foreign_stream_is_parsed(request_file):
    path = request_file({"role": "user", "content": "Weather in Lima?"}, tools=[WEATHER])
    call = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Lima</arg_value></tool_call>"
    reply = f"I ask.</think>Let me see.{call}"
    with completions([reply[at : at + 7] for at in range(0, len(reply), 7)]) as (address, asked):
        printed = run("parse_stream.py", address, "glm47", path).splitlines()
    ((place, body),) = asked
    assert place == "/v1/completions"
    assert body["prompt"].endswith("<|user|>Weather in Lima?<|assistant|><think>")
    assert body["stream"] is True
    kinds = list(dict.fromkeys(line.split("(")[0] for line in printed if not line.startswith("Framing")))
    assert kinds == [
        "ReasoningDelta",
        "TextDelta",
        "ToolCallStart",
        "ToolCallDelta",
        "ToolCallEnd",
        "Finished",
    ]
    assert "reason='tool_calls'" in printed[-1]


def test_a_foreign_stream_that_was_cut(request_file):
    path = request_file({"role": "user", "content": "Hi"})
    with completions(["Thinki"], "length") as (address, _):
        printed = run("parse_stream.py", address, "glm47", path).splitlines()
    assert printed[0].startswith("ReasoningDelta(text='Thinki'")
    assert "reason='length'" in printed[-1]


@pytest.fixture
def tokenizer_file(tmp_path):
    """A byte-level vocabulary without merges, and the special tokens of ChatML."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: number for number, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_loss_is_masked(request_file, tokenizer_file):
    path = request_file(
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye"},
        {"role": "assistant", "content": "See you."},
    )
    assert run("loss_mask.py", "smollm2", tokenizer_file, path) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n»Hello!<|im_end|>«\n"
        "<|im_start|>user\nBye<|im_end|>\n"
        "<|im_start|>assistant\n»See you.<|im_end|>«\n\n"
    )
