"""Seconds that the reply parsers of vLLM and SGLang take, for bench_parse.py to set beside ours.

    PYTHON tests/benchmarks/peers_parse.py

runs under an interpreter that has vLLM, SGLang or both. Their parsers need no accelerator, only
what the packages import at the start. Each line of standard input is a JSON object with dialect,
opening, body and closing; each is answered by a line with the seconds of every peer. The first line out
says which peers were found, and why others were not. Each peer reads as its server would have it: vLLM
gets the token ids beside the text, SGLang the text alone.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

SIZE = 4
NAMES = {
    "vllm": {
        "glm47": ("glm47", "glm47"),
        "qwen3_xml": ("qwen3", "qwen3_xml"),
        "kimi_k3": ("kimi_k3", "kimi_k3"),
        "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    },
    "sglang": {
        "glm47": ("glm45", "glm47"),
        "qwen3_xml": ("qwen3", "qwen3_coder"),
        "kimi_k3": ("kimi_k3", "kimi_k3"),
        "deepseek_v4": ("deepseek-v4", "deepseekv4"),
    },
}
"""The names of each peer's reasoning parser and tool call parser."""
SPECIAL = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|open|>", "<|close|>", "<|sep|>", "｜DSML｜"),
)
"""Markers that are one token in the vocabularies of these families."""
PARAMETERS = {"type": "object", "properties": {"body": {"type": "string"}, "n": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "save", "parameters": PARAMETERS}}

Read = Callable[[], Iterator[str]]


class Tokenizer:
    """A vocabulary of the special tokens, and one more token for each piece of text."""

    chat_template = None
    all_special_tokens: tuple[str, ...] = ()
    all_special_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.texts = list(SPECIAL)
        self.ids = {text: token for token, text in enumerate(SPECIAL)}
        self.split = re.compile(f"({'|'.join(map(re.escape, SPECIAL))})").split

    def get_vocab(self) -> dict[str, int]:
        return self.ids

    def decode(self, tokens: list[int], **options: Any) -> str:
        return "".join(self.texts[token] for token in tokens)

    def encode(self, text: str, **options: Any) -> list[int]:
        return [token for _, token in self.pieces(text)]

    def pieces(self, text: str) -> list[tuple[str, int]]:
        """The text in tokens: special ones, and SIZE characters of what lies between them."""
        parts = [
            part if part in SPECIAL else part[at : at + SIZE]
            for part in self.split(text)
            for at in ((0,) if part in SPECIAL else range(0, len(part), SIZE))
        ]
        for part in parts:
            if part not in self.ids:
                self.ids[part] = len(self.texts)
                self.texts.append(part)
        return [(part, self.ids[part]) for part in parts]


def vllm_reader() -> Callable[[str, str], Read]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser import ParserManager

    tokenizer = Tokenizer()
    request = ChatCompletionRequest(
        model="m", messages=[{"role": "user", "content": "x"}], tools=[TOOL], tool_choice="auto"
    )

    parsers = {
        dialect: ParserManager.get_parser(
            tool_parser_name=tools, reasoning_parser_name=reasoning, enable_auto_tools=True
        )
        for dialect, (reasoning, tools) in NAMES["vllm"].items()
    }

    def prepare(dialect: str, raw: str) -> Read:
        parser = parsers[dialect](tokenizer, request.tools, chat_template_kwargs={"thinking": True})
        pieces = [(text, [token]) for text, token in tokenizer.pieces(raw)]

        def read() -> Iterator[str]:
            for at, (text, tokens) in enumerate(pieces, 1):
                delta = parser.parse_delta(text, tokens, request, [], finished=at == len(pieces))
                for call in delta.tool_calls if delta else ():
                    yield call.function.arguments or ""

        return read

    return prepare


def sglang_reader() -> Callable[[str, str], Read]:
    from sglang.srt.entrypoints.openai.protocol import Tool
    from sglang.srt.function_call.function_call_parser import FunctionCallParser
    from sglang.srt.parser.reasoning_parser import ReasoningParser

    tool = Tool.model_validate(TOOL)

    def prepare(dialect: str, raw: str) -> Read:
        reasoning, tools = NAMES["sglang"][dialect]
        thoughts = ReasoningParser(reasoning, True, True, tool_call_parser_active=True)
        parser = FunctionCallParser([tool], tools)
        pieces = [raw[at : at + SIZE] for at in range(0, len(raw), SIZE)]

        def read() -> Iterator[str]:
            for text in pieces:
                _, rest = thoughts.parse_stream_chunk(text)
                for call in parser.parse_stream_chunk(rest)[1] if rest else ():
                    yield call.parameters
            for call in parser.parse_stream_end()[1]:
                yield call.parameters

        return read

    return prepare


READERS = {"vllm": vllm_reader, "sglang": sglang_reader}


def measure(prepare: Callable[[str, str], Read], order: dict[str, str]) -> float | str:
    """Processor time of one parse, or what was wrong with its result."""
    read = prepare(order["dialect"], order["opening"] + order["body"] + order["closing"])
    began = time.process_time()
    found = list(read())
    took = time.process_time() - began
    try:
        right = json.loads("".join(found))["body"].strip() == order["body"].strip()
    except (ValueError, KeyError, TypeError):
        right = False
    return took if right else f"wrong arguments: {''.join(found)[:80]!r}"


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    ready: dict[str, Callable[[str, str], Read]] = {}
    said: dict[str, str] = {}
    for peer, make in READERS.items():
        try:
            ready[peer] = make()
            said[peer] = importlib.metadata.version(peer)
        except Exception as error:
            said[peer] = f"not measured, {type(error).__name__}: {error}"
    logging.disable(logging.CRITICAL)
    print(json.dumps(said), file=answers, flush=True)
    # What the peers' imports left behind is no part of their parsers' cost.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        order = json.loads(line)
        print(
            json.dumps({peer: measure(prepare, order) for peer, prepare in ready.items()}),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
