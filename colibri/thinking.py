"""How much to reason, translated into a variant's own template keywords by data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, frozen

from colibri.conversation import Thinking
from colibri.errors import RequestError, Where

__all__ = ["EFFORTS", "ThinkingRule"]

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""All effort names that a request may use, in rising order."""


@frozen
class ThinkingRule:
    """A variant's switches for reasoning, as keyword arguments of its official template.

    switch: the keyword that turns thinking `on` and `off`, with the values that say so; None when there is
    no switch. effort: the keyword that takes a level; `levels` are those the variant has, in rising order;
    `values` gives the keyword's value where it is not the level's name. preserve: the keyword that keeps
    past reasoning, with the value that means yes.
    """

    switch: str | None = None
    on: bool | str = True
    off: bool | str = False
    effort: str | None = None
    levels: tuple[str, ...] = ()
    values: Mapping[str, Any] = Factory(dict)
    preserve: str | None = None
    preserve_value: bool = True

    def level(self, effort: str) -> str | None:
        """The variant's level for a requested effort; None where effort makes no difference.

        A level the variant has is itself, else the next higher one, else its highest.

        Raises:
            RequestError: the name is none of `EFFORTS` nor a level of the variant.
        """
        if effort in self.levels:
            return effort
        if effort not in EFFORTS:
            known = ", ".join(dict.fromkeys((*EFFORTS, *self.levels)))
            raise RequestError(
                f"reasoning effort {effort!r} is not known; use one of {known}",
                where=Where(field="effort"),
            )
        wanted = EFFORTS.index(effort)
        higher = (level for level in self.levels if EFFORTS.index(level) > wanted)
        return next(higher, self.levels[-1] if self.levels else None)

    def enabled(self, thinking: Thinking) -> bool | None:
        """Whether the request turns thinking on or off; None leaves the variant's default."""
        if thinking.enabled is not None or thinking.effort is None:
            return thinking.enabled
        return thinking.effort != "none"

    def keywords(self, thinking: Thinking) -> dict[str, Any]:
        """The official template's keyword arguments for this request; what it leaves open is absent.

        Where there is no switch, thinking that is turned off has the lowest level.

        Raises:
            RequestError: the effort's name is not known.
        """
        keywords: dict[str, Any] = {}
        enabled, effort = self.enabled(thinking), thinking.effort
        if self.switch is not None and enabled is not None:
            keywords[self.switch] = self.on if enabled else self.off
        if self.switch is None and enabled is False:
            effort = "none"
        if effort is not None:
            level = self.level(effort)
            off = effort == "none" and "none" not in self.levels
            if self.effort is not None and level is not None and not (off and self.switch is not None):
                keywords[self.effort] = self.values.get(level, level)
        if self.preserve is not None and thinking.preserve is not None:
            keywords[self.preserve] = thinking.preserve is self.preserve_value
        return keywords
