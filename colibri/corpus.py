"""A small corpus of conversations that exercise every construct of a chat format."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from colibri.conversation import Conversation
from colibri.protocols.openai_messages import conversation_from_openai

__all__ = ["conversations"]


@cache
def _requests() -> dict[str, dict[str, Any]]:
    data: dict[str, dict[str, Any]] = json.loads((files("colibri") / "corpus.json").read_text("utf-8"))
    return data


def conversations() -> dict[str, Conversation]:
    """The corpus by case name, each with its tools; a few leave their last turn open."""
    return {
        name: conversation_from_openai(
            case["messages"], case.get("tools"), open_last=case.get("open_last", False)
        )
        for name, case in _requests().items()
    }
