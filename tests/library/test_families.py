"""What variants promise beside their official renders: levels, tool choice, folding, defaults."""

import gc
import json
import re

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Reasoning, Text, Thinking, ToolCall, ToolChoice, ToolResult, Turn
from colibri.errors import CheckpointUnknown, RenderError, Where
from colibri.framing import fold, serve_defaults

FAMILIES = colibri.load([])
VARIANTS = ["glm52", "glm53", "glm47", "qwen36", "qwen35", "qwen38", "mimo26", "olmoe", "olmoe_0924"]
WITH_TOOLS = [name for name in VARIANTS if FAMILIES[name].features.tools]
EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
WEATHER, SEARCH = (
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"To {name}.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "search")
)
REQUIRED = "\n\nYou must call one of the functions above. Do not answer directly."

every_variant = pytest.mark.parametrize("name", VARIANTS)
every_tool_variant = pytest.mark.parametrize("name", WITH_TOOLS)


def user(text="Hi"):
    return Turn("user", (Text(text),))


def assistant(text, *, reasoning=None, calls=()):
    thoughts = () if reasoning is None else (Reasoning(reasoning),)
    return Turn("assistant", (*thoughts, Text(text), *calls))


def conversation(*turns, tools=(), **fields):
    messages = [{"role": "user", "content": "x"}]
    return evolve(colibri.conversation_from_openai(messages, tools), turns=turns or (user(),), **fields)


def prompt(name, *turns, **fields):
    return FAMILIES[name].render(conversation(*turns, **fields)).text


def effort_of(text):
    found = re.search(r"Reasoning Effort: (\w+)|Reasoning effort is set to (\w+)", text)
    return None if found is None else found[1] or found[2]


# Thinking


@pytest.mark.parametrize(
    ("name", "start", "effort"),
    [
        ("glm52", "reasoning", "Max"),
        ("glm53", "reasoning", "Max"),
        ("glm47", "reasoning", None),
        ("qwen36", "reasoning", None),
        ("qwen35", "reasoning", None),
        ("qwen38", "reasoning", "xhigh"),
        ("mimo26", None, None),
        ("olmoe", None, None),
        ("olmoe_0924", None, None),
    ],
)
def test_official_defaults(name, start, effort):
    rendered = FAMILIES[name].render(conversation())
    assert (rendered.start, effort_of(rendered.text)) == (start, effort)


@pytest.mark.parametrize(
    ("name", "start", "effort", "preserve"),
    [
        ("glm52", "text", None, None),
        ("glm53", "reasoning", "Low", None),
        ("glm47", "text", None, None),
        ("qwen36", "text", None, True),
        ("qwen35", "text", None, None),
        ("qwen38", "reasoning", "xhigh", None),
        ("mimo26", None, None, None),
        ("olmoe", None, None, None),
    ],
)
def test_serving_defaults(name, start, effort, preserve):
    served = serve_defaults(conversation(), FAMILIES[name])
    rendered = FAMILIES[name].render(served)
    assert (rendered.start, effort_of(rendered.text)) == (start, effort)
    assert served.thinking.preserve is preserve


def test_a_served_qwen36_that_thinks_drops_past_reasoning():
    asked = conversation(thinking=Thinking(enabled=True))
    assert serve_defaults(asked, FAMILIES["qwen36"]).thinking.preserve is False


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("glm52", [None, "High", "High", "High", "High", "Max", "Max"]),
        ("glm53", ["Low", "Low", "Low", "High", "High", "Max", "Max"]),
        ("glm47", [None] * 7),
        ("qwen36", [None] * 7),
        ("qwen35", [None] * 7),
        ("qwen38", [None, "low", "low", None, "xhigh", "xhigh", "xhigh"]),
        ("mimo26", [None] * 7),
        ("olmoe", [None] * 7),
    ],
)
def test_every_effort_name_has_a_level(name, words):
    told = [effort_of(prompt(name, thinking=Thinking(effort=effort))) for effort in EFFORTS]
    assert told == words


@every_variant
def test_none_turns_thinking_off_where_that_can_be(name):
    features = FAMILIES[name].features
    off = FAMILIES[name].render(conversation(thinking=Thinking(effort="none")))
    assert off.text == prompt(name, thinking=Thinking(enabled=False))
    if features.thinking == "switch":
        assert off.start == "text"
        assert off.text != prompt(name)


