"""Constrained replies: which tokens a grammar allows next; `llguidance` does the parsing."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from math import log2
from typing import TYPE_CHECKING, Final, Protocol

from .errors import JobError

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

__all__ = ["GRAMMAR_KINDS", "Constraint", "Grammars", "Vocabulary", "available"]

GRAMMAR_KINDS: Final = ("json_schema", "regex", "lark")

# The layouts that people and programs write, but no white space without end, in which weak models get lost.
_WHITE_SPACE: Final = r"(\r?\n[ \t]{0,40}|[ \t]{0,2})"
_LONGEST: Final = 300

# What a grammar may cost. `llguidance` has no guard for its stack, on which it descends for every reference
# to another schema and every rule, and its own limits do not count the steps of a divisor.
_TEXT: Final = 1 << 20
_RULES: Final = 20_000
_REFERENCES: Final = 256
_DIVISORS: Final = 16
_STACK: Final = 256 << 20
_SECONDS: Final = 2.0
_AT_ONCE: Final = 4
_ITEMS: Final = 10_000
_STEP_FUEL: Final = 100_000
_FIRST_FUEL: Final = 500_000

_REFERENCE: Final = re.compile(r'"\$ref"\s*:\s*("[^"]*")')
_DIVISOR: Final = re.compile(r'"multipleOf"\s*:\s*([0-9.]+)')


def available() -> frozenset[str]:
    """The kinds of grammars that this installation can hold replies to."""
    return frozenset(GRAMMAR_KINDS if find_spec("llguidance") is not None else ())


class Vocabulary(Protocol):
    """The tokens of a model; `tokenizer.Tokenizer` is one."""

    size: int

    def token_bytes(self, token_id: int) -> bytes:
        """What a token spells."""
        ...

    def is_control(self, token_id: int) -> bool:
        """Whether it is a control token, which no grammar's text matches."""
        ...

    def encode_ordinary(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...


class Constraint:
    """One reply's way through a grammar."""

    def __init__(self, matcher: LLMatcher, size: int) -> None:
        """size: the number of tokens; the matcher has one more, that of the end."""
        self._matcher = matcher
        self._size = size

    @property
    def finished(self) -> bool:
        """Whether the grammar is satisfied and nothing can follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def mask(self, ends: Iterable[int]) -> bytearray:
        """A bit for each token, as `Sampler.choose` takes them.

        ends: the tokens that end a reply; they are allowed where the grammar is satisfied.

        Raises:
            JobError: no token is allowed, or the grammar is too complex to go on.
        """
        mask = bytearray(self._matcher.compute_bitmask())
        self._check()
        accepting = self._matcher.is_accepting()
        _set(mask, self._size, False)
        for token in ends:
            _set(mask, token, accepting)
        if not any(mask):
            raise JobError("grammar: no token of this model continues the reply; change the grammar")
        return mask

    def accept(self, token: int) -> None:
        """The token became part of the reply.

        Raises:
            JobError: the grammar does not allow it, or is too complex to go on.
        """
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(self._matcher.get_error())


class Grammars:
    """Compiles the grammars of one model's replies, a few at a time; safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Nothing is prepared before the first grammar."""
        self._vocabulary = vocabulary
        self._tokenizer: LLTokenizer | None = None
        self._lock = threading.Lock()
        self._busy = threading.BoundedSemaphore(_AT_ONCE)

    def compile(self, kind: str, text: str) -> Constraint:
        """The constraint of a new reply. kind: one of GRAMMAR_KINDS.

        Keywords of a schema that `llguidance` cannot hold to, such as `uniqueItems`, do not count, so who
        needs them looks at the finished reply.

        Raises:
            JobError: the grammar is malformed or contradictory, has a regex that `llguidance` does not
                know, or is too large or takes too long to compile.
        """
        _check_size(kind, text)
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = _prepared(self._vocabulary)
        tokenizer = self._tokenizer
        if not self._busy.acquire(timeout=_SECONDS):
            raise JobError("grammar: others are still being compiled; try again")
        return Constraint(_within(self._busy, lambda: _matcher(tokenizer, kind, text)), self._vocabulary.size)


def _check_size(kind: str, text: str) -> None:
    """That a grammar can be compiled safely. In Lark's words every schema stands on one line.

    Raises:
        JobError: it has too much of something.
    """
    lines = text.split("\n")
    schemas = lines if kind == "lark" else [text]
    references = max(len(set(_REFERENCE.findall(schema))) for schema in schemas)
    for size, limit, what in (
        (len(text), _TEXT, "characters"),
        (len(lines), _RULES, "lines"),
        (references, _REFERENCES, "references in one schema"),
        (sum(map(log2, set(map(_steps, _DIVISOR.findall(text))))), _DIVISORS, "bits in its `multipleOf`"),
    ):
        if size > limit:
            raise JobError(f"grammar: it has more than {limit} {what}; make it simpler")


def _steps(number: str) -> int:
    """A number without its decimal point, or more than is possible."""
    return int(number.replace(".", "").lstrip("0")[:9] or 1)


def _within(busy: threading.Semaphore, work: Callable[[], LLMatcher]) -> LLMatcher:
    """What `work` returns, in a thread with a large stack that then releases `busy`.

    Raises:
        JobError: `work` raised it, or takes too long.
    """
    answers: queue.SimpleQueue[LLMatcher | JobError] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(work())
        except JobError as error:
            answers.put(error)
        finally:
            busy.release()

    try:
        _start(run)
    except RuntimeError:
        busy.release()
        raise JobError("grammar: there is no memory to compile it; do without one") from None
    try:
        answer = answers.get(timeout=_SECONDS)
    except queue.Empty:
        raise JobError(f"grammar: it takes more than {_SECONDS:g} s to compile; make it simpler") from None
    if isinstance(answer, JobError):
        raise answer
    return answer


_STARTING: Final = threading.Lock()


def _start(run: Callable[[], None]) -> None:
    """Start a thread with a large stack. The size holds for all threads that start meanwhile."""
    with _STARTING:
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=run, name="colibri-grammar", daemon=True).start()
        finally:
            threading.stack_size(before)


