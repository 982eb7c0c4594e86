"""Rendering 60 turns with 20 tools: plain, traced, for the first time, and against transformers.

    python tests/benchmarks/bench_render.py [FAMILY=OFFICIAL_TEMPLATE ...]

Prints numbers; asserts nothing. trace/x is what reading the segments costs, in renders. Without arguments
all installed families are measured. For a family with its official template, and with transformers
importable, two ratios are added: our first render against jinja's own compiling and
rendering of it, and `apply_chat_template`'s rendering of it against ours.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import datetime
from pathlib import Path

import colibri
from colibri.messages import template_messages, template_tools
from colibri.sandbox import ChatEnvironment
from colibri.templates import ChatTemplate

TURNS, TOOLS, ROUNDS = 60, 20, 15
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    '"lazy"',
    "dogs;",
    "code()",
    "{x:",
    "1}",
    "and\nnew",
    "日本語",
]


def words(dice, number):
    return " ".join(dice.choice(WORDS) for _ in range(number))


def tool(dice, number):
    properties = {f"p{at}": {"type": "string", "description": words(dice, 12)} for at in range(8)}
    parameters = {"type": "object", "properties": properties, "required": ["p0"]}
    function = {"name": f"tool_{number}", "description": words(dice, 30), "parameters": parameters}
    return {"type": "function", "function": function}


def call(dice, number):
    arguments = {"query": words(dice, 8), "limit": 5, "deep": {"a": [1, 2, 3], "b": True}}
    function = {"name": f"tool_{number % TOOLS}", "arguments": arguments}
    return {"id": f"c{number}", "type": "function", "function": function}


def conversation(with_tools):
    """As a coding agent has it: a system turn, then user, assistant with a call, and its result."""
    dice = random.Random(1)
    messages = [{"role": "system", "content": words(dice, 200)}]
    for number in range(TURNS // 3):
        messages.append({"role": "user", "content": words(dice, 120)})
        answer = {"role": "assistant", "content": "", "reasoning_content": words(dice, 120)}
        if with_tools:
            messages.append(answer | {"tool_calls": [call(dice, number)]})
            result = {"role": "tool", "tool_call_id": f"c{number}", "name": f"tool_{number % TOOLS}"}
            messages.append(result | {"content": words(dice, 120)})
        else:
            messages.append(answer | {"content": words(dice, 120)})
    messages = [*messages[: TURNS - 1], {"role": "user", "content": "go"}]
    tools = [tool(dice, number) for number in range(TOOLS)] if with_tools else None
    return colibri.conversation_from_openai(messages, tools)


def interleaved(*functions):
    """The shortest time of each in milliseconds, measured in turns."""
    times = [[] for _ in functions]
    for _ in range(ROUNDS):
        for function, taken in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            taken.append(time.process_time() - start)
    return [min(taken) * 1000 for taken in times]


def measured(family, official):
    given = conversation(family.features.tools)
    prompt = family.render(given)
    plain, traced = interleaved(lambda: family.render(given), lambda: family.render(given).segments)
    line = (
        f"{family.id:20} {len(prompt.text):8} {len(prompt.segments):8} {plain:9.2f} {traced / plain - 1:7.2f}"
    )
    if official is None:
        return line
    messages, tools = template_messages(given), template_tools(given)

    def first_official():
        environment = ChatEnvironment({}, datetime.now)
        environment.optimized = True  # as jinja does by itself
        environment.from_string(official).render(messages=messages, tools=tools, add_generation_prompt=True)

    def first_own():
        fresh = ChatTemplate(family.template.source, name="fresh", loader=family.template.loader)
        fresh.render(messages, tools, add_generation_prompt=True)

    ours, theirs = interleaved(first_own, first_official)
    line += f" {ours:8.1f} {ours / theirs:8.2f}"
    try:
        from transformers.utils.chat_template_utils import render_jinja_template
    except ImportError:
        return line

    def transformers():
        render_jinja_template([messages], tools=tools, chat_template=official, add_generation_prompt=True)

    ours, theirs = interleaved(lambda: family.render(given), transformers)
    return f"{line} {theirs / ours:8.2f}"


def main(arguments):
    families = colibri.load()
    officials = {name: Path(path).read_text("utf-8") for name, path in (a.split("=") for a in arguments)}
    print(f"{'family':20} {'chars':>8} {'segments':>8} {'render/ms':>9} {'trace/x':>7}", end="")
    print(f" {'first/ms':>8} {'/jinja':>8} {'hf/ours':>8}" if officials else "")
    for name in officials or sorted(families.keys()):
        print(measured(families[name], officials.get(name)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
