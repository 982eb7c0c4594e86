"""SUBMIT, the frame that carries a job to an engine.

    SUBMIT id slot bytes max_tokens temperature top_p [grammar_bytes [prefix_bytes]] [key=value …]

is followed by the prompt, the grammar and, in version 2, the trusted spans. The options of version 1 are
`logprobs=` from 1 on, which brings those of the prompt along, `pin=1` and `ids=1` (the prompt is decimal
token ids). `v=2` allows the others: those of `_SAMPLING`, `logit_bias=ID:BIAS,…`, `stop_ids=ID,…`, `echo=1`,
`echo_from=`, `grammar=KIND`, and `spans=BYTES`, the size of `START:END …`, in bytes of the prompt, where the
spelling of a special token stands for the token. Slot -1 is any slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

from attrs import frozen

from .api import Job, SamplingParams
from .errors import JobError
from .frames import MAX_LINE, frame, option, real, split_options, whole

__all__ = ["Submit", "encode_submit", "read_submit", "submit_sizes"]

_SAMPLING: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "seed": lambda word, name: whole(word, name, -(1 << 63)),
    "top_k": whole,
    "min_p": real,
    "typical_p": real,
    "presence_penalty": real,
    "frequency_penalty": real,
    "repetition_penalty": real,
}
_DEFAULTS: Final = SamplingParams()
_GRAMMARS: Final = ("json_schema", "regex", "lark")
_FIRST: Final = frozenset({"logprobs", "pin", "ids"})
_OTHERS: Final = frozenset({"v", "logit_bias", "stop_ids", "echo", "echo_from", "grammar", "spans"})
_SECOND: Final = _FIRST | _OTHERS | _SAMPLING.keys()
_FIXED: Final = 7


@frozen
class Submit:
    """A job to run. id: names it in all frames, from 1. version: what its frames may be made of."""

    id: int
    job: Job
    version: int = 2


def encode_submit(submit: Submit) -> bytes:
    """The frame; version 1 leaves out what it has no words for.

    Raises:
        JobError: the prompt is no Unicode text, a span is not within it, or a list is too long.
    """
    job = submit.job
    prompt = _encode_prompt(job.prompt)
    head = [submit.id, -1 if job.slot is None else job.slot, len(prompt), job.max_tokens]
    words = ["SUBMIT", *map(str, head), *map(_number, (job.sampling.temperature, job.sampling.top_p))]
    blocks = [prompt]
    if submit.version == 2:
        if job.grammar is not None:
            blocks.append(job.grammar[1].encode())
            words.append(str(len(blocks[1])))
        words += _second_version(job)
        if job.trusted is not None and isinstance(job.prompt, str):
            blocks.append(_encode_spans(job.trusted, job.prompt, len(prompt)))
            words.append(f"spans={len(blocks[-1])}")
    if job.logprobs is not None:
        words.append(f"logprobs={job.logprobs if submit.version == 2 else max(1, job.logprobs)}")
    words += ["pin=1"] * job.pin + ["ids=1"] * (not isinstance(job.prompt, str))
    line = " ".join(words)
    if len(line) > MAX_LINE:
        raise JobError(f"the job's lists take {len(line)} characters; an engine reads {MAX_LINE}")
    return frame(line, *blocks)


def submit_sizes(words: Sequence[str]) -> list[int]:
    """The sizes of the blocks; see `frames.Sizes`."""
    sizes, spans = [whole(words[3], "bytes")], option(words, "spans")
    if len(words) > _FIXED and "=" not in words[_FIXED]:
        sizes.append(whole(words[_FIXED], "grammar_bytes"))
    return sizes if spans is None else [*sizes, whole(spans, "spans")]


def read_submit(words: Sequence[str], blocks: Sequence[bytes]) -> Submit:
    """The job of a frame.

    Raises:
        ValueError: naming the field that is wrong.
    """
    fixed, options = split_options(words)
    if not _FIXED <= len(fixed) <= _FIXED + 2:
        raise ValueError(f"SUBMIT has {len(fixed)} words before its options; 7 to 9 are possible")
    version = 2 if options.get("v") == "2" else 1
    for key in options:
        if key not in (_SECOND if version == 2 else _FIRST):
            raise ValueError(f"the option {key:.40} is unknown in version {version}")
    logprobs = whole(options["logprobs"], "logprobs") if "logprobs" in options else None
    slot = whole(fixed[2], "slot", -1)
    job = Job(
        prompt=_read_prompt(blocks[0], ids=_flag(options, "ids")),
        max_tokens=whole(fixed[4], "max_tokens"),
        trusted=_read_spans(blocks[-1], blocks[0]) if "spans" in options else None,
        sampling=_read_sampling(fixed, options),
        stop_token_ids=tuple(whole(word, "stop_ids") for word in _items(options, "stop_ids")),
        logprobs=logprobs,
        echo=_flag(options, "echo") if version == 2 else logprobs is not None,
        echo_from=whole(options.get("echo_from", "0"), "echo_from"),
        slot=None if slot < 0 else slot,
        pin=_flag(options, "pin"),
        grammar=_read_grammar(options, blocks),
    )
    return Submit(whole(fixed[1], "id", 1), job, version)


def _second_version(job: Job) -> list[str]:
    """The options of version 2 that have no block of their own; defaults are left out."""
    sampling = job.sampling
    words = ["v=2"]
    for name, read in _SAMPLING.items():
        value = getattr(sampling, name)
        if value != getattr(_DEFAULTS, name):
            words.append(f"{name}={_number(value) if read is real else value}")
    if sampling.logit_bias:
        pairs = (f"{token}:{_number(bias)}" for token, bias in sampling.logit_bias.items())
        words.append(f"logit_bias={','.join(pairs)}")
    if job.stop_token_ids:
        words.append(f"stop_ids={','.join(map(str, job.stop_token_ids))}")
    if job.grammar is not None:
        words.append(f"grammar={job.grammar[0]}")
    return words + ["echo=1"] * job.echo + [f"echo_from={job.echo_from}"] * (job.echo_from > 0)


def _read_sampling(fixed: Sequence[str], options: Mapping[str, str]) -> SamplingParams:
    bias = {}
    for item in _items(options, "logit_bias"):
        token, _, value = item.partition(":")
        bias[whole(token, "logit_bias")] = real(value, "logit_bias")
    return SamplingParams(
        temperature=real(fixed[5], "temperature"),
        top_p=real(fixed[6], "top_p"),
        logit_bias=bias,
        **{name: read(options[name], name) for name, read in _SAMPLING.items() if name in options},
    )


def _read_grammar(options: Mapping[str, str], blocks: Sequence[bytes]) -> Any:
    """The constraint. A grammar without a kind only drafts in version 1, so that it can be left out."""
    kind = options.get("grammar")
    if kind is None:
        return None
    if kind not in _GRAMMARS or len(blocks) < 2 + ("spans" in options):
        raise ValueError(f"grammar is {kind!r:.40}; it must be one of {', '.join(_GRAMMARS)} and have a text")
    return kind, _text(blocks[1], "grammar")


def _encode_prompt(prompt: str | Sequence[int]) -> bytes:
    if not isinstance(prompt, str):
        return " ".join(map(str, prompt)).encode()
    try:
        return prompt.encode()
    except UnicodeEncodeError:
        raise JobError("the prompt holds half a surrogate pair, which is no Unicode text") from None


def _read_prompt(block: bytes, *, ids: bool) -> str | tuple[int, ...]:
    text = _text(block, "the prompt")
    return tuple(whole(word, "a token id") for word in text.split()) if ids else text


def _encode_spans(spans: Iterable[tuple[int, int]], text: str, size: int) -> bytes:
    """Spans of characters as spans of bytes."""
    spans = list(spans)
    for start, end in spans:
        if not 0 <= start <= end <= len(text):
            raise JobError(f"trusted: [{start}, {end}) is no span of a text of {len(text)} characters")
    if size == len(text):
        return _join(spans)
    marks = sorted({0, *chain.from_iterable(spans)})
    at, place = 0, {0: 0}
    for before, mark in pairwise(marks):
        at += len(text[before:mark].encode())
        place[mark] = at
    return _join((place[start], place[end]) for start, end in spans)


def _read_spans(block: bytes, prompt: bytes) -> tuple[tuple[int, int], ...]:
    """Spans of bytes as spans of characters."""
    spans = []
    for word in _text(block, "spans").split():
        start, _, end = word.partition(":")
        spans.append((whole(start, "spans"), whole(end, "spans")))
    marks = sorted({0, *chain.from_iterable(spans)})
    if marks[-1] > len(prompt):
        raise ValueError(f"spans reach to byte {marks[-1]} of a prompt of {len(prompt)}")
    at, place = 0, {0: 0}
    for before, mark in pairwise(marks):
        at += len(_text(prompt[before:mark], "a span"))
        place[mark] = at
    return tuple((place[start], place[end]) for start, end in spans)


def _join(spans: Iterable[tuple[int, int]]) -> bytes:
    return " ".join(f"{start}:{end}" for start, end in spans).encode()


def _items(options: Mapping[str, str], name: str) -> list[str]:
    return options[name].split(",") if name in options else []


def _flag(options: Mapping[str, str], name: str) -> bool:
    value = options.get(name, "0")
    if value not in ("0", "1"):
        raise ValueError(f"{name} is {value!r:.40}; it must be 0 or 1")
    return value == "1"


def _number(value: float) -> str:
    """The shortest spelling that reads back as the same number."""
    return repr(float(value))


def _text(block: bytes, name: str) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name} is not UTF-8") from None
