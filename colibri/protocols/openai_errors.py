"""Any exception as the error that an OpenAI client is told."""

from __future__ import annotations

import re
from typing import Any

from colibri.conversation import Conversation
from colibri.errors import ColibriError, ConversationError, RenderError, RequestError, Where
from colibri.protocols.base import PromptInput, ProtocolError, Request, WireError, active_tools
from colibri.protocols.openai_messages import ShapeError, wire_path

__all__ = ["ENGINE_FAULTS", "engine_fault", "envelope", "explain"]

ENGINE_FAULTS = {
    "engine_logprob_tail_malformed": (500, "logprobs"),
    "engine_echo_position_malformed": (500, "echo"),
    "engine_duplicate_logprob_candidate": (500, "logprobs"),
    "engine_logprob_records_incomplete": (500, "logprobs"),
    "engine_pinned_prefix_not_echoed": (503, "echo"),
}
"""Codes of engines whose per-token records cannot answer a request: the status and the field asked for."""

_JOB_FIELD = re.compile(r"sampling\.(?P<sampling>\w+)\b|(?P<other>stop_token_ids)\b|grammar\b")

_CLIENT_ERRORS = (ConversationError, RenderError, RequestError)
_REQUEST_CODES = {
    "effort": "unsupported_value",
    "role": "unsupported_role",
    "tool_calls": "unsupported_value",
    "tools": "unsupported_parameter",
}


def envelope(error: WireError) -> dict[str, Any]:
    """The error as the JSON object of an answer's body or of a stream's last frame."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


def engine_fault(code: str, message: str, param: str | None = None) -> ProtocolError:
    """The refusal for one of `ENGINE_FAULTS`; `param` names another field than the usual one."""
    status, usual = ENGINE_FAULTS[code]
    return ProtocolError(WireError(status, message, "server_error", param or usual, code))


def explain(error: BaseException, request: Request | None = None, choice: int = 0) -> WireError:
    """The status, message, parameter and code for any exception.

    Engine errors are told by their `code`, since no engine is imported here. What is nobody's mistake
    but the server's own becomes a 500 that reveals nothing.
    """
    prompt = request.prompts[choice // request.choices] if request is not None else None
    if isinstance(error, ProtocolError):
        wire = error.wire
    elif isinstance(error, ShapeError):
        wire = WireError(400, error.message, param=error.path, code=error.kind)
    elif isinstance(error, _CLIENT_ERRORS):
        wire = _conversation_error(error, prompt)
    else:
        wire = _engine_error(error, prompt, request)
    if request is not None and len(request.prompts) > 1 and wire.status == 400:
        member = f"prompt[{choice // request.choices}]"
        return WireError(wire.status, f"{member}: {wire.message}", wire.type, member, wire.code, wire.headers)
    return wire


def _conversation_error(error: ColibriError, prompt: PromptInput | None) -> WireError:
    where = error.where or Where(field="messages")
    conversation = prompt if isinstance(prompt, Conversation) else None
    code = _REQUEST_CODES.get(where.field or "", "invalid_value")
    return WireError(400, error.message, param=wire_path(where, conversation) or "messages", code=code)


def _engine_error(error: BaseException, prompt: PromptInput | None, request: Request | None) -> WireError:
    code = str(getattr(error, "code", ""))
    message = getattr(error, "message", str(error))
    field = "messages" if prompt is None or isinstance(prompt, Conversation) else "prompt"
    if code == "context_length_exceeded":
        used, limit = getattr(error, "used", None), getattr(error, "limit", None)
        if used is not None and limit is not None:
            message = (
                f"This model's maximum context length is {limit} tokens, however your {field} resulted in"
                f" at least {used} tokens. Please reduce the length of the {field}."
            )
        return WireError(400, message, param=field, code=code)
    if code == "invalid_job":
        return WireError(400, message, param=_job_field(message, request) or field, code="invalid_value")
    if code in ENGINE_FAULTS:
        return engine_fault(code, message, getattr(error, "field", None)).wire
    return WireError(
        500,
        "The colibri engine failed to process the request.",
        "server_error",
        None,
        "engine_error",
    )


def _job_field(message: str, request: Request | None) -> str | None:
    """The request's field behind the field of the engine's job that the message begins with."""
    found = _JOB_FIELD.match(message)
    if found is None:
        return None
    if named := found["sampling"] or found["other"]:
        return named
    strict = request is not None and request.schema is None and bool(active_tools(request.prompts[0]))
    return "tools" if strict else "response_format"
