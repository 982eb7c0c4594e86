"""Exceptions as clients are told them."""

from typing import Any, ClassVar

import pytest

from colibri.conversation import Conversation
from colibri.errors import (
    ConversationError,
    FamilyFileError,
    RenderError,
    RequestError,
    Where,
)
from colibri.protocols.base import Offer, ProtocolError, Request, WireError
from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_completions import COMPLETIONS
from colibri.protocols.openai_errors import ENGINE_FAULTS, envelope, explain
from colibri.protocols.openai_messages import conversation_from_openai, wire_path

OFFER = Offer("m", max_tokens=5, tools=True, max_choices=2)
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {
        "role": "assistant",
        "reasoning_content": "r",
        "content": "c",
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "t"},
]


class EngineTrouble(Exception):
    code: ClassVar[str] = "engine_failed"

    def __init__(self, message: str = "secret /path", code: str = "engine_failed", **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code  # type: ignore[misc]
        for name, value in fields.items():
            setattr(self, name, value)


def chat_request() -> Request:
    return CHAT.parse({"messages": MESSAGES}, OFFER)


@pytest.mark.parametrize(
    ("where", "path"),
    [
        (Where(), None),
        (Where(field="effort"), "reasoning_effort"),
        (Where(field="tools"), "tools"),
        (Where(tool=1), "tools.1"),
        (Where(tool=1, field="function.name"), "tools.1.function.name"),
        (Where(turn=0), "messages.0"),
        (Where(turn=0, field="role"), "messages.0.role"),
        (Where(turn=0, part=0), "messages.0.content"),
        (Where(turn=1, part=1), "messages.1.content.1"),
        (Where(turn=2, part=0), "messages.2.reasoning_content"),
        (Where(turn=2, part=1), "messages.2.content"),
        (Where(turn=2, part=2, field="arguments"), "messages.2.tool_calls.0.function.arguments"),
        (Where(turn=3, part=0), "messages.3.content"),
        (Where(turn=3, part=9), "messages.3"),
        (Where(turn=9, part=9), "messages.9"),
    ],
)
def test_places_become_wire_paths(where: Where, path: str | None) -> None:
    assert wire_path(where, conversation_from_openai(MESSAGES)) == path


@pytest.mark.parametrize(
    ("error", "param", "code"),
    [
        (RenderError("no"), "messages", "invalid_value"),
        (RenderError("no", where=Where(turn=1, part=0)), "messages.1.content.0", "invalid_value"),
        (ConversationError("no", where=Where(turn=0, field="role")), "messages.0.role", "unsupported_role"),
        (RequestError("no", where=Where(field="tools")), "tools", "unsupported_parameter"),
        (
            RequestError("no", where=Where(turn=2, field="tool_calls")),
            "messages.2.tool_calls",
            "unsupported_value",
        ),
        (RequestError("no", where=Where(turn=2, field="content")), "messages.2.content", "invalid_value"),
        (RequestError("no", where=Where(field="effort")), "reasoning_effort", "unsupported_value"),
        (EngineTrouble("bad bias", "invalid_job"), "messages", "invalid_value"),
        (
            EngineTrouble("", "context_length_exceeded", used=9, limit=8),
            "messages",
            "context_length_exceeded",
        ),
    ],
)
def test_mistakes_of_clients_are_named_400s(error: Exception, param: str, code: str) -> None:
    wire = explain(error, chat_request())
    assert (wire.status, wire.type, wire.param, wire.code) == (400, "invalid_request_error", param, code)
    assert wire.message


def test_context_overflow_tells_limit_and_need() -> None:
    error = EngineTrouble("", "context_length_exceeded", used=9000, limit=8192)
    assert explain(error, chat_request()).message.startswith(
        "This model's maximum context length is 8192 tokens, however your messages resulted in at least"
        " 9000 tokens."
    )


@pytest.mark.parametrize("code", sorted(ENGINE_FAULTS))
def test_faults_of_token_records_keep_their_code(code: str) -> None:
    wire = explain(EngineTrouble("why", code), chat_request())
    assert (wire.status, wire.param) == ENGINE_FAULTS[code]
    assert (wire.type, wire.code, wire.message) == ("server_error", code, "why")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("secret"),
        KeyError("secret"),
        EngineTrouble(),
        FamilyFileError("secret /path/glm.toml"),
        SystemExit(3),
    ],
)
def test_everything_else_reveals_nothing(error: BaseException) -> None:
    assert explain(error) == WireError(
        500,
        "The colibri engine failed to process the request.",
        type="server_error",
        code="engine_error",
    )


def test_members_of_a_batch_are_named() -> None:
    request = COMPLETIONS.parse({"prompt": ["a", "b"], "max_tokens": 1}, OFFER)
    wire = explain(EngineTrouble("", "context_length_exceeded", used=9, limit=8), request, 1)
    assert wire.param == "prompt[1]"
    assert wire.message.startswith("prompt[1]: This model's maximum context length")
    busy = ProtocolError(WireError(429, "busy", code="queue_full", headers={"Retry-After": "1"}))
    assert explain(busy, request, 1) == busy.wire
    assert explain(EngineTrouble(), request, 1).param is None


def test_choices_belong_to_their_prompt() -> None:
    request = CHAT.parse({"messages": MESSAGES, "n": 2}, OFFER)
    assert isinstance(request.prompts[0], Conversation)
    wire = explain(RenderError("no", where=Where(turn=1, part=1)), request, 1)
    assert wire.param == "messages.1.content.1"


def test_the_envelope_has_all_four_fields() -> None:
    assert envelope(WireError(404, "m", param="model", code="model_not_found")) == {
        "error": {
            "message": "m",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
    }
