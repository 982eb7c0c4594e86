import json
from datetime import datetime

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Reasoning, Text, Thinking, ToolCall, ToolChoice, ToolResult, Turn
from colibri.corpus import conversations
from colibri.errors import RenderError, Where
from colibri.framing import fold
from colibri.testing import family_suite, written

REGISTRY = colibri.load(["colibri-gpt-oss"])
FAMILY = REGISTRY["gpt_oss"]
CLOCK = {"strftime_now": datetime(2026, 1, 2, 3, 4, 5).strftime}
CORPUS = {name: evolve(case, options=case.options | CLOCK) for name, case in conversations().items()}
TOOLS = CORPUS["tools_and_system"]
OPTIONS = {
    "effort_low": evolve(CORPUS["user"], thinking=Thinking(effort="low")),
    "thinking_off": evolve(CORPUS["user"], thinking=Thinking(enabled=False)),
    "tool_required": evolve(TOOLS, tool_choice=ToolChoice("required")),
    "tool_forced": evolve(TOOLS, tool_choice=ToolChoice("tool", "get_weather")),
    "builtin_tools": evolve(CORPUS["user"], options=CLOCK | {"builtin_tools": ["browser", "python"]}),
}
# A message of the format holds one call; of several the official template writes the first.
READABLE = {name: case for name, case in CORPUS.items() if name not in ("parallel_calls", "results_swapped")}

TestGptOss = family_suite(FAMILY, conversations=READABLE | OPTIONS)


def ask(*turns, **fields):
    return FAMILY.render(evolve(CORPUS["user"], turns=turns, **fields)) if turns else ask(user(), **fields)


def user():
    return Turn("user", (Text("u"),))


def test_it_is_found_by_its_entry_point():
    info = next(info for info in colibri.load().plugins() if info.name == "gpt_oss")
    assert (info.distribution, info.families) == ("colibri-gpt-oss", ("gpt_oss",))


@pytest.mark.parametrize("model_type", ["gpt_oss", "gpt-oss"])
def test_a_checkpoint_is_told_by_its_model_type(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert REGISTRY.identify(tmp_path).id == "gpt_oss"


def test_the_date_is_today_unless_told():
    before = datetime.now()
    text = ask(options={}).text
    dates = {f"Current date: {now:%Y-%m-%d}\n" for now in (before, datetime.now())}
    assert any(date in text for date in dates)


@pytest.mark.parametrize(
    ("thinking", "level"),
    [
        (Thinking(), "medium"),
        (Thinking(effort="minimal"), "low"),
        (Thinking(effort="high"), "high"),
        (Thinking(effort="max"), "high"),
        (Thinking(effort="none"), "low"),
        (Thinking(enabled=False), "low"),
        (Thinking(enabled=True), "medium"),
    ],
)
def test_efforts(thinking, level):
    assert f"\nReasoning: {level}\n" in ask(thinking=thinking).text


def test_reasoning_is_kept_until_its_answer_is_there():
    call = Turn("assistant", (Reasoning("why"), ToolCall("f", "{}", "a")))
    result = Turn("tool", (ToolResult("a", (Text("r"),)),))
    answer = Turn("assistant", (Text("done"),))
    thought = "<|channel|>analysis<|message|>why<|end|>"
    assert thought in ask(user(), call, result).text
    assert thought not in ask(user(), call, result, answer, user()).text


def test_a_prompt_is_extended_while_calls_go_on_and_not_behind_an_answer():
    thought = "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
    call = f"{thought} to=functions.get_weather<|channel|>commentary json<|message|>{{}}"
    result = Turn("tool", (ToolResult("a", (Text("r"),)),))
    asked = ask(tools=TOOLS.tools)
    extended = FAMILY.extend(asked, call, (result,))
    assert extended is not None
    assert extended.text.startswith(f"{asked.text}{call}<|call|><|start|>functions.get_weather to=assistant")
    assert FAMILY.extend(asked, f"{thought}<|channel|>final<|message|>done", (user(),)) is None


def test_text_parts_and_late_system_turns_are_folded():
    parts = Turn("user", (Text("one "), Text("two")), listed=True)
    turns = (parts, Turn("system", (Text("rule"),)), Turn("assistant", ()), user())
    with pytest.raises(RenderError, match="must be one string") as caught:
        ask(*turns)
    assert caught.value.where == Where(turn=0)
    text = FAMILY.render(fold(evolve(CORPUS["user"], turns=turns), FAMILY)).text
    assert "<|start|>user<|message|>one two\n\nrule<|end|>" in text
    assert "<|start|>assistant<|channel|>final<|message|><|end|>" in text


def test_what_the_format_cannot_say_is_refused_where_it_stands():
    both = Turn("assistant", (Reasoning("r"), Text("c"), ToolCall("f", "{}")))
    spelled = Turn("assistant", (Text("<|channel|>final<|message|>"),))
    orphan = Turn("tool", (ToolResult("a", (Text("r"),)),))
    for turn, words in ((both, "not both"), (spelled, "spell"), (orphan, "must follow")):
        with pytest.raises(RenderError, match=words) as caught:
            ask(user(), turn)
        assert caught.value.where is not None
        assert caught.value.where.turn == 1


def test_of_several_calls_the_first_is_written():
    (reply,) = (reply for reply in written(FAMILY, {"case": CORPUS["parallel_calls"]}) if reply.calls)
    parser = FAMILY.new_parser(reply.after.tools, reply.prompt)
    said = colibri.fold([*parser.feed(reply.text), *parser.finish("stop")])
    assert len(reply.calls) > 1
    assert [(call.name, call.arguments) for call in said.tool_calls] == [
        (call.name, call.arguments) for call in reply.calls[:1]
    ]


@pytest.mark.parametrize(
    ("schema", "written_type"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "nullable": True}, "string | null"),
        ({"type": "string", "enum": ["a", "b"], "default": "a"}, '"a" | "b", // default: a'),
        ({"type": "integer", "default": 3}, "number, // default: 3"),
        ({"type": "array", "items": {"type": "boolean"}, "nullable": True}, "boolean[] | null"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "string[][]"),
        ({"type": "array"}, "any[]"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "object"}, "object"),
        ({}, "any"),
    ],
)
def test_a_parameter_as_typescript(schema, written_type):
    function = {"name": "f", "description": "d", "parameters": {"properties": {"p": schema}}}
    tools = colibri.conversation_from_openai(
        [{"role": "user", "content": "u"}], [{"type": "function", "function": function}]
    ).tools
    assert f"type f = (_: {{\np?: {written_type},\n}}) => any;" in ask(tools=tools).text
