"""Calls: when they begin, end and break, what they are named, and what becomes of their arguments."""

import itertools
import json
from typing import Any

import pytest

from colibri.conversation import Tool
from colibri.elements import DEPTH_LIMIT
from colibri.events import Event, ToolCallBroken, ToolCallDelta, ToolCallEnd, ToolCallStart
from colibri.parser import Parser, new_call_id
from colibri.reply import BrokenCall, Reply, ReplyCall, fold, join
from colibri.states import WORD_LIMIT

from .replies import check_laws, grammar, in_tokens, read


def tool(name: str, **properties: Any) -> Tool:
    parameters = {"type": "object", "properties": properties}
    return Tool({"type": "function", "function": {"name": name, "parameters": parameters}})


NS = "]<]minimax[>["
STRING = {"type": "string"}
TOOLS = [
    tool("save", path=STRING, body=STRING, note={"type": ["string", "null"]}, n={"type": "integer"}),
    tool("ping"),
    tool(
        "order",
        items={"type": "array", "items": {"type": "object", "properties": {"qty": {"type": "integer"}}}},
        tags={"type": "array", "items": STRING},
        ship={"type": "object", "properties": {"city": STRING, "floor": {"type": "integer"}}},
        open={"type": "object"},
        note=STRING,
    ),
]


def events(name: str, raw: str, reason: str = "stop", **options: Any) -> list[Event]:
    count = itertools.count()
    made = lambda: Parser(grammar(name), TOOLS, ids=lambda: f"id{next(count)}", **options)  # noqa: E731
    whole = read(made(), [raw], reason)
    check_laws(whole, raw)
    count = itertools.count()
    assert read(made(), list(raw), reason) == whole
    return whole


def reply(name: str, raw: str, reason: str = "stop", **options: Any) -> Reply:
    return fold(events(name, raw, reason, **options))


def arguments(name: str, raw: str) -> list[str]:
    return [call.arguments for call in reply(name, raw).tool_calls]


def test_string_arguments_stream_and_others_come_whole() -> None:
    first = '<arg_key>body</arg_key><arg_value>a"b\n</arg_value>'
    raw = f"<tool_call>save{first}<arg_key>n</arg_key><arg_value>12</arg_value></tool_call>"
    parser = Parser(grammar("glm47"), TOOLS, ids=lambda: "id")
    told = [event for character in raw for event in parser.feed(character)]
    deltas = [event.arguments for event in told if isinstance(event, ToolCallDelta)]
    assert deltas == ['{"body": "', "a", '\\"', "b", "\\n", '"', ', "n": 12', "}"]
    assert isinstance(told[1], ToolCallStart)
    assert isinstance(told[-1], ToolCallEnd)


def test_a_call_says_where_it_stands() -> None:
    told = events("glm47", "Hi<tool_call>ping</tool_call>")
    starts = [event for event in told if isinstance(event, ToolCallStart)]
    assert starts == [ToolCallStart(0, "id0", "ping", 13, 17)]
    assert ToolCallEnd(0, 29, 29) in told


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("glm47", "<tool_call>other<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>"),
        (
            "qwen3_xml",
            "<tool_call>\n<function=other>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "deepseek_v4",
            '<｜DSML｜invoke name="other"><｜DSML｜parameter name="x" string="true">1</｜DSML｜parameter>'
            "</｜DSML｜invoke>",
        ),
        (
            "minimax_m3",
            ']<]minimax[>[<invoke name="other">]<]minimax[>[<x>1]<]minimax[>[</x>]<]minimax[>[</invoke>',
        ),
    ],
)
def test_undeclared_tools_are_forwarded_but_not_out_of_reasoning(name: str, raw: str) -> None:
    assert reply(name, raw).tool_calls == (ReplyCall("other", '{"x": "1"}', "id0"),)
    inside = reply(name, raw, start="reasoning")
    assert not inside.tool_calls
    assert inside.reasoning == raw


def test_without_tools_nothing_is_a_call() -> None:
    raw = "<tool_call>ping</tool_call>"
    said = fold(read(Parser(grammar("glm47")), [raw], "stop"))
    assert (said.content, said.tool_calls) == (raw, ())