def _matcher(tokenizer: LLTokenizer, kind: str, text: str) -> LLMatcher:
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        max_items_in_row=_ITEMS,
        step_lexer_fuel=_STEP_FUEL,
        initial_lexer_fuel=_FIRST_FUEL,
        verbose_errors=False,
    )
    try:
        matcher = LLMatcher(tokenizer, _grammar(kind, text), log_level=0, limits=limits)
    except ValueError as error:
        raise _refusal(str(error)) from None
    if matcher.is_error():
        raise _refusal(matcher.get_error())
    return matcher


class _Wrapped:
    """The vocabulary in the words of `llguidance`, with one more token that stands for all ends."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        end = vocabulary.size
        self.tokens = [*map(vocabulary.token_bytes, range(end)), b""]
        self.special_token_ids = [*filter(vocabulary.is_control, range(end)), end]
        self.eos_token_id = end
        self.bos_token_id = None
        self._encode = vocabulary.encode_ordinary

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


def _prepared(vocabulary: Vocabulary) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Wrapped(vocabulary)))


def _grammar(kind: str, text: str) -> str:
    """The grammar in the form of `llguidance`."""
    from llguidance import LLMatcher

    if kind == "json_schema":
        return LLMatcher.grammar_from_json_schema(text, {"whitespace_pattern": _WHITE_SPACE, "lenient": True})
    if kind == "regex":
        return LLMatcher.grammar_from_regex(text)
    return LLMatcher.grammar_from_lark(text)


def _set(mask: bytearray, token: int, allowed: bool) -> None:
    if token >> 3 >= len(mask):
        mask.extend(bytes((token >> 3) + 1 - len(mask)))
    if allowed:
        mask[token >> 3] |= 1 << (token & 7)
    else:
        mask[token >> 3] &= ~(1 << (token & 7))


def _refusal(message: str) -> JobError:
    words = " ".join(message.split())
    return JobError(f"grammar: {words if len(words) <= _LONGEST else words[:_LONGEST] + '…'}")
