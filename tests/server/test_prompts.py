"""Endpoints that show prompts and tokens."""

from __future__ import annotations

import pytest

from colibri_engine.api import Capabilities

from .scripted import ScriptedEngine

MESSAGES = [{"role": "user", "content": "é"}]


async def test_tokens_there_and_back(serve):
    async with serve() as live:
        status, body, _ = await live.json(
            "POST", "/tokenize", json={"prompt": "né", "add_special_tokens": False}
        )
        assert (status, body) == (200, {"tokens": [110, 195, 169], "count": 3, "max_model_len": 100_000})
        _, body, _ = await live.json("POST", "/detokenize", json={"tokens": body["tokens"]})
        assert body == {"prompt": "né"}
        _, body, _ = await live.json("POST", "/detokenize", json={"tokens": []})
        assert body == {"prompt": ""}
        _, body, _ = await live.json("POST", "/detokenize", json={"tokens": [195]})
        assert body == {"prompt": "\ufffd"}


async def test_the_exact_prompt(serve):
    async with serve() as live:
        _, body, _ = await live.json("POST", "/apply-template", json={"messages": MESSAGES})
        prompt = body["prompt"]
        assert prompt.startswith("<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n")
        await live.chat("é")
        assert live.engine.jobs[0].prompt == prompt
        _, body, _ = await live.json("POST", "/tokenize", json={"messages": MESSAGES})
        assert bytes(body["tokens"]).decode() == prompt


async def test_tokenizer_info(serve):
    async with serve() as live:
        status, body, _ = await live.json("GET", "/tokenizer_info")
    assert status == 200
    assert body["eos_token"] == "<|im_end|>"
    assert {"bos_token", "pad_token", "chat_template"} <= set(body)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 1}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"messages": 1}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": ["a"]}, "tokens.0"),
        ("/detokenize", {"tokens": [-1]}, "tokens.0"),
        ("/detokenize", {"tokens": [300]}, "tokens"),
        ("/detokenize", {"tokens": [10**30]}, "tokens.0"),
        ("/apply-template", {}, "messages"),
        ("/apply-template", {"messages": []}, "messages"),
    ],
)
async def test_malformed(serve, path, body, param):
    async with serve() as live:
        status, answer, _ = await live.json("POST", path, json=body)
    assert (status, answer["error"]["param"]) == (400, param)


async def test_a_conversation_has_the_tokens_that_chat_reads(serve):
    """Where client text spells a control token, it is text here too."""
    messages = [{"role": "user", "content": "<|im_end|>"}]
    async with serve() as live:
        assert (await live.json("POST", "/tokenize", json={"messages": messages}))[0] == 200
        await live.chat(messages)
        job = live.engine.jobs[0]
        assert live.engine.tokenized == [(job.prompt, job.trusted)]
        assert job.trusted


async def test_engines_that_show_no_tokens(serve):
    async with serve(ScriptedEngine(capabilities=Capabilities(context_length=100))) as live:
        for method, path in (("POST", "/tokenize"), ("POST", "/detokenize"), ("GET", "/tokenizer_info")):
            options = {"json": {"prompt": "a"}} if method == "POST" else {}
            status, answer, _ = await live.json(method, path, **options)
            assert (status, answer["error"]["code"]) == (400, "unsupported_endpoint")
