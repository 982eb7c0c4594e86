"""Model families as plugins: exact prompts, reply parsers, and what engines and servers need of them.

Public names are imported on first use, so that `import colibri` stays cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colibri.control_tokens import find_control_tokens as find_control_tokens
    from colibri.conversation import Conversation as Conversation
    from colibri.conversation import Tool as Tool
    from colibri.engines import open_engine as open_engine
    from colibri.errors import ColibriError as ColibriError
    from colibri.family import Family as Family
    from colibri.family import Prompt as Prompt
    from colibri.generation import chat as chat
    from colibri.hookspecs import hookimpl as hookimpl
    from colibri.loading import load_family as load_family
    from colibri.loss_mask import reply_spans as reply_spans
    from colibri.protocols.openai_messages import conversation_from_openai as conversation_from_openai
    from colibri.registry import Registry as Registry
    from colibri.registry import load as load
    from colibri.reply import Reply as Reply
    from colibri.reply import fold as fold
    from colibri_engine.api import SamplingParams as SamplingParams

__all__ = [
    "ColibriError",
    "Conversation",
    "Family",
    "Prompt",
    "Registry",
    "Reply",
    "SamplingParams",
    "Tool",
    "chat",
    "conversation_from_openai",
    "find_control_tokens",
    "fold",
    "hookimpl",
    "load",
    "load_family",
    "open_engine",
    "reply_spans",
]

_HOMES = {
    "ColibriError": "colibri.errors",
    "Conversation": "colibri.conversation",
    "Family": "colibri.family",
    "Prompt": "colibri.family",
    "Registry": "colibri.registry",
    "Reply": "colibri.reply",
    "SamplingParams": "colibri_engine.api",
    "Tool": "colibri.conversation",
    "chat": "colibri.generation",
    "conversation_from_openai": "colibri.protocols.openai_messages",
    "find_control_tokens": "colibri.control_tokens",
    "fold": "colibri.reply",
    "hookimpl": "colibri.hookspecs",
    "load": "colibri.registry",
    "load_family": "colibri.loading",
    "open_engine": "colibri.engines",
    "reply_spans": "colibri.loss_mask",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'colibri' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