@every_variant
def test_a_conversation_of_its_own_options_is_told_as_it_is(name):
    options = {"reasoning_effort": "low", "enable_thinking": False, "unknown": [1]}
    thinking = Thinking(enabled=True, effort="max")
    assert prompt(name, options=options, thinking=thinking) == prompt(name, options=options)


@pytest.mark.parametrize(
    ("name", "default"),
    [("glm52", False), ("glm53", True), ("glm47", False), ("qwen36", False), ("qwen38", True)],
)
def test_past_reasoning_is_kept_on_request(name, default):
    turns = (user(), assistant("Yes.", reasoning="Because."), user("Why?"))
    kept = {
        preserve: "Because." in prompt(name, *turns, thinking=Thinking(preserve=preserve))
        for preserve in (None, True, False)
    }
    assert kept == {None: default, True: True, False: False}
    assert FAMILIES[name].features.preserve_thinking


# Tools


@every_tool_variant
def test_required_adds_one_line_to_the_tool_block(name):
    turns = (Turn("system", (Text("Rules."),)), user())
    plain = prompt(name, *turns, tools=[WEATHER, SEARCH])
    asked = prompt(name, *turns, tools=[WEATHER, SEARCH], tool_choice=ToolChoice("required"))
    at = asked.index(REQUIRED)
    assert asked[:at] + asked[at + len(REQUIRED) :] == plain
    before = {"glm": "...</tool_call>", "qwe": "</IMPORTANT>", "mim": "</tools>"}[name[:3]]
    assert asked[:at].endswith(before)
    assert at < asked.index("Rules.")


@every_tool_variant
def test_none_offers_no_tool(name):
    assert prompt(name, tools=[WEATHER], tool_choice=ToolChoice("none")) == prompt(name)


@every_tool_variant
@pytest.mark.parametrize("choice", [None, ToolChoice("auto")])
def test_auto_is_official(name, choice):
    text = prompt(name, tools=[WEATHER, SEARCH], tool_choice=choice)
    assert "You must call" not in text
    assert text.count('"name": "weather"') == text.count('"name": "search"') == 1


@pytest.mark.parametrize("name", ["glm52", "glm47"])
def test_a_forced_tool_stands_alone_and_is_named(name):
    forced = prompt(name, tools=[WEATHER, SEARCH], tool_choice=ToolChoice("tool", "search"))
    line = "\n\nYou must call the function `search`. Do not answer directly."
    assert forced.replace(line, "", 1) == prompt(name, tools=[SEARCH])
    assert f"...</tool_call>{line}" in forced


def test_a_forced_tool_of_glm53_stands_alone():
    forced = prompt("glm53", tools=[WEATHER, SEARCH], tool_choice=ToolChoice("tool", "search"))
    assert forced == prompt("glm53", tools=[SEARCH])


@pytest.mark.parametrize("name", ["qwen36", "qwen35", "qwen38", "mimo26"])
def test_a_forced_tool_changes_nothing(name):
    forced = prompt(name, tools=[WEATHER, SEARCH], tool_choice=ToolChoice("tool", "search"))
    assert forced == prompt(name, tools=[WEATHER, SEARCH])


def test_glm53_tells_results_in_the_order_of_their_calls():
    calls = tuple(ToolCall("weather", json.dumps({"city": city}), city) for city in ("a", "b", "c"))

    def told(*ids):
        results = tuple(Turn("tool", (ToolResult(name, (Text(f"of {name}"),)),)) for name in ids)
        text = prompt("glm53", user(), assistant("", calls=calls), *results, tools=[WEATHER])
        return re.findall("<tool_response>of (.)</tool_response>", text)

    assert told("c", "a", "b") == ["a", "b", "c"]
    assert told("c", "a") == ["a", "c"]
    assert told("c", "a", "a") == ["c", "a", "a"]
    assert told("c", "x", "a") == ["c", "x", "a"]


# What cannot be told


@pytest.mark.parametrize("arguments", ["[1, 2]", "3", '"text"', "null"])
@every_tool_variant
def test_arguments_that_are_no_object_are_refused_where_they_stand(name, arguments):
    calls = (ToolCall("weather", "{}", "a"), ToolCall("search", arguments, "b"))
    if name == "mimo26" and arguments == '"text"':
        assert "<function=search>text</function>" in prompt(name, user(), assistant("", calls=calls))
        return
    with pytest.raises(RenderError, match="arguments of the call to search must be a JSON object") as caught:
        prompt(name, user(), assistant("", reasoning="r", calls=calls))
    assert caught.value.where == Where(turn=1, part=3)


