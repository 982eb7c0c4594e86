"""The marks of a format for who writes it: which may be written, how, and what would be read as one.

A mark that has a special token in it cannot be spelled by ordinary text. Any other may turn up in text,
where it counts only if the scanner says so; see `colibri.scanner`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import frozen

from colibri.grammar import Grammar
from colibri.lark import escaped, one_of, quoted, token
from colibri.signature import Signature
from colibri.states import Mark, State

__all__ = ["ANY", "Marks", "NoGrammar", "Token"]

ANY = r"(?s:.*)"
"""A regex of any text."""

_BLANK = r"[ \t\r\n]"
# What may stand around a name or key: white space, quotes, and more that none begins with.
_AROUND = "[^!#-&(-~]*"


class NoGrammar(Exception):
    """The format, or a declaration, has a part that these grammars cannot say."""


@frozen
class Token:
    """A special of the format as one token."""

    id: int


Atoms: TypeAlias = tuple["str | Token", ...]


class Marks:
    """The marks of one grammar, of which those of calls count only if there are tools."""

    def __init__(
        self, grammar: Grammar, token_ids: Mapping[str, int], signatures: Sequence[Signature]
    ) -> None:
        """token_ids: those of the grammar's specials. signatures: of the tools that may be called."""
        self._grammar = grammar
        self._token_ids = token_ids
        self._signatures = signatures
        self._atoms: dict[str, Atoms] = {}
        self._spelled: dict[str, str] = {}
        self._asides: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {}
        self._misread: dict[tuple[str, int | None, bool], str] = {}

    def read(self, state: State) -> list[Mark]:
        """The marks that the parser knows there."""
        return [mark for mark in state.marks if self._signatures or not mark.tools]

    def written(self, state: State) -> list[Mark]:
        """The marks that a well-formed reply may have there."""
        return [mark for mark in self.read(state) if not mark.lenient]

    def laid_out(self, state: State) -> bool:
        """Whether nothing but layout may stand before the marks of a state without text."""
        return state.otherwise is not None or state.final or any(mark.confirm for mark in self.written(state))

    def special(self, mark: Mark) -> bool:
        """Whether ordinary text cannot spell the mark."""
        return any(isinstance(atom, Token) for atom in self.atoms(mark.at))

    def atoms(self, text: str) -> Atoms:
        """A mark as texts and tokens."""
        if text not in self._atoms:
            known = sorted(self._token_ids, key=len, reverse=True)
            parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
            self._atoms[text] = tuple(
                Token(self._token_ids[part]) if part in self._token_ids else part for part in parts if part
            )
        return self._atoms[text]

    def spelled(self, text: str) -> str:
        """A mark in Lark's words."""
        if text not in self._spelled:
            self._spelled[text] = " ".join(map(_spelled, self.atoms(text)))
        return self._spelled[text]

    def aside(self, state: State, mark: Mark) -> tuple[tuple[str, ...], str]:
        """What is to be known behind a mark: regexes of the words that would make it another one, its layout.

        Raises:
            NoGrammar: names, values or content could make it another one.
        """
        key = state.name, mark.at
        if key not in self._asides:
            self._asides[key] = self._aside(state, mark)
        return self._asides[key]

    def _aside(self, state: State, mark: Mark) -> tuple[tuple[str, ...], str]:
        target = self._grammar.states[mark.to]
        others = [other for other in self.read(state) if other.at.startswith(mark.at) and other.to != mark.to]
        instead = tuple(sorted(filter(None, (_instead(other.at[len(mark.at) :]) for other in others))))
        if instead and target.slot != "skip":
            raise NoGrammar
        return () if self.laid_out(target) else instead, mark.after if target.slot == "value" else ""

    def confirmed(self, mark: Mark) -> list[tuple[str, tuple[Mark, ...]]]:
        """The regexes that end a text there, each with the marks that it passes.

        Where a mark is ordinary text that the text itself may hold, it takes the next one to be sure.
        """
        state = self._grammar.states[mark.to]
        nexts = self.written(state) if mark.confirm and state.slot == "skip" else []
        if not nexts or any(map(self.special, nexts)):
            return [(escaped(mark.at), (mark,))]
        if any(after.confirm for after in nexts):
            raise NoGrammar
        return [(f"{escaped(mark.at)}{_BLANK}{{0,8}}{escaped(after.at)}", (mark, after)) for after in nexts]

    def misread(self, state: State, tool: int | None, exits: Sequence[Mark]) -> str:
        """A regex of the texts in which a mark counts, or an exit before the end; empty if there are none."""
        place = state.name, tool, bool(exits)
        if place not in self._misread:
            marks = self.read(state)
            never = [
                regex for mark in marks if mark not in exits for regex in self._counting(mark, state, tool)
            ]
            ends = [regex for mark in marks if mark in exits for regex in self._counting(mark, state, tool)]
            if state.slot == "text" and self._signatures:
                never += map(escaped, sorted(self._grammar.telling_marks))
            tails = [one_of(never)] * bool(never) + [f"{one_of(ends)}(?s:.)"] * bool(ends)
            self._misread[place] = f"{ANY}{one_of(tails)}{ANY}" if tails else ""
        return self._misread[place]

    def _counting(self, mark: Mark, state: State, tool: int | None) -> list[str]:
        """The regexes of ordinary text in which a mark counts, inside a text of `state`."""
        target, spelled = self._grammar.states[mark.to], escaped(mark.at)
        if self.special(mark):
            return []
        nexts = [after for after in self.read(target) if not self.special(after)]
        if not mark.confirm or target.slot not in ("name", "key", "args", "call", "skip"):
            return [spelled]
        if target.slot in ("args", "call"):
            return [rf"{spelled}{_BLANK}*\{{"]
        if target.slot == "skip":
            rests = [rest for after in nexts for rest in self._counting(after, state, tool)]
            return [f"{spelled}{_BLANK}*{one_of(rests)}"] if rests else []
        if target.slot == "name" and state.slot != "reasoning":
            return [spelled]
        known = self._known(tool) if target.slot == "key" else [tool.name for tool in self._signatures]
        if not known or not nexts:
            return []
        words, ends = map(target.encoded, known), (after.at for after in nexts)
        return [f"{spelled}{_AROUND}{one_of(map(escaped, words))}{_AROUND}{one_of(map(escaped, ends))}"]

    def _known(self, tool: int | None) -> Sequence[str]:
        """The parameters of the open call."""
        return () if tool is None else self._signatures[tool].names


def _instead(rest: str) -> str | None:
    """A regex of the words that make a mark the longer one that has `rest` behind it."""
    word = re.match(r"[0-9A-Za-z_.:\n -]*", rest)
    if word is None or not word[0]:
        return None
    return escaped(word[0]) + (ANY if word[0] == rest else "")


def _spelled(atom: str | Token) -> str:
    return token(atom.id) if isinstance(atom, Token) else quoted(atom)
