"""Output grammars: files that describe how a model writes its replies, read and validated.

A grammar file is a table with `name`, `cue` (what a prompt ends with before the part that belongs to the
reply), `begin` (the state right after the cue), `starts` (the states meant by "reasoning" and "text"),
`special` (literals that are one token in the vocabulary), `vars` (substituted as `{NAME}`), `group.<g>`
(marks that states share through `use`) and `state.<s>`. `like` takes everything from another file and
overrides what is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from colibri.automaton import Node, automaton, lone_characters
from colibri.errors import FamilyFileError
from colibri.scanner import Scanner
from colibri.sink import Silence
from colibri.states import LOOK, MARK_LIMIT, SLOTS, WIRES, Mark, State
from colibri.tables import Table

__all__ = ["Grammar", "Resolve", "load_grammar"]

Resolve: TypeAlias = Callable[[str], Mapping[str, Any]]

_VARIABLE = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
_LIKE_LIMIT = 8


@frozen(eq=False)
class Grammar:
    """How a model writes a reply, as validated data.

    begin: the state right after the cue. starts: the states in which a reply begins when its prompt left
    reasoning, or text, open.
    """

    name: str
    cue: str
    begin: str
    starts: Mapping[str, str]
    special: tuple[str, ...]
    states: Mapping[str, State] = field(repr=False)
    _compiled: dict[tuple[bool, bool], Mapping[str, Node]] = field(factory=dict, init=False, repr=False)

    @property
    def hold(self) -> int:
        """How many characters a scanner holds back at most; an authentic special token counts as one.

        A mark with its layout and the window that confirms it, behind the white space or header that an
        `otherwise` state reads first.
        """
        marks = [mark for state in self.states.values() for mark in state.marks]
        reach = max((len(mark.before) + len(mark.at) + LOOK * mark.confirm for mark in marks), default=0)
        leads = (state.within or LOOK for state in self.states.values() if state.otherwise)
        return reach + max(leads, default=0)

    @property
    def call_marks(self) -> frozenset[str]:
        """The literals that open calls or stand in them."""
        marks = [mark for state in self.states.values() for mark in state.marks if mark.tools]
        found, seen = {mark.at for mark in marks}, {mark.to for mark in marks}
        todo = list(seen)
        while todo:
            state = self.states[todo.pop()]
            outside = state.otherwise is not None and self.states[state.otherwise].slot == "text"
            if outside or state.slot in ("text", "reasoning"):
                continue
            found |= {mark.at for mark in state.marks}
            reached = {mark.to for mark in state.marks} | ({state.otherwise} if state.otherwise else set())
            todo += reached - seen
            seen |= reached
        return frozenset(found)

    @property
    def telling_marks(self) -> frozenset[str]:
        """Those of the call marks that content has no other use for: openers, and what spells a special."""
        texts = [state for state in self.states.values() if state.slot == "text"]
        openers = {mark.at for state in texts for mark in state.marks if mark.tools}
        return frozenset(
            mark
            for mark in self.call_marks
            if mark in openers or any(special in mark for special in self.special)
        )

    @property
    def lone(self) -> Mapping[str, str]:
        """Special spelling -> the character that stands for the authentic token inside a scanner."""
        return lone_characters(self.special)

    def nodes(self, *, tools: bool, authentic: bool) -> Mapping[str, Node]:
        """The compiled states; see `colibri.automaton.automaton`."""
        key = tools, authentic
        if key not in self._compiled:
            self._compiled[key] = automaton(self.states, self.lone if authentic else {}, tools=tools)
        return self._compiled[key]

    def start_of(self, tail: str) -> Literal["reasoning", "text"] | None:
        """Where a reply begins whose prompt has `tail` behind its cue; None: the reply opens its own."""
        node = self._behind(tail)
        if node.name == self.begin:
            return None
        return "reasoning" if node.reasoning else "text"

    def state_behind(self, tail: str) -> str:
        """The state in which a reply begins whose prompt has `tail` behind its cue."""
        return self._behind(tail).name

    def _behind(self, tail: str) -> Node:
        scanner = Scanner(self.nodes(tools=False, authentic=False)[self.begin], Silence())
        if tail:
            scanner.feed(tail)
        return scanner.node


def load_grammar(table: Mapping[str, Any], *, file: str, resolve: Resolve | None = None) -> Grammar:
    """The grammar that `table` describes; `resolve` finds the table that `like` names.

    Raises:
        FamilyFileError: something is missing, unknown or contradictory; the message names `file`, the
            key and what was expected.
    """
    top = Table(_merged(table, file, resolve), file=file)
    variables = _strings(top, "vars")
    name = top.take("name", str)
    cue = _substituted(top.take("cue", str), variables, top, "cue")
    begin = top.take("begin", str)
    starts = _strings(top, "starts")
    special = tuple(_substituted(s, variables, top, "special") for s in top.strings("special"))
    reader = _Reader(variables)
    group_table, state_table = top.table("group"), top.table("state")
    groups = {key: reader.marks(group_table, key, value) for key, value in group_table.rest().items()}
    states = {
        key: reader.state(_subtable(state_table, key, value), key, groups)
        for key, value in state_table.rest().items()
    }
    top.done()
    grammar = Grammar(name, cue, begin, starts, special, states)
    _check(grammar, top)
    return grammar


def _merged(table: Mapping[str, Any], file: str, resolve: Resolve | None, depth: int = 0) -> dict[str, Any]:
    """The table with what `like` names laid under it; states, groups and vars are merged by name."""
    own = dict(table)
    like = own.pop("like", None)
    if like is None:
        return own
    if not isinstance(like, str) or resolve is None or depth == _LIKE_LIMIT:
        raise FamilyFileError(
            f"{file}: `like` must name another grammar file, not in a circle; it is {like!r}"
        )
    base = _merged(resolve(like), like, resolve, depth + 1)
    for key, value in own.items():
        under = base.get(key)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        base[key] = {**(under or {}), **value} if both else value
    return base


def _strings(top: Table, key: str) -> dict[str, str]:
    table = top.table(key)
    values = table.rest()
    for name, value in values.items():
        if not isinstance(value, str):
            raise table.error(name, f"must be a string, not {value!r}")
    return values


def _subtable(parent: Table, key: str, value: Any) -> Table:
    if not isinstance(value, Mapping):
        raise parent.error(key, f"must be a table, not {value!r}")
    return Table(value, file=parent.file, path=f"{parent.path}.{key}")


def _substituted(text: str, variables: Mapping[str, str], table: Table, key: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in variables:
            known = ", ".join(sorted(variables)) or "none"
            raise table.error(
                key, f"names the variable {name!r}, which `vars` does not define (it has: {known})"
            )
        return variables[name]

    return _VARIABLE.sub(value, text)


@frozen
class _Reader:
    """Reads marks and states, replacing variables."""

    variables: Mapping[str, str]

    def text(self, table: Table, key: str, default: str | None = None) -> str:
        return _substituted(table.take(key, str, default), self.variables, table, key)

    def marks(self, parent: Table, key: str, value: Any) -> tuple[Mark, ...]:
        if not isinstance(value, list):
            raise parent.error(key, f"must be a list of marks, not {value!r}")
        return tuple(self._mark(_subtable(parent, f"{key}.{at}", item)) for at, item in enumerate(value))

    def _mark(self, table: Table) -> Mark:
        mark = Mark(
            at=self.text(table, "at"),
            to=table.take("to", str),
            confirm=table.take("confirm", bool, False),
            tools=table.take("tools", bool, False),
            end=table.take("end", bool, False),
            lenient=table.take("lenient", bool, False),
            before=self.text(table, "before", ""),
            after=self.text(table, "after", ""),
        )
        table.done()
        if not mark.at:
            raise table.error("at", "must not be empty: a mark is the text that the model writes")
        if len(mark.at) > MARK_LIMIT:
            raise table.error("at", f"must have at most {MARK_LIMIT} characters, not {len(mark.at)}")
        return mark

    def state(self, table: Table, name: str, groups: Mapping[str, tuple[Mark, ...]]) -> State:
        own = self.marks(table, "marks", table.take("marks", list, []))
        state = State(
            name=name,
            slot=table.choice("slot", SLOTS, "skip"),
            marks=_joined(own, table, groups),
            otherwise=table.maybe("else", str),
            within=table.take("within", int, 0),
            lenient=table.take("lenient", bool, False),
            final=table.take("final", bool, False),
            wire=table.choice("as", (*WIRES, None), None),
            quote=tuple(
                _substituted(quote, self.variables, table, "quote") for quote in table.strings("quote")
            ),
            nest=table.take("nest", bool, False),
            match=_pattern(table),
            decode=_replacements(table),
        )
        table.done()
        _check_fields(state, table)
        return state


def _joined(own: tuple[Mark, ...], table: Table, groups: Mapping[str, tuple[Mark, ...]]) -> tuple[Mark, ...]:
    """A state's marks: its own, then those of the groups it uses whose literals it does not have itself."""
    marks = {mark.at: mark for mark in own}
    if len(marks) < len(own):
        raise table.error("marks", "must not hold two marks with the same `at`")
    for group in table.strings("use"):
        if group not in groups:
            raise table.error(
                "use", f"names the group {group!r}; known: {', '.join(sorted(groups)) or 'none'}"
            )
        for mark in groups[group]:
            marks.setdefault(mark.at, mark)
    return tuple(marks.values())