@pytest.mark.parametrize("name", ["qwen36", "qwen35", "qwen38"])
def test_qwen_refuses_a_late_system_turn_and_its_fold_moves_it(name):
    late = conversation(user("A"), Turn("system", (Text("S"),)), user("B"))
    with pytest.raises(RenderError, match="must be the first message") as caught:
        FAMILIES[name].render(late)
    assert caught.value.where == Where(turn=1)
    folded = fold(late, FAMILIES[name])
    assert [turn.role for turn in folded.turns] == ["user", "user"]
    assert "A\n\nS<|im_end|>" in FAMILIES[name].render(folded).text


@pytest.mark.parametrize("name", ["glm52", "glm53", "glm47", "mimo26", "olmoe", "olmoe_0924"])
def test_a_late_system_turn_stays_where_it_is(name):
    late = conversation(user("A"), Turn("system", (Text("S"),)), user("B"))
    assert fold(late, FAMILIES[name]) == late
    text = FAMILIES[name].render(late).text
    assert text.index("A") < text.index("S", text.index("A")) < text.index("B", text.index("A"))


@pytest.mark.parametrize("name", ["olmoe", "olmoe_0924"])
def test_olmoe_takes_one_string_and_its_fold_gives_one(name):
    parts = Turn("user", (Text("one "), Text("two")), listed=True)
    with pytest.raises(RenderError, match="must be one string"):
        prompt(name, parts)
    folded = fold(conversation(parts, Turn("assistant", ()), user()), FAMILIES[name])
    assert "<|user|>\none two\n<|assistant|>\n" in FAMILIES[name].render(folded).text


def test_glm47_takes_one_string_from_a_tool():
    result = ToolResult("a", (Text("one "), Text("two")), listed=True)
    folded = fold(conversation(user(), Turn("tool", (result,))), FAMILIES["glm47"])
    assert folded.turns[1].parts == (ToolResult("a", (Text("one two"),)),)


@every_variant
def test_a_developer_is_folded_into_a_system_turn(name):
    folded = fold(conversation(Turn("developer", (Text("Rules."),)), user()), FAMILIES[name])
    assert "Rules." in FAMILIES[name].render(folded).text


# Identity, stops and stability


def test_no_template_is_claimed_twice():
    hashes = [digest for name in FAMILIES for digest in FAMILIES[name].identity.template_hashes]
    assert len(hashes) == len(set(hashes))
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes)


LAST_QUESTION = "{% if loop.index0 > ns.last_query_index %}"
CUE = "{% if enable_thinking is defined and enable_thinking is false %}"
KEPT = "{% if (preserve_thinking is defined and preserve_thinking is true) %}"


@pytest.mark.parametrize(
    ("model_type", "template", "found"),
    [
        ("glm_moe_dsa", None, "glm52"),
        ("glm5_next", None, "glm53"),
        ("glm4_moe_lite", None, "glm47"),
        ("mimo_v2", None, "mimo26"),
        ("qwen4_exp", None, "qwen38"),
        ("qwen3_5_moe", LAST_QUESTION + CUE, "qwen35"),
        ("qwen3_5_moe", LAST_QUESTION + KEPT + CUE, "qwen36"),
        ("qwen3_5", "{% set effort = reasoning_effort|default('xhigh') %}" + KEPT + CUE, "qwen38"),
        ("olmoe", None, "olmoe"),
        ("olmoe", "<|assistant|>{% if not loop.last %}", "olmoe"),
        ("olmoe", "<|assistant|>{% if loop.last and add_generation_prompt %}", "olmoe_0924"),
    ],
)
def test_a_checkpoint_is_told_by_its_model_type_and_then_by_its_template(
    tmp_path, model_type, template, found
):
    assert FAMILIES.identify(checkpoint(tmp_path, model_type, template)).id == found


@pytest.mark.parametrize("template", [None, "{{ messages }}", LAST_QUESTION])
def test_a_shared_model_type_needs_a_template_that_tells(tmp_path, template):
    with pytest.raises(CheckpointUnknown, match="may be qwen38 or qwen36 or qwen35"):
        FAMILIES.identify(checkpoint(tmp_path, "qwen3_5_moe", template))


def checkpoint(folder, model_type, template):
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder


@every_variant
def test_ends_of_a_turn(name):
    stops = FAMILIES[name].stops
    assert stops.tokens
    assert stops.token_ids
    markers = ("<|user|>", "<|observation|>") if name in ("glm52", "glm47") else ()
    assert (stops.strings, stops.patient) == (markers, bool(markers))


