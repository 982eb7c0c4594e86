import json

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Reasoning, Text, Thinking, ToolCall, ToolChoice, ToolResult, Turn
from colibri.corpus import conversations
from colibri.errors import RenderError, Where
from colibri.framing import fold
from colibri.testing import family_suite, written

REGISTRY = colibri.load(["colibri-minimax"])
FAMILY = REGISTRY["minimax_m3"]
CORPUS = conversations()
TOOLS = CORPUS["tools_and_system"]
OPTIONS = {
    "thinking_on": evolve(CORPUS["past_reasoning"], thinking=Thinking(enabled=True)),
    "thinking_off": evolve(CORPUS["past_reasoning"], thinking=Thinking(enabled=False)),
    "tool_required": evolve(TOOLS, tool_choice=ToolChoice("required")),
    "tool_forced": evolve(TOOLS, tool_choice=ToolChoice("tool", "get_weather")),
}
# The format has no null: an argument that is null is left out, so such a call is not read back the same.
READABLE = {name: case for name, case in CORPUS.items() if name != "nested_arguments"}

TestMiniMaxM3 = family_suite(FAMILY, conversations=READABLE | OPTIONS)


def ask(**fields):
    messages = [{"role": "user", "content": "Hi"}]
    return FAMILY.render(evolve(colibri.conversation_from_openai(messages), **fields))


def test_it_is_found_by_its_entry_point():
    info = next(info for info in colibri.load().plugins() if info.name == "minimax_m3")
    assert (info.distribution, info.families) == ("colibri-minimax", ("minimax_m3",))


@pytest.mark.parametrize("model_type", ["minimax_m3_vl", "minimax_m3_vl_text", "minimax-m3"])
def test_a_checkpoint_is_told_by_its_model_type(tmp_path, model_type):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    (tmp_path / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    assert REGISTRY.identify(tmp_path).id == "minimax_m3"


@pytest.mark.parametrize(
    ("thinking", "mode", "cue", "start"),
    [
        (Thinking(), "adaptive", "", None),
        (Thinking(enabled=True), "enabled", "<mm:think>", "reasoning"),
        (Thinking(effort="low"), "enabled", "<mm:think>", "reasoning"),
        (Thinking(enabled=False), "disabled", "</mm:think>", "text"),
        (Thinking(effort="none"), "disabled", "</mm:think>", "text"),
    ],
)
def test_thinking(thinking, mode, cue, start):
    prompt = ask(thinking=thinking)
    assert f"Current thinking mode: {mode}." in prompt.text
    assert prompt.text.endswith(f"]~b]ai\n{cue}")
    assert prompt.start == start


def test_the_root_role_replaces_the_system_turn():
    system, user = (Turn(role, (Text(role),)) for role in ("system", "user"))
    text = ask(turns=(Turn("root", (Text("Who I am."),)), system, user)).text
    assert text.startswith("]~!b[]~b]system\nWho I am.\n\n<thinking_instructions>")
    assert "]~b]developer\nsystem[e~[\n]~b]user\nuser[e~[\n" in text


def test_a_late_system_turn_is_folded_into_the_user_turn_before_it():
    turns = tuple(Turn(role, (Text(role),)) for role in ("user", "system", "assistant", "user"))
    folded = fold(evolve(CORPUS["user"], turns=turns), FAMILY)
    assert "]~b]user\nuser\n\nsystem[e~[\n" in FAMILY.render(folded).text


@pytest.mark.parametrize("arguments", ["[1]", '"text"', "null"])
def test_arguments_that_are_no_object_are_refused_where_they_stand(arguments):
    calls = (ToolCall("f", "{}"), ToolCall("g", arguments))
    with pytest.raises(RenderError, match="arguments of the call to g must be a JSON object") as caught:
        ask(turns=(Turn("user", (Text("u"),)), Turn("assistant", (Text("a"), *calls))))
    assert caught.value.where == Where(turn=1, part=2)


def test_a_result_without_a_call_is_refused():
    messages = [{"role": "user", "content": "u"}, {"role": "tool", "tool_call_id": "a", "content": "r"}]
    with pytest.raises(RenderError, match="must answer a call") as caught:
        FAMILY.render(colibri.conversation_from_openai(messages))
    assert caught.value.where == Where(turn=1)


def test_null_arguments_are_left_out():
    reply = next(written(FAMILY, {"nested": CORPUS["nested_arguments"]}))
    parser = FAMILY.new_parser(reply.after.tools, reply.prompt)
    said = colibri.fold([*parser.feed(reply.text), *parser.finish("stop")])
    (call,) = reply.calls
    kept = {name: value for name, value in call.decoded().items() if value is not None}
    assert [json.loads(call.arguments) for call in said.tool_calls] == [kept]
    assert kept != call.decoded()


@pytest.mark.parametrize(
    ("thinking", "reasoning"),
    [
        (Thinking(), ()),
        (Thinking(), (Reasoning("r"),)),
        (Thinking(enabled=True), (Reasoning("r"),)),
        (Thinking(enabled=False), ()),
    ],
)
@pytest.mark.parametrize("calls", [(), (ToolCall("get_weather", '{"city": "Lima"}', "a"),)])
def test_the_next_prompt_is_this_one_its_reply_and_what_follows(thinking, reasoning, calls):
    answer = Turn("assistant", (*reasoning, Text("c"), *calls))
    result = Turn("tool", (ToolResult("a", (Text("sun"),)),))
    following = (result,) if calls else (Turn("user", (Text("v"),)),)
    asked = evolve(TOOLS, turns=(Turn("user", (Text("u"),)),), thinking=thinking)
    said = evolve(asked, turns=(*asked.turns, answer))
    prompt, whole = FAMILY.render(asked), FAMILY.render(said, cue=False).text
    reply = whole.removeprefix(prompt.text).removesuffix("[e~[\n")
    extended = FAMILY.extend(prompt, reply, following)
    expected = FAMILY.render(evolve(said, turns=(*said.turns, *following)))
    assert expected.text.startswith(prompt.text + reply)
    assert extended is not None
    assert extended.text == expected.text
