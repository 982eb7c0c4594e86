import pytest

from colibri.conversation import Thinking
from colibri.errors import RequestError
from colibri.thinking import EFFORTS, ThinkingRule

SWITCHED = ThinkingRule(switch="enable_thinking", effort="reasoning_effort", levels=("low", "high"))


@pytest.mark.parametrize(
    ("effort", "level"),
    [
        ("none", "low"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "high"),
        ("high", "high"),
        ("xhigh", "high"),
        ("max", "high"),
    ],
)
def test_a_missing_level_is_the_next_higher_else_the_highest(effort, level):
    assert SWITCHED.level(effort) == level


@pytest.mark.parametrize("levels", [(), ("low",), ("none", "max"), ("medium", "xhigh"), EFFORTS])
@pytest.mark.parametrize("effort", EFFORTS)
def test_a_level_is_always_one_the_variant_has(levels, effort):
    level = ThinkingRule(levels=levels).level(effort)
    assert level in levels if levels else level is None
    if effort in levels:
        assert level == effort


def test_an_unknown_level_is_refused_with_all_levels_named():
    with pytest.raises(RequestError, match="'turbo' is not known; use one of none, minimal, low"):
        SWITCHED.level("turbo")


@pytest.mark.parametrize(
    ("thinking", "keywords"),
    [
        (Thinking(), {}),
        (Thinking(enabled=True), {"enable_thinking": True}),
        (Thinking(enabled=False), {"enable_thinking": False}),
        (Thinking(effort="none"), {"enable_thinking": False}),
        (Thinking(effort="medium"), {"enable_thinking": True, "reasoning_effort": "high"}),
        (Thinking(enabled=True, effort="none"), {"enable_thinking": True}),
        (Thinking(enabled=False, effort="low"), {"enable_thinking": False, "reasoning_effort": "low"}),
    ],
)
def test_a_variant_with_a_switch(thinking, keywords):
    assert SWITCHED.keywords(thinking) == keywords


def test_without_a_switch_none_is_the_lowest_level():
    rule = ThinkingRule(effort="reasoning_effort", levels=("low", "max"))
    assert rule.keywords(Thinking(effort="none")) == {"reasoning_effort": "low"}
    assert rule.keywords(Thinking(enabled=False)) == {"reasoning_effort": "low"}
    assert rule.keywords(Thinking(enabled=False, effort="max")) == {"reasoning_effort": "low"}
    assert rule.keywords(Thinking(enabled=True)) == {}


def test_values_and_an_inverted_preserve_keyword():
    rule = ThinkingRule(
        effort="budget", levels=("low",), values={"low": 50}, preserve="clear_thinking", preserve_value=False
    )
    assert rule.keywords(Thinking(effort="low", preserve=True)) == {"budget": 50, "clear_thinking": False}
    assert rule.keywords(Thinking(preserve=False)) == {"clear_thinking": True}


@pytest.mark.parametrize(("enabled", "word"), [(True, "enabled"), (False, "disabled")])
def test_a_switch_may_have_words_for_on_and_off(enabled, word):
    rule = ThinkingRule(switch="thinking_mode", on="enabled", off="disabled")
    assert rule.keywords(Thinking(enabled=enabled)) == {"thinking_mode": word}
    assert rule.keywords(Thinking()) == {}
