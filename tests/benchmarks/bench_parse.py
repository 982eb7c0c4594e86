"""What reading a reply costs: microseconds a character, by dialect and length, and the worst inputs.

    python tests/benchmarks/bench_parse.py [dialect ...]
    python tests/benchmarks/bench_parse.py --peers PYTHON

Each reply is one call with one string argument, fed 4 characters at a time. Rounds over all lengths
alternate and the fastest counts, because a shared machine's speed changes; what must stay near 1 is the
ratio of long to short. The adversarial replies come one character at a time.

With --peers, the parsers of vLLM and SGLang read the same replies in turn with ours, in a process of the
interpreter PYTHON, which has them installed; a peer's seconds over ours is the ratio.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from library.replies import grammar

from colibri.conversation import Tool
from colibri.events import TextDelta
from colibri.parser import Parser

LENGTHS = (8_000, 64_000, 1_000_000)
PEER_LENGTHS = (8_000, 16_000, 32_000)
PEER_DIALECTS = ("glm47", "qwen3_xml", "kimi_k3", "deepseek_v4")
ROUNDS = 5
CODE = "def mix(a, b):\n    if a < b and b > 0:\n        return [a, b]\n"
TOOL = Tool(
    {
        "type": "function",
        "function": {
            "name": "save",
            "parameters": {
                "type": "object",
                "properties": {"body": {"type": "string"}, "n": {"type": "integer"}},
            },
        },
    }
)
NS = "]<]minimax[>["

OPENINGS = {
    "glm47": "x</think><tool_call>save<arg_key>body</arg_key><arg_value>",
    "qwen3_xml": "x\n</think>\n\n<tool_call>\n<function=save>\n<parameter=body>\n",
    "mimo_v2": "x</think><tool_call>\n<function=save>\n<parameter=body>",
    "deepseek_v4": 'x</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="save">\n'
    '<｜DSML｜parameter name="body" string="true">',
    "kimi_k3": "x<|close|>think<|sep|><|open|>tools<|sep|>"
    '<|open|>call tool="save" index="1"<|sep|><|open|>argument key="body" type="string"<|sep|>',
    "inkling": '<|content_invoke_tool_json|>{"name":"save","args":{"body": "',
    "gpt_oss": '<|channel|>commentary to=functions.save<|message|>{"body": "',
    "minimax_m3": f'x</mm:think>{NS}<tool_call>{NS}<invoke name="save">{NS}<body>',
    "gemma4": 'x<channel|><|tool_call>call:save{body:<|"|>',
    "kimi_k2": "x</think><|tool_calls_section_begin|><|tool_call_begin|>functions.save:0"
    '<|tool_call_argument_begin|>{"body": "',
    "hermes_json": 'x</think><tool_call>{"name": "save", "arguments": {"body": "',
    "chatml": "",
}
CLOSINGS = {
    "glm47": "</arg_value></tool_call>",
    "qwen3_xml": "\n</parameter>\n</function>\n</tool_call>",
    "mimo_v2": "</parameter></function></tool_call>",
    "deepseek_v4": "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    "kimi_k3": "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>",
    "inkling": '"}}<|end_message|>',
    "gpt_oss": '"}<|call|>',
    "minimax_m3": f"{NS}</body>{NS}</invoke>{NS}</tool_call>",
    "gemma4": '<|"|>}<tool_call|>',
    "kimi_k2": '"}<|tool_call_end|><|tool_calls_section_end|>',
    "hermes_json": '"}}</tool_call>',
    "chatml": "",
}
JSON_BODIES = ("inkling", "gpt_oss", "kimi_k2", "hermes_json")
OWN_START = ("inkling", "gpt_oss")

ADVERSARIAL = {
    "closer and blanks": ("glm47", OPENINGS["glm47"], "</arg_value>" + " " * 250),
    "opener and a word": ("glm47", "x</think>", "<tool_call>" + "y" * 120),
    "openers only": ("glm47", "x</think>", "<tool_call>"),
    "half marks": ("qwen3_xml", OPENINGS["qwen3_xml"], "\n</parameter"),
    "newlines": ("qwen3_xml", "x\n</think>\n\n", "\n"),
    "brackets in JSON": ("inkling", '<|content_invoke_tool_json|>{"name":"save","args":{"body": ', "["),
    "escapes in JSON": ("inkling", OPENINGS["inkling"], '\\"\\\\'),
    "nested elements": ("minimax_m3", OPENINGS["minimax_m3"].replace("<body>", "<n>"), f"{NS}<n>"),
    "held value": ("glm47", OPENINGS["glm47"].replace("body", "n"), "1"),
}


def argument(length: int) -> str:
    return (CODE * (length // len(CODE) + 1))[:length]


def reply(dialect: str, length: int) -> str:
    body = argument(length)
    return (
        OPENINGS[dialect] + (json.dumps(body)[1:-1] if dialect in JSON_BODIES else body) + CLOSINGS[dialect]
    )


def seconds(dialect: str, raw: str, size: int) -> float:
    """Processor time of one parse."""
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    start = None if dialect in OWN_START else "text" if dialect == "chatml" else "reasoning"
    parser = Parser(grammar(dialect), [TOOL], start=start)
    feed = parser.feed
    began = time.process_time()
    for piece in pieces:
        feed(piece)
    parser.finish("stop")
    return time.process_time() - began


def floor(raw: str, size: int) -> float:
    """Processor time of the least that any reader does: search each piece, keep it as an object."""
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    search = re.compile("<(?:/|t)").search
    began = time.process_time()
    for piece in pieces:
        if search(piece) is None:
            TextDelta(piece, 0, 4)
    return time.process_time() - began


def rates(dialect: str, raws: Sequence[str], size: int) -> list[float]:
    """Microseconds a character for each reply, the best of alternating rounds."""
    best = [1e9] * len(raws)
    for _ in range(ROUNDS):
        for at, raw in enumerate(raws):
            best[at] = min(best[at], seconds(dialect, raw, size) / len(raw) * 1e6)
    return best


def against_peers(python: str) -> None:
    """Print the ratios of the peers' seconds to ours, each the best of rounds in which all take turns."""
    script = Path(__file__).with_name("peers_parse.py")
    with subprocess.Popen(
        [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for peer, found in json.loads(child.stdout.readline()).items():
            print(f"{peer}: {found}")
        print("\nreply               ours, ms   peer, ms   peer/ours, and the least of any round")
        for dialect in PEER_DIALECTS:
            for length in PEER_LENGTHS:
                parts = {"opening": OPENINGS[dialect], "closing": CLOSINGS[dialect], "body": argument(length)}
                ours, theirs = [], []
                for _ in range(ROUNDS):
                    ours.append(seconds(dialect, reply(dialect, length), 4))
                    print(json.dumps({"dialect": dialect, **parts}), file=child.stdin, flush=True)
                    theirs.append(json.loads(child.stdout.readline()))
                for peer in theirs[0]:
                    took = [answer[peer] for answer in theirs]
                    if isinstance(took[0], str):
                        print(f"{dialect:12} {length:>6,}   {peer}: {took[0]}")
                        continue
                    least = min(peers / own for own, peers in zip(ours, took, strict=True))
                    print(
                        f"{dialect:12} {length:>6,}{1e3 * min(ours):9.1f}{1e3 * min(took):11.1f}"
                        f"{min(took) / min(ours):11.1f}{least:8.1f}   {peer}"
                    )


def alone(names: Sequence[str]) -> None:
    """Print what a character costs by length, then the adversarial replies."""
    print("dialect       ", *(f"{length:>9,}" for length in LENGTHS), "  long/short   x floor")
    for name in names:
        raws = [reply(name, length) for length in LENGTHS]
        found = rates(name, raws, 4)
        least = min(floor(raws[1], 4) / len(raws[1]) * 1e6 for _ in range(ROUNDS))
        print(
            f"{name:14}",
            *(f"{rate:9.2f}" for rate in found),
            f"{found[-1] / found[0]:10.2f}{min(found) / least:10.1f}",
        )
    print("\nadversarial, by 1 character: microseconds a character at 16k and 131k characters")
    for name, (dialect, opening, unit) in ADVERSARIAL.items():
        short, long = rates(dialect, [opening + unit * (size // len(unit)) for size in (16_384, 131_072)], 1)
        print(f"{name:20} {short:6.2f} {long:6.2f}   {long / short:5.2f}")


def main() -> None:
    options = argparse.ArgumentParser(description="What reading a reply costs, by dialect and length.")
    options.add_argument("dialects", nargs="*", default=list(OPENINGS), metavar="dialect")
    options.add_argument("--peers", metavar="PYTHON", help="an interpreter that has vLLM or SGLang")
    given = options.parse_args()
    if given.peers:
        against_peers(given.peers)
    else:
        alone(given.dialects)


if __name__ == "__main__":
    main()