STABLE = [
    ("glm52", Thinking(enabled=False)),
    ("glm52", Thinking(preserve=True)),
    ("glm53", Thinking()),
    ("glm53", Thinking(effort="low")),
    ("glm47", Thinking(enabled=False)),
    ("glm47", Thinking(preserve=True)),
    ("qwen36", Thinking(preserve=True)),
    ("qwen36", Thinking(enabled=False, preserve=True)),
    ("qwen38", Thinking()),
    ("mimo26", Thinking()),
    ("mimo26", Thinking(enabled=False)),
    ("olmoe", Thinking()),
    ("olmoe_0924", Thinking()),
]
UNSTABLE = [
    ("glm52", Thinking()),
    ("glm53", Thinking(preserve=False)),
    ("glm47", Thinking()),
    ("qwen36", Thinking()),
    ("qwen36", Thinking(enabled=False)),
    ("qwen35", Thinking()),
    ("qwen35", Thinking(enabled=False)),
    ("qwen38", Thinking(preserve=False)),
]


def rests_on_the_past(name, thinking):
    """Whether each prompt of a chat starts with the one before and its reply in the format's own words."""
    off = thinking.enabled is False or FAMILIES[name].features.thinking == "none"
    turns, past = [], ""
    for question in ("One?", "Two?", "Three?"):
        turns.append(user(question))
        asked = prompt(name, *turns, thinking=thinking)
        if not asked.startswith(past):
            return False
        turns.append(assistant("Yes.", reasoning=None if off else "Because."))
        past = FAMILIES[name].render(conversation(*turns, thinking=thinking), cue=False).text
        assert past.startswith(asked)
    return True


@pytest.mark.parametrize(("name", "thinking"), STABLE)
def test_a_prompt_starts_with_the_one_before_and_its_reply(name, thinking):
    assert rests_on_the_past(name, thinking)
    assert FAMILIES[name].features.prefix_stable != "never"


@pytest.mark.parametrize(("name", "thinking"), UNSTABLE)
def test_a_format_that_rewrites_the_past_is_said_to(name, thinking):
    assert not rests_on_the_past(name, thinking)
    assert FAMILIES[name].features.prefix_stable != "always"


def written_and_next(name, thinking, tools, answer):
    """A prompt, the answer to it in the format's own words, and the prompt of the turn that follows."""
    family = FAMILIES[name]
    following = (Turn("tool", (ToolResult("a", (Text("Sun."),)),)),) if tools else (user("Two?"),)
    asked = conversation(user("One?"), tools=tools, thinking=thinking)
    said = evolve(asked, turns=(*asked.turns, answer))
    first, whole = family.render(asked), family.render(said, cue=False).text
    reply = whole[len(first.text) :]
    cut = max((reply.rfind(token) for token in family.stops.tokens), default=-1)
    later = family.render(evolve(said, turns=(*said.turns, *following)))
    return family.extend(first, reply if cut < 0 else reply[:cut], following), later


@pytest.mark.parametrize(("name", "thinking"), STABLE)
@pytest.mark.parametrize("call", [False, True])
def test_a_stable_prompt_is_extended_to_what_would_be_rendered(name, thinking, call):
    if call and not FAMILIES[name].features.tools:
        pytest.skip("the format has no calls")
    off = thinking.enabled is False or FAMILIES[name].features.thinking == "none"
    calls = (ToolCall("weather", '{"city": "Rome"}', "a"),) if call else ()
    answer = assistant("Yes.", reasoning=None if off else "Because.", calls=calls)
    extended, rendered = written_and_next(name, thinking, [WEATHER] if call else [], answer)
    assert extended.text == rendered.text
    assert extended.start == rendered.start


@pytest.mark.parametrize(("name", "thinking"), UNSTABLE)
def test_a_prompt_whose_past_is_rewritten_is_not_extended(name, thinking):
    off = thinking.enabled is False
    answer = assistant("Yes.", reasoning=None if off else "Because.")
    extended, _ = written_and_next(name, thinking, [], answer)
    assert extended is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_rendered_conversation_does_not_wait_for_the_garbage_collector(name):
    def left(turns):
        texts = [user(f"Number {index}") if index % 2 == 0 else assistant("One") for index in range(turns)]
        asked = conversation(*texts)
        list(FAMILIES[name].render(asked).segments)
        gc.collect()
        list(FAMILIES[name].render(asked).segments)
        return gc.collect()

    gc.disable()
    try:
        assert left(201) == left(3)
    finally:
        gc.enable()