def _pattern(table: Table) -> re.Pattern[str] | None:
    text = table.maybe("match", str)
    if text is None:
        return None
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise table.error("match", f"must be a regular expression ({error})") from None
    if "name" not in pattern.groupindex:
        raise table.error("match", "must have a group called `name`")
    return pattern


def _replacements(table: Table) -> tuple[tuple[str, str], ...]:
    pairs: list[Any] = table.take("decode", list, [])
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(side, str) for side in pair)):
            raise table.error("decode", f"must be a list of pairs of strings, not one with {pair!r}")
    return tuple((old, new) for old, new in pairs)


def _check_fields(state: State, table: Table) -> None:
    """Fields that only some slots can have."""
    rules = (
        ("else", state.otherwise is None or state.slot == "skip", "is only for states whose slot is skip"),
        ("within", state.within == 0 or state.otherwise is not None, "is only for states with `else`"),
        ("lenient", not state.lenient or state.otherwise is not None, "is only for states with `else`"),
        ("within", 0 <= state.within <= LOOK, f"must be between 0 and {LOOK}"),
        ("as", state.wire is None or state.slot == "value", "is only for states whose slot is value"),
        ("match", state.match is None or state.slot == "name", "is only for states whose slot is name"),
        ("decode", not state.decode or state.slot in ("name", "key", "close"), "is only for names and keys"),
        ("quote", all(state.quote), "must not hold an empty delimiter"),
    )
    for key, good, expected in rules:
        if not good:
            raise table.error(key, expected)
    if state.quote or state.nest:
        for mark in state.marks:
            if mark.before:
                raise table.error("marks", "must not have `before` in a state with `quote` or `nest`")
            if any(mark.at.startswith(quote) for quote in state.quote):
                raise table.error("marks", f"must not begin with a delimiter of `quote`, as {mark.at!r} does")


