"""The model that a server serves: family, engine, and what they offer together."""

from __future__ import annotations

import time
from typing import Any

from attrs import evolve, field, frozen

from colibri.fallback import with_tools
from colibri.family import Family
from colibri.protocols.base import Offer
from colibri.registry import load
from colibri.server.settings import DEFAULT_TOKENS, Settings
from colibri_engine.api import Engine

__all__ = ["Served", "special_ids", "with_settings"]

_MAX_CHOICES = 16
# The family whose form of calls is used where tools are offered in words.
_DONOR = "glm52"


@frozen
class Served:
    """A loaded model under the name that clients use; `created` is when, in Unix seconds."""

    family: Family
    engine: Engine
    settings: Settings
    created: int = field(factory=lambda: int(time.time()))

    @property
    def id(self) -> str:
        """The served id."""
        return self.settings.model_id or self.family.served_as

    @property
    def media(self) -> list[str]:
        """Kinds of input beside text that family and engine both take."""
        return sorted(frozenset(self.family.features.media) & self.engine.capabilities.media)

    @property
    def offer(self) -> Offer:
        """What requests may ask for: capabilities of the engine, the family's format, the settings."""
        able, features, settings = self.engine.capabilities, self.family.features, self.settings
        return Offer(
            model=self.id,
            max_tokens=settings.max_tokens or able.context_length,
            default_tokens=settings.max_tokens or DEFAULT_TOKENS,
            slots=settings.kv_slots,
            sampling=able.sampling,
            max_choices=_MAX_CHOICES if "seed" in able.sampling else 1,
            max_logprobs=able.max_logprobs,
            echo=able.echo,
            token_ids=able.token_ids,
            media=frozenset(self.media),
            tools=features.tools_served,
            tools_in_words=not features.tools,
            efforts=features.efforts,
            continue_assistant=settings.continue_assistant,
        )

    def card(self) -> dict[str, Any]:
        """The model as an entry of the models list."""
        return {
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": "colibri",
            "input_modalities": ["text", *self.media],
            "capabilities": ["chat"],
        }


async def special_ids(family: Family, engine: Engine) -> dict[str, int]:
    """The ids of those special spellings of a family's replies that are one token of the model.

    None for an engine that needs none, because it takes no grammars that name tokens, or does not tell.
    """
    able = engine.capabilities
    if "lark" not in able.grammars or not able.tokenize:
        return {}
    found = {spelling: await engine.tokenize(spelling) for spelling in family.grammar.special}
    return {spelling: ids[0] for spelling, ids in found.items() if len(ids) == 1}


def with_settings(family: Family, settings: Settings) -> Family:
    """The family as the operator wants it served.

    Whether it reasons where a request does not say, and tools in words where its format has none.
    """
    if settings.think is not None:
        family = evolve(family, serve=evolve(family.serve, thinking=settings.think, effort=None))
    if settings.tool_fallback and not family.features.tools:
        family = with_tools(family, load()[_DONOR])
    return family