@pytest.mark.parametrize(
    ("name", "raw", "reason", "index", "word"),
    [
        ("glm47", "<tool_call>save<arg_key>body</arg_key><arg_value>x", "stop", 0, "unclosed"),
        ("glm47", "<tool_call>save<arg_key>body</arg_key><arg_value>x", "length", 0, "cut"),
        ("glm47", "<tool_call>save<arg_key>body</arg_key><arg_value>x</arg_value>", "length", 0, "cut"),
        (
            "hermes_json",
            '<tool_call>{"name": "save", "arguments": {"n": 1,}}</tool_call>',
            "stop",
            0,
            "syntax",
        ),
        ("hermes_json", '<tool_call>{"arguments": {"n": 1}}</tool_call>', "stop", None, "syntax"),
        ("hermes_json", '<tool_call>{"name": "save"', "length", 0, "cut"),
        ("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="ping" index="1"<|sep|>', "length", 0, "cut"),
        ("gpt_oss", "<|channel|>commentary to=functions.ping<|message|>[1]<|call|>", "stop", 0, "syntax"),
        ("gpt_oss", "<|channel|>commentary to=functions.<|message|>{}<|call|>", "stop", None, "syntax"),
        ("gpt_oss", '<|channel|>commentary to=functions.save<|message|>{"n": 1', "stop", 0, "syntax"),
    ],
)
def test_broken_calls(name: str, raw: str, reason: str, index: int | None, word: str) -> None:
    told = events(name, raw, reason)
    broken = [event for event in told if isinstance(event, ToolCallBroken)]
    assert [(event.index, event.reason) for event in broken] == [(index, word)]
    assert fold(told).tool_calls == ()
    assert fold(told).finish_reason == reason


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_possible_null_that_never_closes_is_accounted_for(reason: str) -> None:
    for value in ("n", "null", "null]<]minimax[>[</x"):
        reply("glm47", f"<tool_call>save<arg_key>note</arg_key><arg_value>{value}", reason)
        reply("minimax_m3", f'{NS}<invoke name="save">{NS}<note>{value}', reason)


def test_a_broken_call_keeps_what_came() -> None:
    said = reply("glm47", '<tool_call>save<arg_key>path</arg_key><arg_value>a"', "length")
    assert said.broken == (BrokenCall("save", '{"path": "a\\"', "id0", "cut"),)


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ("null", "null"),
        ("nul", '"nul"'),
        ("nullable", '"nullable"'),
        ("", '""'),
        ("n", '"n"'),
        (" null", '" null"'),
    ],
)
def test_a_string_or_null_waits_for_null(value: str, spelled: str) -> None:
    raw = f"<tool_call>save<arg_key>note</arg_key><arg_value>{value}</arg_value></tool_call>"
    assert arguments("glm47", raw) == [f'{{"note": {spelled}}}']


@pytest.mark.parametrize(
    ("inner", "spelled"),
    [
        ("<arg_key>n</arg_key><arg_key>path</arg_key><arg_value>x</arg_value>", '{"path": "x"}'),
        (
            "<arg_key>n</arg_key><arg_value>1</arg_value><arg_key>n</arg_key><arg_value>2</arg_value>",
            '{"n": 1, "n": 2}',
        ),
        ('<arg_key>"n"</arg_key><arg_value>1</arg_value>', '{"n": 1}'),
        ('<arg_key>"x"</arg_key><arg_value>1</arg_value>', '{"\\"x\\"": "1"}'),
        ("<arg_key> n\n</arg_key>\n<arg_value>1</arg_value>", '{"n": 1}'),
        ("<arg_key></arg_key><arg_value>1</arg_value>", "{}"),
        ("<arg_key>" + "k" * 2000 + "</arg_key><arg_value>1</arg_value>", "{}"),
        ("", "{}"),
    ],
)
def test_keys(inner: str, spelled: str) -> None:
    assert arguments("glm47", f"<tool_call>save{inner}</tool_call>") == [spelled]


@pytest.mark.parametrize("name", ["'q'", '"', "f"])
def test_declared_names_may_begin_with_quotes(name: str) -> None:
    raw = f"<tool_call>{name}<arg_key>{name}</arg_key><arg_value>x</arg_value></tool_call>"
    parser = Parser(grammar("glm47"), [tool(name, **{name: STRING})], start="text")
    found = [event for character in raw for event in parser.feed(character)]
    calls = fold(join([*found, *parser.finish("stop")])).tool_calls
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [(name, {name: "x"})]