def _check(grammar: Grammar, top: Table) -> None:
    """That every state named exists, can be reached, and leads somewhere sensible."""
    known = ", ".join(sorted(grammar.states)) or "none"
    for key, target in _targets(grammar):
        if target not in grammar.states:
            raise top.error(key, f"leads to the state {target!r}, which does not exist; known: {known}")
    for key in grammar.starts:
        if key not in ("reasoning", "text"):
            raise top.error(f"starts.{key}", "is not known; the starts are reasoning and text")
    for state in grammar.states.values():
        if state.otherwise is not None and grammar.states[state.otherwise].otherwise is not None:
            raise top.error(f"state.{state.name}.else", "must lead to a state that has no `else` itself")
    if len(grammar.special) > 256:
        raise top.error("special", f"must hold at most 256 texts, not {len(grammar.special)}")
    for index, spelling in enumerate(grammar.special):
        if not spelling or len(spelling) > MARK_LIMIT or spelling in grammar.special[:index]:
            raise top.error(
                "special", f"must hold different texts of 1 to {MARK_LIMIT} characters, not {spelling!r}"
            )
    reached = {grammar.begin, *grammar.starts.values()}
    todo = list(reached)
    while todo:
        state = grammar.states[todo.pop()]
        after = {mark.to for mark in state.marks} | ({state.otherwise} if state.otherwise else set())
        todo += after - reached
        reached |= after
    for name in grammar.states:
        if name not in reached:
            raise top.error(f"state.{name}", "cannot be reached; some mark, `else` or start must lead to it")


def _targets(grammar: Grammar) -> Iterator[tuple[str, str]]:
    yield "begin", grammar.begin
    for key, target in grammar.starts.items():
        yield f"starts.{key}", target
    for name, state in grammar.states.items():
        if state.otherwise is not None:
            yield f"state.{name}.else", state.otherwise
        for index, mark in enumerate(state.marks):
            yield f"state.{name}.marks.{index}.to", mark.to
