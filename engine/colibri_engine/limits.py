"""What an engine may ask of a network, and a job of an engine with given capabilities."""

from __future__ import annotations

import math
from typing import Final

from .api import Capabilities, Job
from .errors import JobError, SpecError
from .spec import ArchSpec

__all__ = ["SAMPLING_RANGES", "check_context", "check_job"]

SAMPLING_RANGES: Final = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "top_k": (0, math.inf),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "presence_penalty": (-2.0, 2.0),
    "frequency_penalty": (-2.0, 2.0),
    "repetition_penalty": (0.0, math.inf),
}
"""The least and greatest value of each number in SamplingParams; infinity itself is out of range."""

_POSITIVE: Final = ("top_p", "typical_p", "repetition_penalty")


def check_context(context: int | None, spec: ArchSpec) -> None:
    """Refuse more positions in a slot than the network was made for; None is as many.

    Raises:
        SpecError: naming what is possible.
    """
    if context is not None and not 0 < context <= spec.context:
        raise SpecError(f"context is {context}; this network was made for 1 to {spec.context} positions")


def check_job(job: Job, capabilities: Capabilities, vocab: int) -> None:
    """Refuse what is out of range or beyond the capabilities.

    Raises:
        JobError: naming the field, its value and what is possible.
    """
    for name, (low, high) in SAMPLING_RANGES.items():
        value = getattr(job.sampling, name)
        if not low <= value <= high or value == math.inf or (value == 0 and name in _POSITIVE):
            raise JobError(f"sampling.{name} is {value}; it must be from {low} to {high}")
    for token, bias in job.sampling.logit_bias.items():
        if not 0 <= token < vocab or not math.isfinite(bias):
            raise JobError(f"sampling.logit_bias: {token}: {bias} is no finite bias of a token below {vocab}")
    if job.max_tokens < 0:
        raise JobError(f"max_tokens is {job.max_tokens}; it must not be negative")
    if job.logprobs is not None and not 0 <= job.logprobs <= capabilities.max_logprobs:
        raise JobError(f"logprobs is {job.logprobs}; it must be from 0 to {capabilities.max_logprobs}")
    if job.slot is not None and not 0 <= job.slot < capabilities.slots:
        raise JobError(f"slot is {job.slot}; this engine has slots 0 to {capabilities.slots - 1}")
    if job.grammar is not None and job.grammar[0] not in capabilities.grammars:
        raise JobError(f"grammar is of kind {job.grammar[0]}; this engine has no such constraint")
    if job.echo_from < 0:
        raise JobError(f"echo_from is {job.echo_from}; it must not be negative")
    if job.pin and not capabilities.pins:
        raise JobError("pin: this engine keeps no pinned prompts")