def test_a_name_too_long_to_be_one() -> None:
    long = "x" * 3000
    first, second = (
        f'<|open|>call tool="{name}" index="1"<|sep|><|close|>call<|sep|>' for name in ("save", long)
    )
    said = reply("kimi_k3", f"<|open|>tools<|sep|>{first}{second}")
    assert [call.name for call in said.tool_calls] == ["save"]


@pytest.mark.parametrize(
    ("body", "spelled"),
    [
        ('{"name": "save", "arguments": {"n": 1}}', ['{"n": 1}']),
        ('{"parameters": {"n": [1, {"x": "}"}]}, "name": "save", "id": 7}', ['{"n": [1, {"x": "}"}]}']),
        ('{"name": "save", "arguments": "{\\"n\\": 1}"}', ['{"n": 1}']),
        ('{"name": "save", "arguments": "n"}', []),
        ('{"name": "save", "arguments": [1]}', []),
        ('{"name": "save", "arguments": null}', ["{}"]),
        ('{"name": "save"}', ["{}"]),
        ('{"name": "save", "arguments": {"n": 1}', ['{"n": 1}']),
        ('{"name": "save", "extra": {"arguments": {"n": 2}}, "arguments": {"n": 1}}', ['{"n": 1}']),
        ('{"name": "sa\\u0076e", "arguments": {"n": 1}} trailing', ['{"n": 1}']),
        ('{"name": "save", "arguments": {"n": 1}, "arguments": {"n": 2}}', ['{"n": 1}']),
        ('{"name": 3, "arguments": {}}', []),
        ('{"name": "save", "arguments": {"n": NaN}}', []),
        ('{"name": "save", "arguments": {"n": ' + "[" * 3000 + "}}", []),
    ],
)
def test_calls_as_one_object(body: str, spelled: list[str]) -> None:
    assert arguments("hermes_json", f"<tool_call>{body}</tool_call>") == spelled


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        (" save ", "save"),
        ("save\\n", "save"),
        ("\\ud83d\\ude00", "\U0001f600"),
        ("x\\ud83d", "x\ufffd"),
        ("x" * WORD_LIMIT, "x" * WORD_LIMIT),
        ("x" * (WORD_LIMIT + 1), None),
        ("x" * WORD_LIMIT + "\\n", None),
        ("x" * 3000, None),
        ("", None),
        (" \\t", None),
    ],
)
@pytest.mark.parametrize(
    "body", ['"name": "{}", "arguments": {{"n": 1}}', '"arguments": {{"n": 1}}, "name": "{}"']
)
def test_names_in_an_object_are_whole_and_stripped_or_break_the_call(
    spelled: str, name: str | None, body: str
) -> None:
    said = reply("hermes_json", f"<tool_call>{{{body.format(spelled)}}}</tool_call>")
    assert [call.name for call in said.tool_calls] == ([] if name is None else [name])
    assert [(call.name, call.reason) for call in said.broken] == ([(None, "syntax")] if name is None else [])


@pytest.mark.parametrize("bare", ["\n", "\t", "\r\n", "\0", "\x1f", "\n" * 50])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("hermes_json", '<tool_call>\n{{"name": "save", "arguments": {}}}\n</tool_call>'),
        ("inkling", '<|content_invoke_tool_json|>{{"name": "save", "args": {}}}<|end_message|>'),
        ("gpt_oss", " to=functions.save<|channel|>commentary json<|message|>{}<|call|>"),
    ],
)
def test_control_characters_in_strings_are_escaped(name: str, call: str, bare: str) -> None:
    value = f"a{bare}b{bare}"
    body = f'{{\n"body":\t"{value}", "{bare}": ["{bare}", "\\n\\\\{bare}"]}}'
    spelled = arguments(name, call.format(body))
    assert [json.loads(text) for text in spelled] == [{"body": value, bare: [bare, f"\n\\{bare}"]}]


