"""The origins of characters in the prompts of every variant, on the conversations of the official renders."""

import gzip
import json
import re
from pathlib import Path

import pytest

import colibri
from colibri.errors import ConversationError, RenderError
from colibri.messages import template_messages, template_tools
from colibri.provenance import Segment, trusted_spans

from .segments import check

GOLDENS = Path(__file__).parent.parent / "data" / "goldens"
CASES = json.loads((GOLDENS / "conversations.json").read_text("utf-8"))
PLUGINS = {"gemma4", "gpt_oss", "minimax_m3"}
VARIANTS = sorted(path.name.removesuffix(".jsonl.gz") for path in GOLDENS.glob("*.jsonl.gz"))


@pytest.fixture(scope="module", params=VARIANTS)
def family(request):
    families = colibri.load()
    if request.param in PLUGINS and request.param not in families:
        pytest.skip(f"the plugin of {request.param} is not installed")
    return families[request.param]


def rows(family, *modes):
    """The official renders without options, one for each case and mode, that the format does not refuse."""
    with gzip.open(GOLDENS / f"{family.id}.jsonl.gz", "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [row for row in found if "expected" in row and not row["kwargs"] and row["mode"] in modes]


def rendered(family, case, row):
    conversation = colibri.conversation_from_openai(
        case["messages"], case["tools"], open_last=row["mode"] == "continue"
    )
    return family.render(conversation, cue=row["mode"] == "gen")


def test_every_prompt_is_followed(family):
    for row in rows(family, "gen", "nogen", "continue"):
        prompt = rendered(family, CASES[row["case"]], row)
        variables = {
            "messages": template_messages(prompt.conversation),
            "tools": template_tools(prompt.conversation),
        }
        check(prompt.text, prompt.segments, variables)
        assert prompt.segments != (Segment(0, len(prompt.text), "derived"),), row


def lettered(text, where, found):
    """The text with its letters outside of <tags> replaced by private-use characters, each unique."""
    tags = [range(*match.span()) for match in re.finditer(r"<[^<>]*>|\[[^\]]*\]", text)]
    letters = []
    for at, letter in enumerate(text):
        if letter.isascii() and letter.isalpha() and not any(at in tag for tag in tags):
            letter = chr(0xF0000 + len(found))
            found.append((where, at))
        letters.append(letter)
    return "".join(letters)


def twin(case):
    """The case with every letter that a client wrote made unique, and where each stood."""
    found = []
    messages = json.loads(json.dumps(case["messages"]))
    for number, message in enumerate(messages):
        where = ("messages", number)
        for key in ("content", "reasoning_content"):
            if isinstance(message.get(key), str):
                message[key] = lettered(message[key], (*where, key), found)
        for at, call in enumerate(message.get("tool_calls") or ()):
            arguments = call["function"]["arguments"]
            for key, value in arguments.items() if isinstance(arguments, dict) else ():
                if isinstance(value, str):
                    place = (*where, "tool_calls", at, "function", "arguments", key)
                    arguments[key] = lettered(value, place, found)
    tools = json.loads(json.dumps(case["tools"]))
    for number, tool in enumerate(tools or ()):
        function = tool["function"]
        if "description" in function:
            place = ("tools", number, "function", "description")
            function["description"] = lettered(function["description"], place, found)
    return {"messages": messages, "tools": tools}, found


def test_unique_characters_come_out_where_the_segments_say(family):
    """Independent of the tracing: only the plain render says where each character of a value went."""
    compared = 0
    for row in rows(family, "gen"):
        prompt = rendered(family, CASES[row["case"]], row)
        case, found = twin(CASES[row["case"]])
        try:
            other = rendered(family, case, row).text
        except (RenderError, ConversationError):
            continue
        if len(other) != len(prompt.text):  # a replaced letter was one that the template looks at
            continue
        for s in prompt.segments:
            for at in range(s.start, s.end):
                if (number := ord(other[at]) - 0xF0000) < 0:
                    continue
                path, offset = found[number]
                compared += 1
                assert s.kind in ("value", "derived"), (row, s)
                if path[2:] == ("reasoning_content",) and s.path[2:] == ("thinking",):  # its other name
                    path = s.path
                assert s.path == path[: len(s.path)], (row, s, path)
                if s.offset is not None:
                    assert (s.path, s.offset + at - s.start) == (path, offset), (row, s)
    assert compared > 500


MARKER = re.compile(r"<[|｜/]?[^<>\s]{1,30}>|\[gMASK\]|\]~!?b\]|\[e~\[|\]<\]\w+\[>\[")


def injected(case, text):
    """The case with `text` typed into everything that the model did not write."""
    messages = json.loads(json.dumps(case["messages"]))
    for message in messages:
        if message["role"] != "assistant" and isinstance(message["content"], str):
            message["content"] += f" x{text}x"
    tools = json.loads(json.dumps(case["tools"]))
    for tool in tools or ():
        tool["function"]["description"] = f"x{text}x"
    return {"messages": messages, "tools": tools}


def test_typed_control_tokens_are_not_the_formats(family):
    compared = 0
    for row in rows(family, "gen"):
        prompt = rendered(family, CASES[row["case"]], row)
        tokens = sorted({*family.stops.tokens, *MARKER.findall(prompt.text)})
        typed = "".join(tokens)
        harmless = re.sub(r"[^\n]", "y", typed)
        try:
            real, other = (
                rendered(family, injected(CASES[row["case"]], text), row) for text in (typed, harmless)
            )
        except (RenderError, ConversationError):
            continue
        assert len(real.text) == len(other.text), row
        for token in tokens:
            compared += 1
            assert where(token, real) == where(token, other), (row, token)
    assert compared > 100


def where(token, prompt):
    """Where the token stands in what the format wrote."""
    return [
        start + match.start()
        for start, end in trusted_spans(prompt.segments)
        for match in re.finditer(re.escape(token), prompt.text[start:end])
    ]
