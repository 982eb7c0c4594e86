"""Every request field is accepted, ignored or refused by name."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri.conversation import Conversation, Thinking, ToolChoice
from colibri.errors import ColibriError
from colibri.protocols.base import Offer, Request, WireError
from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_completions import COMPLETIONS
from colibri.protocols.openai_options import IGNORED

PLAIN = Offer("m", max_tokens=100)
FULL = Offer(
    "m",
    max_tokens=100,
    slots=4,
    sampling=frozenset(
        {
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "typical_p",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "logit_bias",
        }
    ),
    max_choices=4,
    max_logprobs=32,
    echo=True,
    token_ids=True,
    media=frozenset({"image"}),
    tools=True,
)
USER = {"role": "user", "content": "hi"}
CHAT_BODY: dict[str, Any] = {"model": "m", "messages": [USER]}
TEXT_BODY: dict[str, Any] = {"model": "m", "prompt": "hi"}
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    },
}


def chat(offer: Offer = FULL, **fields: Any) -> Request:
    return CHAT.parse({**CHAT_BODY, **fields}, offer)


def complete(offer: Offer = FULL, **fields: Any) -> Request:
    return COMPLETIONS.parse({**TEXT_BODY, **fields}, offer)


def refusal(make: Any, offer: Offer, **fields: Any) -> WireError:
    with pytest.raises(ColibriError) as caught:
        make(offer, **fields)
    wire = CHAT.error(caught.value)
    assert wire.status == 400
    assert wire.type == "invalid_request_error"
    return wire


BOTH = [chat, complete]
SHARED_REFUSALS = [
    ("n", 2, "n", "unsupported_value"),
    ("n", 0, "n", "unsupported_value"),
    ("n", True, "n", "unsupported_value"),
    ("n", "1", "n", "unsupported_value"),
    ("best_of", 2, "best_of", "unsupported_value"),
    ("logit_bias", {"1": 2}, "logit_bias", "unsupported_value"),
    ("logit_bias", [1], "logit_bias", "unsupported_value"),
    ("suffix", "x", "suffix", "unsupported_parameter"),
    ("suffix", "", "suffix", "unsupported_parameter"),
    ("modalities", [], "modalities", "invalid_value"),
    ("modalities", "text", "modalities", "invalid_value"),
    ("modalities", [1], "modalities", "invalid_value"),
    ("modalities", ["text", "audio"], "modalities", "unsupported_value"),
    ("modalities", ["smell"], "modalities", "unsupported_value"),
    ("stop", "", "stop", "invalid_value"),
    ("stop", [], "stop", "invalid_value"),
    ("stop", ["a", "b", "c", "d", "e"], "stop", "invalid_value"),
    ("stop", ["a", ""], "stop.1", "invalid_value"),
    ("stop", ["a", 3], "stop.1", "invalid_value"),
    ("stop", 3, "stop", "invalid_value"),
    ("stop_token_ids", [-1], "stop_token_ids.0", "invalid_value"),
    ("stop_token_ids", 7, "stop_token_ids", "invalid_value"),
    ("stop_token_ids", [1, True], "stop_token_ids.1", "invalid_value"),
    ("frequency_penalty", 0.1, "frequency_penalty", "unsupported_parameter"),
    ("presence_penalty", -1, "presence_penalty", "unsupported_parameter"),
    ("presence_penalty", "a", "presence_penalty", "unsupported_parameter"),
    ("response_format", 3, "response_format", "invalid_value"),
    ("response_format", {}, "response_format.type", "unsupported_value"),
    ("response_format", {"type": "xml"}, "response_format.type", "unsupported_value"),
    ("response_format", {"type": "json_schema"}, "response_format.json_schema", "invalid_value"),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"schema": []}},
        "response_format.json_schema.schema",
        "invalid_value",
    ),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"schema": {"type": 5}}},
        "response_format.json_schema.schema",
        "invalid_value",
    ),
    *(
        (
            "response_format",
            {"type": "json_schema", "json_schema": {"schema": large}},
            "response_format.json_schema.schema",
            "invalid_value",
        )
        for large in (
            {"enum": ["x" * 131_072]},
            {"properties": {"a": {"pattern": "a" * 8_193}}},
            {"allOf": [{"patternProperties": {"a" * 4_097: {}, "b" * 4_096: {}}}]},
        )
    ),
    (
        "response_format",
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "http://127.0.0.1:9/x"}}},
        "response_format.json_schema.schema",
        "invalid_value",
    ),
    ("max_tokens", 0, "max_tokens", "invalid_value"),
    ("max_tokens", 1.5, "max_tokens", "invalid_value"),
    ("max_tokens", True, "max_tokens", "invalid_value"),
    ("max_completion_tokens", "9", "max_completion_tokens", "invalid_value"),
    ("temperature", 2.1, "temperature", "invalid_value"),
    ("temperature", -0.1, "temperature", "invalid_value"),
    ("temperature", False, "temperature", "invalid_value"),
    ("temperature", 10**400, "temperature", "invalid_value"),
    ("temperature", "hot", "temperature", "invalid_value"),
    ("top_p", 0, "top_p", "invalid_value"),
    ("top_p", 1.01, "top_p", "invalid_value"),
    ("top_p", True, "top_p", "invalid_value"),
    ("echo", "yes", "echo", "invalid_value"),
    ("echo", 1, "echo", "invalid_value"),
    ("echo", True, "echo", "unsupported_parameter"),
    ("x_colibri_ignore_leading_stop", "yes", "x_colibri_ignore_leading_stop", "invalid_value"),
    ("cache_slot", 1, "cache_slot", "invalid_value"),
    ("cache_slot", -1, "cache_slot", "invalid_value"),
    ("cache_slot", True, "cache_slot", "invalid_value"),
    ("cache_slot", 0.0, "cache_slot", "invalid_value"),
    ("stream", 1, "stream", "invalid_value"),
    ("stream", "true", "stream", "invalid_value"),
    ("tool_choice", "auto", "tool_choice", "invalid_value"),
    ("tool_choice", "maybe", "tool_choice", "unsupported_value"),
    ("tool_choice", {"type": "function"}, "tool_choice", "invalid_value"),
    ("tool_choice", 3, "tool_choice", "invalid_value"),
    ("tools", "f", "tools", "invalid_value"),
    ("tools", [3], "tools.0", "invalid_value"),
    ("tools", [{"function": 3}], "tools.0.function", "invalid_value"),
    ("tools", [{"function": {}}], "tools.0.function.name", "invalid_value"),
    (
        "tools",
        [{"function": {"name": "f", "parameters": []}}],
        "tools.0.function.parameters",
        "invalid_value",
    ),
    (
        "tools",
        [{"function": {"name": "f", "parameters": {"properties": 3}}}],
        "tools.0.function.parameters.properties",
        "invalid_value",
    ),
    (
        "tools",
        [{"function": {"name": "f", "parameters": {"required": {}}}}],
        "tools.0.function.parameters.required",
        "invalid_value",
    ),
]
CHAT_REFUSALS = [
    ("messages", None, "messages", "invalid_value"),
    ("messages", [], "messages", "invalid_value"),
    ("messages", {}, "messages", "invalid_value"),
    ("messages", "hi", "messages", "invalid_value"),
    ("messages", [USER, 3], "messages.1", "invalid_value"),
    ("messages", [{"content": "hi"}], "messages.0.role", "invalid_value"),
    ("messages", [{"role": "user", "content": 3}], "messages.0.content", "invalid_value"),
    ("messages", [{"role": "user", "content": [3]}], "messages.0.content.0", "invalid_value"),
    (
        "messages",
        [{"role": "user", "content": [{"type": "text", "text": None}]}],
        "messages.0.content.0.text",
        "invalid_value",
    ),
    (
        "messages",
        [{"role": "user", "content": [{"type": "video"}]}],
        "messages.0.content.0.type",
        "unsupported_content_type",
    ),
    (
        "messages",
        [USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "messages.1.content.0",
        "unsupported_content_type",
    ),
    (
        "messages",
        [{"role": "tool", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]}],
        "messages.0.content",
        "unsupported_content_type",
    ),
    (
        "messages",
        [USER, {"role": "assistant", "reasoning_content": 3}],
        "messages.1.reasoning_content",
        "invalid_value",
    ),
    (
        "messages",
        [USER, {"role": "assistant", "tool_calls": [{"function": "f"}]}],
        "messages.1.tool_calls.0.function",
        "invalid_value",
    ),
    (
        "messages",
        [USER, {"role": "assistant", "tool_calls": [{"function": {"name": 3}}]}],
        "messages.1.tool_calls.0.function.name",
        "invalid_value",
    ),
    (
        "messages",
        [
            USER,
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": '{"a":"\\ud800"}'}}],
            },
        ],
        "messages.1.tool_calls.0.function.arguments",
        "invalid_value",
    ),
    (
        "messages",
        [
            USER,
            {
                "role": "assistant",
                "tool_calls": [{"function": {"name": "f", "arguments": "[" * 9999 + "]" * 9999}}],
            },
        ],
        "messages.1.tool_calls.0.function.arguments",
        "invalid_value",
    ),
    ("reasoning_effort", "huge", "reasoning_effort", "invalid_value"),
    ("reasoning_effort", 3, "reasoning_effort", "invalid_value"),
    ("enable_thinking", "yes", "enable_thinking", "invalid_value"),
    ("preserve_thinking", 1, "preserve_thinking", "invalid_value"),
    ("chat_template_kwargs", [], "chat_template_kwargs", "invalid_value"),
    ("chat_template_kwargs", {"tools": []}, "chat_template_kwargs.tools", "unsupported_parameter"),
    ("strict_tool_calls", "yes", "strict_tool_calls", "invalid_value"),
    ("strict_tool_calls", True, "strict_tool_calls", "invalid_value"),
    ("tools", [TOOL], "tools", "unsupported_parameter"),
    ("logprobs", True, "logprobs", "unsupported_parameter"),
    ("logprobs", 1, "logprobs", "invalid_value"),
    ("top_logprobs", 33, "top_logprobs", "invalid_value"),
    ("top_logprobs", -1, "top_logprobs", "invalid_value"),
    ("top_logprobs", True, "top_logprobs", "invalid_value"),
    ("top_logprobs", "2", "top_logprobs", "invalid_value"),
]
TEXT_REFUSALS = [
    ("prompt", None, "prompt", "invalid_value"),
    ("prompt", "", "prompt", "invalid_value"),
    ("prompt", [], "prompt", "invalid_value"),
    ("prompt", 3, "prompt", "invalid_value"),
    ("prompt", {}, "prompt", "invalid_value"),
    ("prompt", [True], "prompt", "invalid_value"),
    ("prompt", ["a", 1], "prompt", "invalid_value"),
    ("prompt", ["a", ""], "prompt[1]", "invalid_value"),
    ("prompt", [1, 2], "prompt", "unsupported_parameter"),
    ("prompt", [[1], [2]], "prompt[0]", "unsupported_parameter"),
    ("logprobs", True, "logprobs", "invalid_value"),
    ("logprobs", 33, "logprobs", "invalid_value"),
    ("logprobs", 1.0, "logprobs", "invalid_value"),
    ("logprobs", 2, "logprobs", "unsupported_parameter"),
    ("top_logprobs", 0, "top_logprobs", "unsupported_parameter"),
    ("group_score", True, "group_score", "unsupported_value"),
]


@pytest.mark.parametrize(("field", "value", "param", "code"), SHARED_REFUSALS)
@pytest.mark.parametrize("make", BOTH)
def test_shared_fields_are_refused_by_name(make: Any, field: str, value: Any, param: str, code: str) -> None:
    wire = refusal(make, PLAIN, **{field: value})
    assert (wire.param, wire.code) == (param, code)
    assert f"`{param}`" in wire.message


@pytest.mark.parametrize(("field", "value", "param", "code"), CHAT_REFUSALS)
def test_chat_fields_are_refused_by_name(field: str, value: Any, param: str, code: str) -> None:
    wire = refusal(chat, PLAIN, **{field: value})
    assert (wire.param, wire.code) == (param, code)


@pytest.mark.parametrize(("field", "value", "param", "code"), TEXT_REFUSALS)
def test_completion_fields_are_refused_by_name(field: str, value: Any, param: str, code: str) -> None:
    wire = refusal(complete, PLAIN, **{field: value})
    assert (wire.param, wire.code) == (param, code)


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("logit_bias", {"a": 1}, "logit_bias"),
        ("logit_bias", {"1": 101}, "logit_bias.1"),
        ("logit_bias", {"1": None}, "logit_bias.1"),
        ("frequency_penalty", 2.5, "frequency_penalty"),
        ("presence_penalty", "1", "presence_penalty"),
        ("repetition_penalty", 0, "repetition_penalty"),
        ("top_k", 1.5, "top_k"),
        ("min_p", 1.5, "min_p"),
        ("typical_p", 0, "typical_p"),
        ("n", 5, "n"),
        ("stream_options", 3, "stream_options"),
        ("cache_slot", 4, "cache_slot"),
    ],
)
@pytest.mark.parametrize("make", BOTH)
def test_what_an_engine_can_do_is_still_checked(make: Any, field: str, value: Any, param: str) -> None:
    assert refusal(make, FULL, stream=True, **{field: value}).param == param


IGNORED_VALUES = [None, 0, -1, True, "x", [1], {"a": [None]}]


@pytest.mark.parametrize("field", sorted({*IGNORED, "seed", "unknown_field", "top_k", "min_p"}))
@pytest.mark.parametrize("make", BOTH)
def test_ignored_fields_change_nothing(make: Any, field: str) -> None:
    plain = make(PLAIN)
    for value in IGNORED_VALUES:
        if field == "seed" and type(value) is int:
            continue
        assert make(PLAIN, **{field: value}) == plain


@pytest.mark.parametrize("make", BOTH)
def test_null_is_absent_everywhere(make: Any) -> None:
    fields = {name for name, *_ in (*SHARED_REFUSALS, *CHAT_REFUSALS, *TEXT_REFUSALS)} - {
        "messages",
        "prompt",
    }
    fields |= {"stream_options", "functions", "function_call", "prompt_cache_key"}
    assert make(PLAIN, **dict.fromkeys(fields)) == make(PLAIN)


@pytest.mark.parametrize("make", BOTH)
def test_shared_fields_are_read(make: Any) -> None:
    request = make(
        FULL,
        n=2,
        best_of=1,
        logit_bias={"7": -100},
        modalities=["text"],
        stop=["a", "b"],
        stop_token_ids=[3],
        frequency_penalty=1,
        presence_penalty=-0.5,
        repetition_penalty=1.1,
        max_tokens=7,
        temperature=0,
        top_p=1,
        top_k=-1,
        min_p=0.1,
        seed=-1,
        cache_slot=3,
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        x_colibri_ignore_leading_stop=True,
        response_format={"type": "json_object"},
    )
    assert (request.choices, request.stop, request.stop_token_ids) == (2, ("a", "b"), (3,))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0, 1, 0, 0.1)
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (1, -0.5)
    assert sampling.logit_bias == {7: -100}
    assert sampling.seed is not None
    assert 0 <= sampling.seed < 2**63
    assert (request.max_tokens, request.cache_slot) == (7, 3)
    assert (request.stream, request.include_usage, request.ignore_leading_stop) == (True, True, True)
    assert request.schema == {"type": "object"}


@pytest.mark.parametrize("make", BOTH)
def test_budget_is_clamped_and_the_newer_name_wins(make: Any) -> None:
    assert make(PLAIN).max_tokens == 100
    assert make(PLAIN, max_tokens=10**30).max_tokens == 100
    assert make(PLAIN, max_tokens=5, max_completion_tokens=9).max_tokens == 9


def test_thinking_and_template_options() -> None:
    request = chat(
        reasoning_effort="max",
        enable_thinking=False,
        preserve_thinking=True,
        chat_template_kwargs={"enable_thinking": True},
    )
    conversation = request.prompts[0]
    assert isinstance(conversation, Conversation)
    assert conversation.thinking == Thinking(False, "max", None, True)
    assert conversation.options == {"enable_thinking": True}
    assert refusal(chat, PLAIN, reasoning_effort="deep").param == "reasoning_effort"
    chat(evolve(PLAIN, efforts=("deep",)), reasoning_effort="deep")


def test_trailing_assistant_is_continued_if_the_server_does_so() -> None:
    messages = [USER, {"role": "assistant", "content": "It is"}]
    for wanted in (True, False):
        conversation = chat(evolve(PLAIN, continue_assistant=wanted), messages=messages).prompts[0]
        assert isinstance(conversation, Conversation)
        assert conversation.open_last is wanted


def test_tools_need_to_be_served_unless_none_is_chosen() -> None:
    conversation = chat(PLAIN, tools=[TOOL], tool_choice="none").prompts[0]
    assert isinstance(conversation, Conversation)
    assert conversation.tool_choice == ToolChoice("none")
    forced = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}).prompts[0]
    assert isinstance(forced, Conversation)
    assert forced.tool_choice == ToolChoice("tool", "f")
    assert refusal(chat, FULL, tools=[TOOL], tool_choice={"name": "g"}).param == "tool_choice"


def test_bare_and_legacy_functions_get_their_wrapper() -> None:
    bare = TOOL["function"]
    for fields in ({"functions": [bare]}, {"tools": [{"type": "function", **bare}]}):  # type: ignore[dict-item]
        conversation = chat(**fields).prompts[0]
        assert isinstance(conversation, Conversation)
        assert conversation.tools[0].declaration == TOOL


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"logprobs": True}, "logprobs"),
        ({"tool_choice": "none"}, "strict_tool_calls"),
        ({"tools": [{"function": {"name": "f"}}]}, "tools.0"),
        ({"tools": [{"function": {"name": "f", "parameters": {"properties": {"a": {"type": 3}}}}}]}, None),
    ],
)
def test_strict_tool_calls_have_their_conditions(fields: dict[str, Any], param: str | None) -> None:
    body = {"tools": [TOOL], "strict_tool_calls": True}
    assert chat(**body).strict_tool_calls
    wire = refusal(chat, FULL, **(body | fields))
    assert wire.param == (param or "tools.0.function.parameters")


def test_chat_logprobs_are_a_gate_and_a_number() -> None:
    assert chat(top_logprobs=3).logprobs is None
    assert chat(logprobs=False).logprobs is None
    assert chat(logprobs=True).logprobs == 0
    assert chat(logprobs=True, top_logprobs=32, stream=True).logprobs == 32
    assert chat(evolve(FULL, max_logprobs=5), top_logprobs=32).logprobs is None
    assert refusal(chat, evolve(FULL, max_logprobs=5), top_logprobs=33).param == "top_logprobs"
    few = evolve(FULL, max_logprobs=5)
    assert refusal(chat, few, logprobs=True, top_logprobs=6).param == "top_logprobs"
    assert refusal(chat, FULL, echo=True, logprobs=True).param == "echo"


def test_completion_logprobs_are_a_count() -> None:
    for off in (None, False, 0):
        assert complete(logprobs=off).logprobs is None
    assert complete(logprobs=32, echo=True).echo
    assert complete(logprobs=1, echo=True, max_tokens=0).max_tokens == 0
    assert refusal(complete, FULL, logprobs=1, max_tokens=0).param == "max_tokens"
    assert refusal(complete, FULL, echo=True, logprobs=0).param == "echo"
    assert refusal(complete, evolve(FULL, echo=False), echo=True, logprobs=1).param == "echo"


def test_completion_prompts_are_text_ids_or_batches() -> None:
    assert complete(prompt="a").prompts == ("a",)
    assert complete(prompt=["a"], stream=True).prompts == ("a",)
    assert complete(prompt=["a", "b"]).prompts == ("a", "b")
    assert complete(prompt=[1, 2]).prompts == ((1, 2),)
    assert complete(prompt=[[1, 2], [3]]).prompts == ((1, 2), (3,))


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": ["a"] * 129}, "prompt", "prompt_batch_cap_exceeded"),
        ({"prompt": ["é" * 20_000] * 2}, "prompt", "prompt_batch_token_budget_exceeded"),
        ({"prompt": [[1] * 40_000] * 2}, "prompt", "prompt_batch_token_budget_exceeded"),
        ({"prompt": ["a"] * 2}, "max_tokens", "batch_completion_budget_exceeded"),
        ({"prompt": ["a"] * 2, "stream": True}, "stream", "unsupported_value"),
        ({"prompt": ["a"] * 2, "n": 2}, "n", "unsupported_value"),
        ({"prompt": [[1], []]}, "prompt[1]", "invalid_value"),
        ({"prompt": [[1], [-1]]}, "prompt[1]", "invalid_value"),
        ({"prompt": [[1], "a"]}, "prompt", "invalid_value"),
    ],
)
def test_batches_have_caps(fields: dict[str, Any], param: str, code: str) -> None:
    wire = refusal(complete, evolve(FULL, max_tokens=40_000), **fields)
    assert (wire.param, wire.code) == (param, code)


def test_affinity_names_the_conversation() -> None:
    opening = chat().affinity
    answered = [USER, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    assert chat(messages=answered).affinity == opening
    assert chat(messages=answered[1:]).affinity != opening
    assert chat(prompt_cache_key="k").affinity == "k"
    assert chat(prompt_cache_key=3).affinity == opening
    assert complete().affinity is None


KITCHEN_SINK: dict[str, Any] = {
    **CHAT_BODY,
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "a"}], "name": "bob"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "r",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "t"},
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "logit_bias": {"1": 1},
    "stop": ["a"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "chat_template_kwargs": {"a": [1]},
    "logprobs": True,
    "top_logprobs": 1,
}
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "name", "function", "role", "content", "schema", "x"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in steps for found in places(inner, (*path, key)))]


def with_value(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(body)
    node: Any = changed
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    return changed


def accepted_or_named(protocol: Any, body: dict[str, Any], offer: Offer) -> None:
    try:
        request = protocol.parse(body, offer)
    except ColibriError as error:
        wire = protocol.error(error)
        assert wire.status == 400
        assert wire.param
        assert wire.code
        assert wire.message
    else:
        assert isinstance(request, Request)


@settings(max_examples=400)
@given(st.sampled_from(places(KITCHEN_SINK)[1:]), ANY, st.sampled_from([PLAIN, FULL]))
def test_a_malformed_value_at_any_depth_is_a_named_400(path: Any, value: Any, offer: Offer) -> None:
    accepted_or_named(CHAT, with_value(KITCHEN_SINK, path, value), offer)


TEXT_SINK: dict[str, Any] = {
    "prompt": [[1, 2], [3]],
    "echo": True,
    "logprobs": 1,
    "max_tokens": 0,
    "tools": [TOOL],
    "response_format": {"type": "json_object"},
}


@settings(max_examples=200)
@given(st.sampled_from(places(TEXT_SINK)[1:]), ANY, st.sampled_from([PLAIN, FULL]))
def test_a_malformed_completion_value_is_a_named_400(path: Any, value: Any, offer: Offer) -> None:
    accepted_or_named(COMPLETIONS, with_value(TEXT_SINK, path, value), offer)