def test_packed_arguments_can_be_sent_on() -> None:
    said = reply(
        "hermes_json", r'<tool_call>{"name": "save", "arguments": "{\"body\": \"\ud83d\"}"}</tool_call>'
    )
    assert [call.arguments for call in said.tool_calls] == ['{"body": "\ufffd"}']


def test_object_arguments_stream_as_they_are_spelled() -> None:
    raw = '<|channel|>commentary to=functions.save<|message|> {"body":  "x"}\n<|call|>'
    parser = Parser(grammar("gpt_oss"), TOOLS)
    told = [event for character in raw for event in parser.feed(character)]
    assert [event.arguments for event in told if isinstance(event, ToolCallDelta)] == list('{"body":  "x"}')


@pytest.mark.parametrize(
    ("inner", "value"),
    [
        ("<tags><item>a</item><item>b</item></tags>", {"tags": ["a", "b"]}),
        ("<tags><tag>a</tag></tags>", {"tags": ["a"]}),
        ("<tags></tags><ship></ship>", {"tags": [], "ship": {}}),
        ('<tags>["a", "b"]</tags>', {"tags": ["a", "b"]}),
        ("<ship><city>Rome</city><floor>2</floor></ship>", {"ship": {"city": "Rome", "floor": 2}}),
        ("<ship><city>007</city><city>b</city></ship>", {"ship": {"city": ["007", "b"]}}),
        ("<items><item><qty>2</qty></item></items>", {"items": [{"qty": 2}]}),
        ("<open><a>2.5</a><b>x</b><c></c></open>", {"open": {"a": 2.5, "b": "x", "c": ""}}),
        ("<note>use <b>bold</b> here</note>", {"note": f"use {NS}<b>bold{NS}</b> here"}),
        ("<note></note>", {"note": ""}),
        ("<ship><city>Rome</ship><note>x</note>", {"ship": {"city": "Rome"}, "note": "x"}),
        ("<ship></city></ship>", {"ship": {}}),
        ("<ship><city>Rome", {"ship": {"city": "Rome"}}),
        ("<other>1</other>", {"other": "1"}),
        ("<-A>1</-A>", {"-A": "1"}),
    ],
)
def test_nested_elements(inner: str, value: Any) -> None:
    tagged = inner.replace("<", f"{NS}<")
    spelled = arguments(
        "minimax_m3", f'{NS}<tool_call>{NS}<invoke name="order">{tagged}{NS}</invoke>{NS}</tool_call>'
    )
    assert [json.loads(text) for text in spelled] == [value]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("depth", [DEPTH_LIMIT - 1, DEPTH_LIMIT, 2000])
def test_elements_nest_up_to_a_limit_and_are_text_below_it(depth: int, closed: bool) -> None:
    inside = f"{NS}<a>" * depth + "x" + f"{NS}</a>" * (depth if closed else 0)
    body = f"{NS}<open>{inside}{NS}</open>{NS}<note>n{NS}</note>"
    spelled = arguments(
        "minimax_m3", f'{NS}<tool_call>{NS}<invoke name="order">{body}{NS}</invoke>{NS}</tool_call>'
    )
    value = json.loads(spelled[0])
    found = value["open"]
    for _ in range(min(depth, DEPTH_LIMIT - 1)):
        found = found["a"]
    assert isinstance(found, str)
    assert "x" in found
    if closed:
        beyond = depth - (DEPTH_LIMIT - 1)
        assert found == f"{NS}<a>" * beyond + "x" + f"{NS}</a>" * beyond
        assert value["note"] == "n"


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("functions.save:3", ReplyCall("save", "{}", "functions.save:3")),
        ("functions.a.b-c:0", ReplyCall("a.b-c", "{}", "functions.a.b-c:0")),
        ("save:3", ReplyCall("save", "{}", "id0")),
        ("functions.save", ReplyCall("save", "{}", "id0")),
        ("save", ReplyCall("save", "{}", "id0")),
    ],
)
def test_native_ids_are_kept(word: str, call: ReplyCall) -> None:
    call_text = f"<|tool_call_begin|>{word}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    raw = f"<|tool_calls_section_begin|>{call_text}"
    assert reply("kimi_k2", raw).tool_calls == (call,)


