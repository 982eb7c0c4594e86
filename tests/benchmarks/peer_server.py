"""llama-cpp-python's server in front of an engine that has every token ready, for bench_server.py.

    python -I -S tests/benchmarks/peer_server.py FOLDER TOKENS [MODEL.gguf]

FOLDER is a site-packages folder for this interpreter that has the server and what makes it fastest,
uvicorn's C parser and event loop:

    python -m pip install --target FOLDER 'llama-cpp-python[server]==0.3.36' uvloop httptools

With -I -S the peer sees no other packages than these. Without a model, `llama_cpp.Llama` is a class whose
chat completion is a list of TOKENS chunks, finished before the first request: nothing is rendered,
tokenized, sampled or detokenized, and what remains is the peer's HTTP side. With one, it is the peer's own
`Llama` with the model's vocabulary and template, and only the tokens come ready, out of `generate`.

One line of JSON goes out: the port, and what the server is made of. It ends when it is told to.
"""

from __future__ import annotations

import importlib.metadata
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

PACKAGES = ("llama-cpp-python", "fastapi", "sse-starlette", "uvicorn")


def ready_class(tokens: int) -> type:
    """What stands for `llama_cpp.Llama` and has the whole reply ready."""

    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
        return {
            "id": "chatcmpl-5f2c1f0e-52d5-4b45-9f0b-0d3c6f9b3f11",
            "model": "empty",
            "created": 1_790_000_000,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }

    reply = [chunk({"role": "assistant"}), *[chunk({"content": " token"})] * tokens, chunk({}, "stop")]

    class Ready:
        def __init__(self, **options: Any) -> None:
            pass

        def create_chat_completion(self, **options: Any) -> Iterator[dict[str, Any]]:
            return iter(reply)

        def close(self) -> None:
            pass

    return Ready


def own_class() -> type:
    """The peer's own `Llama`, whose model says the same token for as long as it may."""
    import llama_cpp

    class Own(llama_cpp.Llama):
        def generate(self, tokens: list[int], **options: Any) -> Iterator[int]:
            (token,) = self.tokenize(b" token", add_bos=False)
            self.n_tokens = len(tokens)
            self.input_ids[: self.n_tokens] = tokens
            while True:
                yield token

    return Own


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    folder, tokens, *model = sys.argv[1:]
    sys.path.insert(0, folder)
    import llama_cpp
    import uvicorn
    from llama_cpp.server.app import create_app
    from llama_cpp.server.settings import ModelSettings, ServerSettings

    llama_cpp.Llama = own_class() if model else ready_class(int(tokens))
    # By default a second request ends the first.
    server = ServerSettings(interrupt_requests=False)
    settings = ModelSettings(
        model=model[0] if model else "empty", n_ctx=2 * int(tokens), logits_all=False, verbose=False
    )
    app = create_app(server_settings=server, model_settings=[settings])
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    config.load()
    listener = socket.create_server(("127.0.0.1", 0), backlog=config.backlog)
    parts = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    parts += [config.http_protocol_class.__name__, config.get_loop_factory().__module__]
    said = {"port": listener.getsockname()[1], "made_of": ", ".join(parts)}
    print(json.dumps(said), file=answers, flush=True)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
