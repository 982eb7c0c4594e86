"""What a scanner decides, for whoever watches it decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from attrs import frozen

__all__ = ["Observer", "Step", "What"]

What: TypeAlias = Literal["mark", "refused", "else", "held"]


@frozen
class Step:
    """One decision about the characters start..end of the raw reply, made in `state`.

    what: `mark` counted and leads to state `to`; it was `refused` because what follows is not legal
    there; the state's `else` leads to `to`, consuming nothing; or the text is `held` because more of the
    reply must tell what it is. Offsets below 0 are in the prompt's end.
    """

    what: What
    start: int
    end: int
    state: str
    mark: str = ""
    to: str = ""


Observer: TypeAlias = Callable[[Step], None]
