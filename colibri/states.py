"""The words of an output grammar: states, and the marks that lead from one to another.

A grammar describes how a model writes a reply. Each state says what its text is (its slot) and which
literal marks may stand in it; a mark says where it leads. `colibri.grammar` reads and validates the
files, `colibri.automaton` compiles them, `colibri.scanner` runs them.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from attrs import frozen

__all__ = ["LOOK", "MARK_LIMIT", "SLOTS", "WIRES", "WORD_LIMIT", "Mark", "Slot", "State", "Wire"]

LOOK = 256
"""How many characters behind a mark are read at most to decide whether it counts."""

MARK_LIMIT = 64
"""The longest literal a mark may have, in characters."""

WORD_LIMIT = 1024
"""The longest name or key that is kept, in characters; a longer one is unreadable."""

Slot: TypeAlias = Literal[
    "skip", "text", "reasoning", "name", "key", "close", "value", "element", "args", "call"
]
SLOTS: tuple[Slot, ...] = (
    "skip",
    "text",
    "reasoning",
    "name",
    "key",
    "close",
    "value",
    "element",
    "args",
    "call",
)

Wire: TypeAlias = Literal["string", "json", "literal"]
WIRES: tuple[Wire, ...] = ("string", "json", "literal")


@frozen
class Mark:
    """A literal and the state it leads to.

    confirm: it counts only if what follows is legal in `to`, decided within `LOOK` characters.
    tools: it exists only when the request declares tools. end: it finishes the open call. lenient: it
    forgives a mistake of the model, which strict callers will not.
    before: layout, the longest suffix of this string right before the mark belongs to it. after: the
    longest prefix of this string right behind it does too.
    """

    at: str
    to: str
    confirm: bool = False
    tools: bool = False
    end: bool = False
    lenient: bool = False
    before: str = ""
    after: str = ""


@frozen
class State:
    """One state of a grammar.

    slot: what its text is. `text` and `reasoning` stream; `name`, `key` and `close` (the name of a closed
    element) are short and judged when left; `value` is one argument; `element` is the text and children
    of nested elements; `args` is one JSON object, the arguments; `call` is one JSON object with name and
    arguments; the text of `skip` is ignored.
    otherwise: where a `skip` state goes, consuming nothing, when something other than white space and a
    mark comes; lenient: that forgives a mistake. within: how many characters may stand before that mark
    instead of white space.
    final: the stream may end here; an open call is then complete.
    wire: how a value is spelled when the format itself says so; None leaves it to the tool's schema.
    quote: delimiters of strings in which nothing is a mark; a backslash escapes in those of one
    character. nest: marks count only outside brackets.
    match: what a finished name must fully match, with groups `name` and `id`. decode: replacements made
    in a finished name or key, in order.
    """

    name: str
    slot: Slot = "skip"
    marks: tuple[Mark, ...] = ()
    otherwise: str | None = None
    within: int = 0
    lenient: bool = False
    final: bool = False
    wire: Wire | None = None
    quote: tuple[str, ...] = ()
    nest: bool = False
    match: re.Pattern[str] | None = None
    decode: tuple[tuple[str, str], ...] = ()

    def decoded(self, word: str) -> str:
        """What a finished name or key means."""
        for old, new in self.decode:
            word = word.replace(old, new)
        return word

    def encoded(self, word: str) -> str:
        """How a name or key is written."""
        for old, new in reversed(self.decode):
            word = word.replace(new, old)
        return word
