r"""States compiled for scanning: one regular expression a state finds its leftmost mark.

The expression is a trie of the state's marks in which every proper prefix may also end at the end of the
text: `<(?:t(?:o(?:...|\Z)|\Z)|\Z)`. One search therefore gives the leftmost mark or the exact place
from which text must be held because it may still become one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from colibri.states import Mark, State

__all__ = ["Edge", "Node", "Search", "automaton", "lone_characters"]

Search: TypeAlias = Callable[..., "re.Match[str] | None"]
_Trie: TypeAlias = "dict[str, _Trie]"

_OPEN, _CLOSE = "([{", ")]}"

# Beyond so many characters the expression nests once a block of them: `re` nests no deeper than Python.
_NESTED, _BLOCK = 32, 64


class Edge:
    """A mark as the scanner needs it; `spelled` is its literal as the model writes it."""

    __slots__ = ("after", "before", "confirm", "end", "lenient", "literal", "spelled", "target")

    def __init__(self, mark: Mark, literal: str, target: Node) -> None:
        self.literal = literal
        self.spelled = mark.at
        self.target = target
        self.confirm = mark.confirm
        self.end = mark.end
        self.lenient = mark.lenient
        self.before = mark.before
        self.after = mark.after


class Node:
    """A compiled state.

    search, match: find the leftmost mark, or the mark right at a place; a mark cut by the end of the text
    is found too. search_whole, match_whole: only whole marks. longer: literals that begin another one.
    shorter: literal -> the next shorter literal that it begins with. tails: what may be layout before a
    mark, longest first; tail_ends: their last characters. reasoning: its text is, or becomes, reasoning.
    plain: neither `otherwise` nor strings nor brackets. tokens: string delimiters and brackets; words:
    these and the marks. string_ends: delimiter -> the search for the end of a string; escapes: the
    delimiters behind which a backslash escapes.
    """

    __slots__ = (
        "edges",
        "escapes",
        "longer",
        "match",
        "match_whole",
        "name",
        "otherwise",
        "plain",
        "reasoning",
        "search",
        "search_whole",
        "shorter",
        "slot",
        "state",
        "string_ends",
        "tail_ends",
        "tails",
        "tokens",
        "words",
    )

    def __init__(self, state: State, lone: Mapping[str, str]) -> None:
        self.state = state
        self.name = state.name
        self.slot = state.slot
        self.otherwise: Node | None = None
        self.reasoning = state.slot == "reasoning"
        self.plain = state.otherwise is None and not state.quote and not state.nest
        self.edges: dict[str, Edge] = {}
        self.escapes = frozenset(quote for quote in state.quote if len(quote) == 1)
        self.string_ends: dict[str, Search] = {
            replaced(quote, lone): _string_end(replaced(quote, lone), escapes=quote in self.escapes)
            for quote in state.quote
        }
        self.tokens = frozenset(self.string_ends) | frozenset(_OPEN + _CLOSE if state.nest else "")

    def connect(self, edges: Iterable[Edge]) -> None:
        """Give the node its marks and compile the searches."""
        self.edges = {edge.literal: edge for edge in edges}
        literals = sorted(self.edges)
        self.words = self.tokens | self.edges.keys()
        self.longer = frozenset(a for a in self.words for b in self.words if a != b and b.startswith(a))
        self.shorter = {
            b: max((a for a in literals if a != b and b.startswith(a)), key=len)
            for b in literals
            if any(a != b and b.startswith(a) for a in literals)
        }
        befores = {edge.before for edge in self.edges.values()}
        suffixes = {before[at:] for before in befores for at in range(len(before))}
        self.tails = tuple(sorted(suffixes, key=len, reverse=True))
        self.tail_ends = frozenset(tail[-1] for tail in self.tails)
        self.search, self.match = _searches(self.words, cut=True)
        self.search_whole, self.match_whole = _searches(self.words, cut=False)


def automaton(states: Mapping[str, State], lone: Mapping[str, str], *, tools: bool) -> dict[str, Node]:
    """The states as nodes, by name.

    tools: whether the request declares any; without, marks that need tools do not exist. lone: spelling
    of a special token -> the one character that stands for an authentic one; empty when tokens cannot be
    told from text that spells them.
    """
    nodes = {name: Node(state, lone) for name, state in states.items()}
    for node in nodes.values():
        if node.state.otherwise is not None:
            node.otherwise = nodes[node.state.otherwise]
            node.reasoning = node.otherwise.slot == "reasoning"
    for node in nodes.values():
        marks = (mark for mark in node.state.marks if tools or not mark.tools)
        node.connect(Edge(mark, replaced(mark.at, lone), nodes[mark.to]) for mark in marks)
    return nodes


def lone_characters(special: Iterable[str]) -> dict[str, str]:
    """One lone surrogate for each spelling: characters that no decoded text can hold."""
    return {spelling: chr(0xDC00 + index) for index, spelling in enumerate(special)}


def replaced(literal: str, lone: Mapping[str, str]) -> str:
    """`literal` with every special spelling in it replaced, longer ones first."""
    for spelling in sorted(lone, key=len, reverse=True):
        literal = literal.replace(spelling, lone[spelling])
    return literal


def _searches(words: Iterable[str], *, cut: bool) -> tuple[Search, Search]:
    pattern = _compile(words, cut=cut)
    return (pattern.search, pattern.match) if pattern else (_never, _never)


def _never(text: str, at: int = 0, end: int = 0) -> None:
    return None


def _compile(words: Iterable[str], *, cut: bool) -> re.Pattern[str] | None:
    trie: _Trie = {}
    for word in words:
        node = trie
        for character in word:
            node = node.setdefault(character, {})
        node[""] = {}
    return re.compile(_alternatives(trie, 0, cut=cut)) if trie else None


def _alternatives(trie: _Trie, depth: int, *, cut: bool) -> str:
    if depth >= _NESTED:
        word, rest = _chain(trie)
        if len(word) > 1:
            whole = re.escape(word) + _alternatives(rest, depth + len(word), cut=cut)
            cuts = [re.escape(word[:length]) + r"\Z" for length in reversed(range(len(word)))] if cut else []
            return f"(?:{'|'.join([whole, *cuts])})"
    branches = [
        re.escape(character) + _alternatives(child, depth + 1, cut=cut)
        for character, child in sorted(trie.items())
        if character
    ]
    if branches and cut and depth:
        branches.append(r"\Z")
    if "" in trie:
        branches.append("")
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _chain(trie: _Trie) -> tuple[str, _Trie]:
    """The characters up to the next fork or end of a word, as many as one step of nesting takes."""
    word = ""
    while len(trie) == 1 and len(word) < _BLOCK and "" not in trie:
        ((character, trie),) = trie.items()
        word += character
    return word, trie


def _string_end(quote: str, *, escapes: bool) -> Search:
    """Finds where a string opened by `quote` ends, or how far its text surely goes."""
    if not escapes:
        pattern = _compile([quote], cut=True)
        assert pattern is not None
        return pattern.search
    mark = re.escape(quote)
    return re.compile(rf"(?:[^{mark}\\]++|\\.)*+", re.DOTALL).match
