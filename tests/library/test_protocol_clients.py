"""Recorded requests of real clients parse to what they ask for."""

import json
from pathlib import Path
from typing import Any

import pytest

from colibri.conversation import Conversation
from colibri.protocols.base import Offer, Request
from colibri.protocols.json_body import decode_body
from colibri.protocols.openai_chat import CHAT
from colibri.protocols.openai_completions import COMPLETIONS

DATA = Path(__file__).parents[1] / "data" / "client_requests"
RECORDED = sorted(path.relative_to(DATA).as_posix() for path in DATA.glob("*/*.json"))
OFFER = Offer(
    "colibri-stub",
    sampling=frozenset(
        {"temperature", "top_p", "logit_bias", "presence_penalty", "frequency_penalty", "seed"}
    ),
    max_choices=2,
    slots=2,
    max_logprobs=32,
    echo=True,
    token_ids=True,
    tools=True,
)


def parse(name: str) -> tuple[dict[str, Any], Request]:
    recorded = json.loads((DATA / name).read_text())
    protocol = {"/v1/chat/completions": CHAT, "/v1/completions": COMPLETIONS}[recorded["path"]]
    body = decode_body(json.dumps(recorded["body"]).encode())
    return body, protocol.parse(body, OFFER)


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_request_is_accepted(name: str) -> None:
    body, request = parse(name)
    assert request.stream == body.get("stream", False)
    assert request.include_usage == bool(body.get("stream_options", {}).get("include_usage"))
    assert request.sampling.temperature == body.get("temperature")
    assert request.sampling.seed == body.get("seed")
    prompt = request.prompts[0]
    if isinstance(prompt, Conversation):
        assert [turn.role for turn in prompt.turns] == [message["role"] for message in body["messages"]]
        assert [tool.declaration for tool in prompt.tools] == body.get("tools", [])
        assert not prompt.open_last


def test_lm_eval_scores_batches_of_token_ids() -> None:
    body, request = parse("lm-eval/03.json")
    assert request.prompts == tuple(tuple(ids) for ids in body["prompt"])
    assert (request.echo, request.logprobs, request.max_tokens) == (True, 1, 1)


def test_pi_sends_reasoning_back_under_either_name() -> None:
    for name in ("pi/04.json", "pi/05.json"):
        _, request = parse(name)
        conversation = request.prompts[0]
        assert isinstance(conversation, Conversation)
        assert conversation.thinking.effort == "medium"
        assert [type(part).__name__ for part in conversation.turns[2].parts] == ["Reasoning", "ToolCall"]
