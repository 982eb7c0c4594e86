import json

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Media, Reasoning, Text, Thinking, ToolCall, ToolChoice, ToolResult, Turn
from colibri.corpus import conversations
from colibri.errors import RenderError, Where
from colibri.testing import family_suite

REGISTRY = colibri.load(["colibri-gemma4"])
FAMILY = REGISTRY["gemma4"]
CORPUS = conversations()
TOOLS = CORPUS["tools_and_system"]
OPTIONS = {
    "thinking_on": evolve(CORPUS["past_reasoning"], thinking=Thinking(enabled=True)),
    "thinking_on_after_result": evolve(CORPUS["parallel_calls"], thinking=Thinking(enabled=True)),
    "reasoning_kept": evolve(CORPUS["reasoning_then_user"], thinking=Thinking(preserve=True)),
    "tool_required": evolve(TOOLS, tool_choice=ToolChoice("required")),
    "tool_forced": evolve(TOOLS, tool_choice=ToolChoice("tool", "get_weather")),
}

TestGemma4 = family_suite(FAMILY, conversations=CORPUS | OPTIONS)

USER = Turn("user", (Text("u"),))
CALL = Turn("assistant", (Reasoning("why"), ToolCall("f", "{}", "a")))
RESULT = Turn("tool", (ToolResult("a", (Text("r"),)),))


def ask(*turns, **fields):
    return FAMILY.render(evolve(CORPUS["user"], turns=turns, **fields))


def test_it_is_found_by_its_entry_point():
    info = next(info for info in colibri.load().plugins() if info.name == "gemma4")
    assert (info.distribution, info.families) == ("colibri-gemma4", ("gemma4",))


@pytest.mark.parametrize("model_type", ["gemma4", "gemma4_text"])
def test_a_checkpoint_is_told_by_its_model_type(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert REGISTRY.identify(tmp_path).id == "gemma4"


def test_thinking_is_off_unless_asked_for():
    assert ask(USER).text == "<bos><|turn>user\nu<turn|>\n<|turn>model\n"
    assert ask(USER, thinking=Thinking(effort="none")) == ask(USER)
    for thinking in (Thinking(enabled=True), Thinking(effort="low")):
        assert ask(USER, thinking=thinking).text.startswith("<bos><|turn>system\n<|think|>\n<turn|>\n")


@pytest.mark.parametrize(
    ("turns", "thinking", "end", "start"),
    [
        ((USER,), True, "<|turn>model\n", None),
        ((USER, CALL), False, "<tool_call|><|tool_response>", "text"),
        ((USER, CALL, RESULT), False, "<tool_response|>", "text"),
        ((USER, CALL, RESULT), True, "<tool_response|><|channel>thought\n", "reasoning"),
    ],
)
def test_a_result_brings_no_cue(turns, thinking, end, start):
    prompt = ask(*turns, thinking=Thinking(enabled=thinking))
    assert prompt.text.endswith(end)
    assert prompt.start in (start, None)


def test_reasoning_of_an_answered_turn_goes_unless_it_led_to_a_kept_call():
    turns = (USER, CALL, RESULT, Turn("assistant", (Reasoning("so"), Text("a"))), USER)
    assert "why" not in ask(*turns).text
    kept = ask(*turns, thinking=Thinking(preserve=True)).text
    assert "<|channel>thought\nwhy\n<channel|><|tool_call>call:f{}<tool_call|>" in kept
    assert "so" not in kept


@pytest.mark.parametrize("thinking", [False, True])
def test_a_prompt_is_extended_while_calls_go_on(thinking):
    thought = "<|channel>thought\nwhy\n<channel|>" if thinking else ""
    reply = f'{thought}<|tool_call>call:get_weather{{city:<|"|>Lima<|"|>}}<tool_call|>'
    asked = ask(USER, tools=TOOLS.tools, thinking=Thinking(enabled=thinking))
    extended = FAMILY.extend(asked, reply, (RESULT,))
    result = '<|tool_response>response:get_weather{value:<|"|>r<|"|>}<tool_response|>'
    assert extended is not None
    assert extended.text == f"{asked.text}{reply}{result}" + "<|channel>thought\n" * thinking
    answered = FAMILY.extend(asked, f"{thought}done", (USER,))
    assert (answered is None) is thinking


def test_media_and_text_stand_in_their_order():
    parts = (Text(" a "), Media("image", None, "x"), Media("audio", None, "y"), Text("b"))
    assert "<|turn>user\na<|image|><|audio|>b<turn|>\n" in ask(Turn("user", parts, listed=True)).text


@pytest.mark.parametrize("arguments", ["[1]", '"text"', "3"])
def test_arguments_that_are_no_object_are_refused_where_they_stand(arguments):
    calls = (ToolCall("f", "{}"), ToolCall("g", arguments))
    with pytest.raises(RenderError, match="arguments of the call to g must be a JSON object") as caught:
        ask(USER, Turn("assistant", (Text("a"), *calls)))
    assert caught.value.where == Where(turn=1, part=2)
