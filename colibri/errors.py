"""Everything the library can refuse, with stable codes and places in conversation terms.

Nothing here knows HTTP: `colibri.protocols` turns these errors into statuses and wire paths.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

__all__ = [
    "CheckpointUnknown",
    "ColibriError",
    "ConversationError",
    "DuplicateClaim",
    "FamilyFileError",
    "ModelUnavailable",
    "PluginError",
    "RenderError",
    "RequestError",
    "UnknownFamily",
    "Where",
]


@frozen
class Where:
    """A place in a conversation: which turn, which of its parts, which field of it.

    `turn` and `part` count from 0; `turn` is None for things that belong to no turn, such as a tool
    declaration, whose index is then `tool`.
    """

    turn: int | None = None
    part: int | None = None
    tool: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        words = [
            f"{name} {index}"
            for name, index in (("turn", self.turn), ("part", self.part), ("tool", self.tool))
            if index is not None
        ]
        if self.field is not None:
            words.append(self.field)
        return ", ".join(words)


class ColibriError(Exception):
    """Base of all errors that a user can cause and repair.

    `code` is stable and machine-readable; `where` points into the conversation when the error is
    about one. The message is one sentence that says what was expected and what to do.
    """

    code: ClassVar[str] = "colibri_error"

    def __init__(self, message: str, *, where: Where | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where

    def __str__(self) -> str:
        return self.message


class ConversationError(ColibriError):
    """A message, tool or option does not have the shape that the conversation model needs."""

    code = "invalid_conversation"


class RenderError(ColibriError):
    """The family's format refuses this conversation, as its official renderer does."""

    code = "render_refused"


class RequestError(ColibriError):
    """A request asks for something this family cannot do, although the conversation itself is fine."""

    code = "invalid_request"


class UnknownFamily(ColibriError, KeyError):
    """No installed family has this id."""

    code = "unknown_family"


class CheckpointUnknown(ColibriError):
    """No installed family knows this checkpoint's architecture or chat template."""

    code = "unknown_checkpoint"


class DuplicateClaim(ColibriError):
    """Two plugins claim one family id, chat template or engine kind."""

    code = "duplicate_claim"


class FamilyFileError(ColibriError):
    """A family file is malformed; the message names the file, the key and what was expected."""

    code = "invalid_family_file"


class PluginError(ColibriError):
    """A plugin could not be loaded, or was asked for and is not installed."""

    code = "plugin_error"


class ModelUnavailable(ColibriError):
    """A model file is neither on disk nor to be had."""

    code = "model_unavailable"
