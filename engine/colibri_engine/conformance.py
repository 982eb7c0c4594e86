"""Does a program speak the serve line protocol? A list of checks for those who write engines.

Each check talks to the program as a server does, and says in one sentence what was wrong. Replies are
compared only with each other, so any model will do.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import partial
from math import isnan
from random import Random
from typing import Final, TypeAlias

from attrs import frozen

from .api import Accepted, Echo, Job, Piece, SamplingParams
from .child import Command
from .dialogue import Dialogue, Fault, Transcript
from .errors import ContextLengthExceeded, EngineError, JobError
from .wire import encode_cancel, encode_stop

__all__ = ["CHECKS", "Result", "run_checks"]

_GREEDY: Final = SamplingParams(temperature=0, top_p=1)
_PROMPT: Final = "Write one line about the open sea"
_PROMPTS: Final = (_PROMPT, "Name three old maps", "Bake a plain loaf", "Do not climb a high fence")
_SHORT: Final = 12
_LONG: Final = 2048
_ATTEMPTS: Final = 3
_LARGEST_CONTEXT: Final = 1 << 17
_KIND: Final = re.compile(r"[A-Z][A-Z0-9_]*")


class _Skipped(Exception):
    """A check that says nothing about this program; the argument says why."""


@frozen
class Result:
    """The outcome of a check. passed: None if it was skipped; detail: why, or what is wrong."""

    name: str
    passed: bool | None
    detail: str = ""


_Check: TypeAlias = Callable[[Dialogue], Awaitable[None]]


async def run_checks(
    command: Command, *, seconds: float = 60.0, load_seconds: float = 1800.0, slots: int = 2
) -> AsyncGenerator[Result, None]:
    """Run all checks on a program, one after the other; it is started again after one that failed.

    seconds: how long it may be silent, or take to do what it is told. load_seconds: how long it may take
    to become ready. slots: what it is to have, if it does not announce its own number.
    """
    dialogue: Dialogue | None = None
    try:
        for name, check in CHECKS.items():
            if dialogue is None:
                fresh = Dialogue(command, seconds=seconds, slots=slots)
                try:
                    await fresh.start(load_seconds)
                except (Fault, EngineError) as error:
                    yield Result(name, False, str(error))
                    return
                dialogue = fresh
            result = await _run(name, check, dialogue)
            yield result
            if result.passed is False or dialogue.over:
                await dialogue.close()
                dialogue = None
    finally:
        if dialogue is not None:
            await dialogue.close()


async def _run(name: str, check: _Check, dialogue: Dialogue) -> Result:
    try:
        await check(dialogue)
        for kind in dialogue.others:
            if not _KIND.fullmatch(kind):
                raise Fault(f"the line that begins with {kind[:20]!r} is of no kind")
    except _Skipped as reason:
        return Result(name, None, str(reason))
    except Fault as fault:
        return Result(name, False, str(fault))
    return Result(name, True)


def _job(prompt: str = _PROMPT, max_tokens: int = _SHORT, **fields: object) -> Job:
    values: Mapping[str, object] = {"sampling": _GREEDY, "slot": 0} | fields
    return Job(prompt, max_tokens, **values)  # type: ignore[arg-type]


async def _becomes_ready(dialogue: Dialogue) -> None:
    """It was started; it must have slots."""
    if dialogue.able.slots < 1:
        raise Fault(f"CAPS says slots={dialogue.able.slots}; there must be one")


async def _reply(dialogue: Dialogue) -> None:
    reply = await dialogue.ask(_job())
    _sound(dialogue, reply)


def _sound(dialogue: Dialogue, reply: Transcript) -> None:
    """Check the order and the numbers of a whole reply."""
    done, events = reply.done, reply.events
    if not events or not isinstance(events[0], Accepted):
        raise Fault("the first line about a job must be ACCEPT")
    if sum(isinstance(event, Accepted) for event in events) > 1:
        raise Fault("ACCEPT came twice for one job")
    accepted = events[0]
    if accepted.prompt_tokens < 1:
        raise Fault(f"ACCEPT counts {accepted.prompt_tokens} prompt tokens of a prompt that has some")
    if done.prompt_tokens != accepted.prompt_tokens:
        raise Fault(f"ACCEPT counts {accepted.prompt_tokens} prompt tokens and DONE {done.prompt_tokens}")
    pieces = sum(isinstance(event, Piece) for event in events)
    if pieces > done.completion_tokens or (dialogue.version == 2 and pieces != done.completion_tokens):
        raise Fault(f"DONE counts {done.completion_tokens} tokens, and {pieces} came as DATA")


async def _repeats(dialogue: Dialogue) -> None:
    first, second = [(await dialogue.ask(_job())).data for _ in range(2)]
    if first != second:
        raise Fault("the same prompt with temperature 0 gave two different replies")


async def _limit(dialogue: Dialogue) -> None:
    for limit in (1, 5):
        done = (await dialogue.ask(_job(max_tokens=limit))).done
        if done.completion_tokens > limit:
            raise Fault(f"max_tokens was {limit}, and {done.completion_tokens} tokens came")
        if (done.completion_tokens == limit) != (done.reason == "length"):
            raise Fault(f"max_tokens was {limit}, {done.completion_tokens} came, and DONE says {done.reason}")


async def _payload(dialogue: Dialogue) -> None:
    short = await dialogue.ask(_job("A line"))
    text = "A line\n\nDONE 1 STAT 0 0 0 0 0 0\nCANCEL 1\nand one with é and 中 and 🙂\n"
    whole = await dialogue.ask(_job(text))
    _sound(dialogue, whole)
    if whole.events[0].prompt_tokens <= short.events[0].prompt_tokens:  # type: ignore[union-attr]
        raise Fault("a prompt of several lines has no more tokens than its first line")


async def _slots(dialogue: Dialogue) -> None:
    count = min(dialogue.able.slots, len(_PROMPTS))
    if count < 2:
        raise _Skipped("it has one slot")
    jobs = [_job(prompt, slot=slot) for slot, prompt in enumerate(_PROMPTS[:count])]
    alone = [(await dialogue.ask(job)).data for job in jobs]
    ids = [dialogue.submit(job) for job in jobs]
    together = [(await dialogue.ended(id)).data for id in ids]
    for slot, (one, other) in enumerate(zip(alone, together, strict=True)):
        if one != other:
            raise Fault(f"the reply in slot {slot} differs when other slots write at the same time")


async def _stop(dialogue: Dialogue) -> None:
    await _interrupted(dialogue, encode_stop, "STOP")


async def _cancel(dialogue: Dialogue) -> None:
    before = (await dialogue.ask(_job())).data
    await _interrupted(dialogue, encode_cancel, "CANCEL")
    if (await dialogue.ask(_job())).data != before:
        raise Fault("a reply in the slot of a cancelled job differs from the one before it")


async def _interrupted(dialogue: Dialogue, encode: Callable[[int], bytes], word: str) -> None:
    """Only one that goes on to its limit again and again has not heard the word."""
    for _ in range(_ATTEMPTS):
        id = dialogue.submit(_job(max_tokens=_LONG))
        await dialogue.until(f"the first token before {word}", partial(_writes, dialogue.about(id)))
        dialogue.send(encode(id))
        reply = await dialogue.ended(id)
        if word == "STOP" and reply.failure is not None:
            raise Fault(f"STOP was answered with ERROR {reply.failure.code}; the job must end with DONE")
        if reply.failure is not None or reply.done.reason != "length":
            return
    raise Fault(f"a job went on to its limit after {word}")


def _writes(reply: Transcript) -> bool:
    return reply.over or any(isinstance(event, Piece) for event in reply.events)


async def _unknown_lines(dialogue: Dialogue) -> None:
    dialogue.send(b"FUTURE 1 word=value\n")
    dialogue.send(encode_cancel(dialogue.new_id()) + encode_stop(dialogue.new_id()))
    _sound(dialogue, await dialogue.ask(_job()))


async def _bad_request(dialogue: Dialogue) -> None:
    good = dialogue.submit(_job())
    bad = dialogue.new_id()
    dialogue.send(b"SUBMIT %d 0 1 8 warm 1\na\n" % bad)
    reply = await dialogue.ended(bad)
    if reply.failure is None:
        raise Fault("a SUBMIT whose temperature is no number was not refused with ERROR")
    _sound(dialogue, await dialogue.ended(good))


async def _context(dialogue: Dialogue) -> None:
    limit = dialogue.able.context_length
    if "max_len" not in dialogue.words or limit > _LARGEST_CONTEXT:
        raise _Skipped("CAPS announces no max_len, or a very large one")
    random = Random(0)
    words = ("".join(random.choices("abcdefghijklmnop", k=3)) for _ in range(2 * limit))
    reply = await dialogue.ask(_job(" ".join(words)))
    if reply.failure is None or not isinstance(reply.failure.error, ContextLengthExceeded):
        raise Fault(f"a prompt of more than max_len={limit} tokens was not refused with CONTEXT_EXCEEDED")
    if reply.events:
        raise Fault("a prompt that does not fit was accepted before it was refused")
    _sound(dialogue, await dialogue.ask(_job()))


async def _first_version(dialogue: Dialogue) -> None:
    if dialogue.version == 1:
        raise _Skipped("it announces no other version")
    reply = await dialogue.ask(_job(), version=1)
    for event in reply.events:
        if isinstance(event, Piece) and (event.token_id is not None or event.control is not None):
            raise Fault("tok= or ctl= came for a SUBMIT without v=2")


async def _second_version(dialogue: Dialogue) -> None:
    if dialogue.version == 1:
        raise _Skipped("it announces version 1")
    reply = await dialogue.ask(_job(trusted=((0, 5), (6, len(_PROMPT)))))
    _sound(dialogue, reply)
    for event in reply.events:
        if isinstance(event, Piece) and event.token_id is None:
            raise Fault("DATA has no tok=")
    bad = dialogue.new_id()
    dialogue.send(b"SUBMIT %d 0 1 8 0 1 v=2 no_such_word=1\na\n" % bad)
    failure = (await dialogue.ended(bad)).failure
    if failure is None or not isinstance(failure.error, JobError):
        raise Fault("a word that version 2 does not know was not refused with BAD_REQUEST")


async def _seed(dialogue: Dialogue) -> None:
    if dialogue.version == 1 or "seed" not in dialogue.able.sampling:
        raise _Skipped("it announces no seed")
    sampling = SamplingParams(temperature=1, top_p=1, seed=7)
    first, second = [(await dialogue.ask(_job(sampling=sampling))).data for _ in range(2)]
    if first != second:
        raise Fault("the same seed gave two different replies")


async def _logprobs(dialogue: Dialogue) -> None:
    count = min(dialogue.able.max_logprobs, 3)
    if not count:
        raise _Skipped("it announces no log probabilities")
    reply = await dialogue.ask(_job(logprobs=count))
    _sound(dialogue, reply)
    for event in reply.events:
        if isinstance(event, Piece) and not (_is_number(event.logprob) and len(event.top) == count):
            raise Fault(
                f"DATA of a job with logprobs={count} has not a log probability and {count} candidates"
            )


def _is_number(logprob: float | None) -> bool:
    return logprob is not None and not isnan(logprob)


async def _echo(dialogue: Dialogue) -> None:
    if not dialogue.able.echo:
        raise _Skipped("it announces no echo")
    reply = await dialogue.ask(_job(max_tokens=0, logprobs=1, echo=True))
    _sound(dialogue, reply)
    positions = [event.position for event in reply.events if isinstance(event, Echo)]
    if positions != [*range(reply.done.prompt_tokens)]:
        raise Fault(
            f"{len(positions)} ECHO lines are not the {reply.done.prompt_tokens} prompt positions in order"
        )


async def _drains(dialogue: Dialogue) -> None:
    id = dialogue.submit(_job())
    await dialogue.until("ACCEPT", lambda: bool(dialogue.about(id).events))
    dialogue.end_input()
    _sound(dialogue, await dialogue.ended(id))
    await dialogue.until("the program's end after that of its input", lambda: dialogue.over)
    if dialogue.status != 0:
        raise Fault(f"its status at the end is {dialogue.status}; it must be 0")


CHECKS: Final[Mapping[str, _Check]] = {
    "becomes ready": _becomes_ready,
    "answers a job": _reply,
    "answers the same again": _repeats,
    "keeps to max_tokens": _limit,
    "reads prompts by their length": _payload,
    "keeps slots apart": _slots,
    "stops": _stop,
    "cancels": _cancel,
    "passes over unknown lines and ids": _unknown_lines,
    "refuses a senseless request only": _bad_request,
    "refuses what does not fit": _context,
    "speaks version 1 if asked to": _first_version,
    "speaks version 2": _second_version,
    "honours a seed": _seed,
    "reports log probabilities": _logprobs,
    "echoes the prompt": _echo,
    "finishes at the end of its input": _drains,
}
"""The checks by name, in order."""
