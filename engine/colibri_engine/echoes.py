"""The records of a prompt's tokens: in the order of their positions, and none of them missing."""

from __future__ import annotations

from .api import Echo
from .errors import EchoIncomplete, PinnedPrefixNotEchoed

__all__ = ["EchoOrder"]


class EchoOrder:
    """Puts records in order, however they come. first: the position from which on they were asked for."""

    def __init__(self, first: int = 0) -> None:
        self._first = self._next = first
        self._early: dict[int, Echo] = {}
        self._closed = False

    def take(self, echo: Echo) -> list[Echo]:
        """The records that are next now that this one came.

        Raises:
            EchoIncomplete: its position came already, or its prompt is complete.
        """
        if self._closed or echo.position < self._next or echo.position in self._early:
            raise EchoIncomplete(f"the engine echoed the prompt's position {echo.position} twice or too late")
        self._early[echo.position] = echo
        ready = []
        while (following := self._early.pop(self._next, None)) is not None:
            ready.append(following)
            self._next += 1
        return ready

    def close(self, prompt_tokens: int) -> None:
        """No more are to come. prompt_tokens: how many the prompt has; 0 if the engine does not tell.

        Raises:
            PinnedPrefixNotEchoed: all records before some position are missing.
            EchoIncomplete: others are missing, or there are more than the prompt has tokens.
        """
        self._closed = True
        end = max(prompt_tokens, self._first) if prompt_tokens else max(self._next, 1)
        if not self._early and self._next == end:
            return
        if self._next == self._first and self._early and _contiguous(self._early):
            raise PinnedPrefixNotEchoed(
                f"the engine echoed the prompt from position {min(self._early)} on and keeps the rest"
            )
        raise EchoIncomplete("the positions that the engine echoed are not those of the prompt's tokens")


def _contiguous(positions: dict[int, Echo]) -> bool:
    return max(positions) - min(positions) == len(positions) - 1