def test_ids_are_unique_even_when_the_model_repeats_one() -> None:
    one = "<|tool_call_begin|>functions.ping:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    said = reply("kimi_k2", f"<|tool_calls_section_begin|>{one}{one}<|tool_calls_section_end|>")
    assert [call.id for call in said.tool_calls] == ["functions.ping:0", "id0"]


def test_fresh_ids_look_like_openais() -> None:
    first, second = new_call_id(), new_call_id()
    assert first != second
    assert first.startswith("call_")
    assert len(first) == 29


GEMMA = (
    '<|tool_call>call:save{body:<|"|>a, {b}: "c"<|"|>,n:12,note:null,x:{k:[<|"|>}<|"|>,true]}}<tool_call|>Bye'
)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_gemma(told: bool, size: int) -> None:
    raw = "<|channel>thought\nHm.\n<channel|>Hi." + GEMMA
    tokens = in_tokens(raw, grammar("gemma4").special, size)
    pieces = tokens if told else [text for text, _ in tokens]
    said = fold(read(Parser(grammar("gemma4"), TOOLS), pieces, "stop"))
    assert (said.reasoning, said.content) == ("Hm.", "Hi.Bye")
    assert json.loads(said.tool_calls[0].arguments) == {
        "body": 'a, {b}: "c"',
        "n": 12,
        "note": None,
        "x": {"k": ["}", True]},
    }


@pytest.mark.parametrize(
    ("name", "prompt", "rest"),
    [
        (
            "glm47",
            "<think></think><tool_call>save",
            "<arg_key>path</arg_key><arg_value>x</arg_value></tool_call>",
        ),
        (
            "glm47",
            "<think></think><tool_call>",
            "save<arg_key>path</arg_key><arg_value>x</arg_value></tool_call>",
        ),
        (
            "glm47",
            "<think></think><tool_call>save<arg_key>path</arg_key><arg_value>",
            "x</arg_value></tool_call>",
        ),
        (
            "qwen3_xml",
            "<think>\n\n</think>\n\n<tool_call>\n<function=save>\n",
            "<parameter=path>\nx\n</parameter>\n</function>\n</tool_call>",
        ),
        (
            "inkling",
            'save<|content_invoke_tool_json|>{"name":"save","args":',
            '{"path": "x"}}<|end_message|>',
        ),
        (
            "kimi_k3",
            '<|open|>tools<|sep|><|open|>call tool="save" index="1"<|sep|>',
            '<|open|>argument key="path" type="string"<|sep|>x<|close|>argument<|sep|><|close|>call<|sep|>',
        ),
    ],
)
@pytest.mark.parametrize("control", [None, False])
def test_a_call_that_the_prompt_opened(name: str, prompt: str, rest: str, control: bool | None) -> None:
    told = events(name, rest, prime=prompt) if control is None else None
    if told is None:
        parser = Parser(grammar(name), TOOLS, prime=prompt, ids=lambda: "id0")
        told = join([*parser.feed(rest, True), *parser.finish("stop")])
        check_laws(told, rest)
    assert fold(told).tool_calls == (ReplyCall("save", '{"path": "x"}', "id0"),)
    assert fold(told).content == ""


def test_calls_of_the_prompt_do_not_count() -> None:
    prompt = GEMMA.removesuffix("Bye") + "<|tool_response>response:save{x:1}<tool_response|>"
    told = events("gemma4", "Done." + GEMMA, prime=prompt)
    assert [event.index for event in told if isinstance(event, ToolCallStart)] == [0]
    assert fold(told).content == "Done.Bye"


def test_text_continued_from_the_prompt() -> None:
    """Characters that the prompt ends with are never told, even when a mark was being awaited."""
    for prime, said in [
        ("</think>use <tool_", "box"),
        ("</think>A\n", "\nB"),
        ("</think>x <tool_call>sa", " it"),
    ]:
        assert reply("glm47", said, prime=prime).content == said


def test_a_quoted_key_closes_the_value_before_it() -> None:
    inner = '<parameter=path>\nx\n<parameter="body">\ny\n</parameter>\n'
    raw = f"<tool_call>\n<function=save>\n{inner}</function>\n</tool_call>"
    assert arguments("qwen3_xml", raw) == ['{"path": "x", "body": "y"}']
