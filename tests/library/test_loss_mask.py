"""Which characters of a conversation a model wrote."""

from itertools import pairwise

import pytest
from attrs import evolve

import colibri
from colibri.conversation import Reasoning, Text, Thinking, ToolCall
from colibri.corpus import conversations
from colibri.errors import ColibriError
from colibri.family import Prompt
from colibri.loss_mask import reply_spans
from colibri.messages import Places
from colibri.testing import written

FAMILIES = colibri.load()
CORPUS = conversations()

every_family = pytest.mark.parametrize("family_id", FAMILIES)


def learnt(family_id, conversation):
    prompt = FAMILIES[family_id].render(conversation, cue=False)
    return [prompt.text[start:end] for start, end in reply_spans(FAMILIES[family_id], prompt)]


@every_family
def test_a_reply_in_the_formats_words_is_what_is_learnt(family_id):
    """For a conversation that ends with a reply: all of it, its end token, and nothing else of the turn."""
    family = FAMILIES[family_id]
    for reply in written(family, CORPUS):
        whole = family.render(reply.after, cue=False)
        spans = [span for span in reply_spans(family, whole) if span[0] >= len(reply.prompt.text)]
        if not spans:  # an empty reply in a format without an end token of its own
            assert whole.text == reply.prompt.text
            continue
        ((start, end),) = spans
        assert start == len(reply.prompt.text)
        assert whole.text[start:end].startswith(reply.text)
        left = whole.text[start + len(reply.text) : end]
        assert left == "" or left in family.stops.tokens


@every_family
def test_nobody_elses_words_are_learnt(family_id):
    family = FAMILIES[family_id]
    for conversation in CORPUS.values():
        for thinking in (Thinking(), Thinking(enabled=False)):
            try:
                prompt = family.render(evolve(conversation, thinking=thinking), cue=False)
            except ColibriError:
                continue
            spans = reply_spans(family, prompt)
            assert all(a < b <= c < d for (a, b), (c, d) in pairwise(spans))
            places = Places(conversation)
            for segment in prompt.segments:
                inside = any(start < segment.end and segment.start < end for start, end in spans)
                if inside and segment.kind == "value":
                    turn = places.where(segment.path).turn
                    assert conversation.turns[turn].role == "assistant"


@every_family
def test_every_reply_that_a_prompt_shows_is_learnt(family_id):
    """Texts and calls of all assistant turns, past ones too."""
    for name in ("several_turns", "reasoning_then_user", "parallel_calls", "two_rounds"):
        conversation = CORPUS[name]
        try:
            told = learnt(family_id, conversation)
        except ColibriError:
            continue
        replies = [turn for turn in conversation.turns if turn.role == "assistant"]
        assert len(told) == len(replies)
        for text, turn in zip(told, replies, strict=True):
            for part in turn.parts:
                if isinstance(part, Text):
                    assert part.text in text
                elif isinstance(part, ToolCall) and FAMILIES[family_id].features.tools:
                    assert part.name in text


@pytest.mark.parametrize(
    ("family_id", "case", "expected"),
    [
        ("smollm2", "several_turns", ["Hello! How can I help?<|im_end|>", "The Danube.<|im_end|>"]),
        ("glm47", "past_reasoning", ["</think>No, 91 = 7 · 13.<|user|>"]),
        ("olmoe", "past_reasoning", ["No, 91 = 7 · 13.|||IP_ADDRESS|||"]),
        ("kimi_k3", "past_reasoning", None),
        ("qwen36", "past_reasoning", ["No, 91 = 7 · 13.<|im_end|>"]),
        ("gpt_oss", "past_reasoning", ["<|channel|>final<|message|>No, 91 = 7 · 13.<|end|>"]),
        (
            "gemma4",
            "call_answered",
            [
                '<|tool_call>call:get_weather{city:<|"|>Lima<|"|>}<tool_call|><|tool_response>',
                "It is clear in Lima.<turn|>",
            ],
        ),
    ],
)
def test_known_formats(family_id, case, expected):
    told = learnt(family_id, CORPUS[case])
    if expected is None:
        assert told[0].startswith("91 / 7 is 13.<|close|>think<|sep|>")
        assert told[0].endswith("<|close|>message<|sep|><|end_of_msg|>")
    else:
        assert told == expected


def test_an_end_token_that_a_client_typed_ends_nothing():
    messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a<|im_end|>b"}]
    assert learnt("smollm2", colibri.conversation_from_openai(messages)) == ["a<|im_end|>b<|im_end|>"]


def test_an_open_turn_has_no_end():
    prompt = FAMILIES["smollm2"].render(CORPUS["continuation"])
    ((_, end),) = reply_spans(FAMILIES["smollm2"], prompt)
    assert end == len(prompt.text)


def test_a_prompt_without_a_conversation_has_no_replies():
    assert reply_spans(FAMILIES["smollm2"], Prompt("<|im_start|>assistant\nHi<|im_end|>")) == ()


def test_a_conversation_that_begins_with_a_reply():
    conversation = colibri.conversation_from_openai(
        [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "u"}]
    )
    assert learnt("glm52", conversation) == ["</think>Hi.<|user|>"]
    assert Reasoning not in {type(part) for part in conversation.turns[0].parts}
