"""Prompts to be read, one file a case, for the options of a request; and the laws of the other variants."""

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Conversation, Thinking, ToolCall, ToolChoice
from colibri.corpus import conversations
from colibri.testing import PromptFile, family_suite

FAMILIES = colibri.load([])
VARIANTS = ["glm52", "glm53", "glm47", "qwen36", "qwen35", "qwen38", "mimo26", "olmoe", "olmoe_0924"]
CORPUS = conversations()
OPTIONS = {
    "thinking_off": evolve(CORPUS["past_reasoning"], thinking=Thinking(enabled=False)),
    "effort_low": evolve(CORPUS["system_user"], thinking=Thinking(effort="low")),
    "effort_high": evolve(CORPUS["system_user"], thinking=Thinking(effort="high")),
    "effort_max": evolve(CORPUS["system_user"], thinking=Thinking(effort="max")),
    "reasoning_kept": evolve(CORPUS["past_reasoning"], thinking=Thinking(preserve=True)),
    "reasoning_dropped": evolve(CORPUS["past_reasoning"], thinking=Thinking(preserve=False)),
    "tool_required": evolve(CORPUS["tools_and_system"], tool_choice=ToolChoice("required")),
    "tool_forced": evolve(CORPUS["tools_and_system"], tool_choice=ToolChoice("tool", "get_weather")),
}


@pytest.mark.parametrize("case", OPTIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_options(variant: str, case: str, snapshot) -> None:
    assert FAMILIES[variant].render(OPTIONS[case]).text == snapshot(extension_class=PromptFile)


def suite(family_id: str, *, leave_out: tuple[str, ...] = ()) -> type:
    cases = {name: case for name, case in CORPUS.items() if name not in leave_out}
    return family_suite(FAMILIES[family_id], conversations=cases)


def has_calls(conversation: Conversation) -> bool:
    return any(isinstance(part, ToolCall) for turn in conversation.turns for part in turn.parts)


# Qwen3.5 writes null as None, which reads back as a word; OLMoE drops calls without a word.
CALLS = tuple(name for name, case in CORPUS.items() if has_calls(case))

TestGlm53 = suite("glm53")
TestGlm47 = suite("glm47")
TestQwen35 = suite("qwen35", leave_out=("nested_arguments",))
TestQwen38 = suite("qwen38")
TestMimo26 = suite("mimo26")
TestOlmoe = suite("olmoe", leave_out=CALLS)
TestOlmoe0924 = suite("olmoe_0924", leave_out=CALLS)
