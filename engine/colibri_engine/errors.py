"""What an engine can refuse, with stable codes. Nothing here knows HTTP."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "CheckpointError",
    "ContextLengthExceeded",
    "EchoIncomplete",
    "EchoPositionMalformed",
    "EngineError",
    "EngineFailed",
    "JobError",
    "LogprobTailMalformed",
    "PinnedPrefixNotEchoed",
    "RecordsFailed",
    "SpecError",
]


class EngineError(Exception):
    """Base of all engine errors; `code` is stable, the message is one sentence."""

    code: ClassVar[str] = "engine_error"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class CheckpointError(EngineError):
    """A checkpoint file is cut short, lies about itself, or holds what this engine cannot run.

    The message names the file and the field or tensor.
    """

    code = "invalid_checkpoint"


class SpecError(EngineError):
    """An ArchSpec is inconsistent or names a tensor that the checkpoint does not have."""

    code = "invalid_spec"


class JobError(EngineError):
    """A job asks for something out of range or beyond the engine's capabilities."""

    code = "invalid_job"


class ContextLengthExceeded(JobError):
    """The prompt does not fit: `used` tokens are needed, `limit` is what the context holds."""

    code = "context_length_exceeded"

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(
            f"the prompt has {used} tokens and the context holds {limit}; shorten it or open the model"
            " with a longer context"
        )
        self.used = used
        self.limit = limit


class EngineFailed(EngineError):
    """The engine broke while it worked; the job is lost, another one may succeed."""

    code = "engine_failed"


class RecordsFailed(EngineFailed):
    """What the engine reports of tokens does not answer the job; `field` is the job's that asked for it."""

    field: ClassVar[str] = "logprobs"


class LogprobTailMalformed(RecordsFailed):
    """The log probabilities of a token cannot be read."""

    code = "engine_logprob_tail_malformed"


class EchoPositionMalformed(RecordsFailed):
    """The position of a token of the prompt cannot be read."""

    code = "engine_echo_position_malformed"
    field = "echo"


class EchoIncomplete(RecordsFailed):
    """A token of the prompt is not reported, or more than once."""

    code = "engine_logprob_records_incomplete"
    field = "echo"


class PinnedPrefixNotEchoed(RecordsFailed):
    """The tokens at the beginning of the prompt are not reported; the engine remembers them."""

    code = "engine_pinned_prefix_not_echoed"
    field = "echo"
