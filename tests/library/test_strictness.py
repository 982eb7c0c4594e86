"""What strict callers refuse about the form of calls, and what the lenient may have salvaged."""

import pytest

from colibri.conversation import Tool
from colibri.parser import Parser
from colibri.reply import fold
from colibri.strictness import form_fault

from .replies import cases, check_laws, grammar, read, read_case, tools

STRAY = "incomplete or stray tool marker"
SYNTAX = "malformed argument syntax"
PAIR = "<arg_key>shelf</arg_key><arg_value>A1</arg_value>"


@pytest.mark.parametrize(
    ("raw", "reason", "fault"),
    [
        ("Just words.", "stop", None),
        (f"Words.<tool_call>find_folio{PAIR}</tool_call>", "stop", None),
        ("<tool_call>list_stacks</tool_call>\n<tool_call>list_stacks</tool_call>", "stop", None),
        (f"<tool_call>find_folio{PAIR}", "stop", STRAY),
        ("<tool_call>list_stacks", "stop", STRAY),
        (f"<tool_call>find_folio{PAIR}", "length", STRAY),
        ("<tool_call>find_fo", "length", STRAY),
        ("Use <tool_call> for it.", "stop", STRAY),
        (f"{PAIR}</tool_call>", "stop", STRAY),
        ("<tool_call>find_folio<arg_key>shelf</arg_key>A1</arg_value></tool_call>", "stop", SYNTAX),
        ("<tool_call>find_folio<arg_key>shelf</arg_key></tool_call>", "stop", SYNTAX),
        (
            "<tool_call>find_folio<arg_key>shelf</arg_key></arg_key><arg_value>A1</arg_value></tool_call>",
            "stop",
            SYNTAX,
        ),
        (f"<tool_call>find_folio{PAIR}<tool_call>list_stacks</tool_call>", "stop", SYNTAX),
        (
            f"<tool_call>find_folio{PAIR.replace('A1', 'a </arg_value> b')}</tool_call>",
            "stop",
            None,
        ),
    ],
)
def test_form(raw: str, reason: str, fault: str | None) -> None:
    events = read(Parser(grammar("glm47"), tools("tools3"), start="text"), [raw], reason)
    check_laws(events, raw)
    assert form_fault(events, grammar("glm47")) == fault


def test_well_formed_recorded_calls_have_no_fault() -> None:
    plain = {"single_call", "parallel_calls", "typed_arguments", "zero_arguments", "content_before_call"}
    for case in cases():
        if case["kind"] in plain and case["family"] != "gpt_oss":
            assert form_fault(read_case(case), grammar(case["family"])) is None, case["id"]


@pytest.mark.parametrize("name", ["qwen3_xml", "mimo_v2", "deepseek_v4", "kimi_k3", "gemma4", "gpt_oss"])
def test_ordinary_text_that_a_call_would_also_hold_is_no_stray_marker(name: str) -> None:
    raw = 'f(x) > 0: <a href="/">{"b": 1}</a> to " />'
    events = read(Parser(grammar(name), tools("tools3"), start="text"), [raw], "stop")
    assert fold(events).content == raw
    assert form_fault(events, grammar(name)) is None


def tool(name: str, properties: dict[str, object], required: list[str]) -> Tool:
    parameters = {"type": "object", "properties": properties, "required": required}
    return Tool({"type": "function", "function": {"name": name, "parameters": parameters}})


TOOLS = [
    tool("find", {"limit": {"type": "integer"}, "shelf": {"type": "string"}}, ["shelf"]),
    tool("count", {"n": {"type": "integer"}}, []),
    tool("ping", {}, []),
]


@pytest.mark.parametrize(
    ("box", "name", "arguments"),
    [
        ("find(A1)", "find", '{"shelf": "A1"}'),
        ("find\n A 1 ", "find", '{"shelf": "A 1"}'),
        ("find<arg_value>A1</arg_value>", "find", '{"shelf": "A1"}'),
        ("find<arg_key>A1</arg_key>", "find", '{"shelf": "A1"}'),
        ("count (12)", "count", '{"n": 12}'),
        ("count twelve", "count", '{"n": "twelve"}'),
        ("ping (1)", "ping", '{"input": 1}'),
        ("ping", "ping", "{}"),
        ("find<arg_key>shelf</arg_key><arg_value>A1</arg_value>", "find", '{"shelf": "A1"}'),
    ],
)
def test_salvage(box: str, name: str, arguments: str) -> None:
    raw = f"Hm.<tool_call>{box}</tool_call>"
    for pieces in ([raw], list(raw)):
        events = read(Parser(grammar("glm47"), TOOLS, start="text", salvage=True), pieces, "stop")
        check_laws(events, raw)
        said = fold(events)
        assert said.content == "Hm."
        assert [(call.name, call.arguments) for call in said.tool_calls] == [(name, arguments)]


def test_nothing_is_salvaged_unasked() -> None:
    raw = "<tool_call>find(A1)</tool_call>"
    said = fold(read(Parser(grammar("glm47"), TOOLS, start="text"), [raw], "stop"))
    assert (said.content, said.tool_calls) == (raw, ())


def test_prose_about_a_tool_is_not_salvaged() -> None:
    raw = "Write <tool_call>find and then " + "more words " * 40 + "</tool_call>"
    said = fold(read(Parser(grammar("glm47"), TOOLS, start="text", salvage=True), [raw], "stop"))
    assert said.content == raw
