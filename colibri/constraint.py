"""What a reply may be, as a Lark grammar for constrained decoding, made from the grammar that reads replies.

One description of a format thus says both how a reply is read and how it must be written. The dialect is
that of `llguidance` (https://github.com/guidance-ai/llguidance, docs/syntax.md): `%json` holds a schema,
`<[7]>` is the token 7, `[lazy]` ends a text at its first match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve, field, frozen, mutable

from colibri.conversation import Tool
from colibri.grammar import Grammar
from colibri.schema import Schema
from colibri.states import Mark, State

__all__ = ["reply_constraint"]

# Any JSON layout, but no endless white space, in which weak models lose themselves.
_LAYOUT = {"whitespace_pattern": r"[ \t\r\n]{0,64}", "lenient": True}
_SPACE = r"/[ \t\r\n]{1,8}/?"
_WORD = r"/[0-9A-Za-z_.:\n -]{1,32}/"
_ANY = r"(?s:.*)"
_SOME = r"/(?s:.+)/?"
_META = re.compile(r"[\\.+*?()|\[\]{}^$/#&~-]")
_DEFINITIONS = ("$defs", "definitions")


def reply_constraint(
    grammar: Grammar,
    state: str,
    *,
    token_ids: Mapping[str, int],
    schema: Mapping[str, Any] | None = None,
    tools: Sequence[Tool] = (),
) -> str | None:
    """A Lark grammar of the replies that are well formed from `state` on; None where there is none.

    Reasoning is free. Content is JSON of `schema` if one is given. A call names one of `tools`, and its
    arguments stand in the order of their declaration and fit it. Mistakes that the parser forgives are
    not allowed. token_ids: those of the format's specials, `grammar.special`, in the model's vocabulary.

    There is none if the model lacks one of them, and with tools none for formats whose calls are nested
    elements, values in a notation of their own, or one JSON object with name and arguments.
    """
    if not token_ids.keys() >= set(grammar.special):
        return None
    try:
        return _Writer(grammar, token_ids, schema, tuple(tools)).write(state)
    except _NoGrammar:
        return None


class _NoGrammar(Exception):
    """The format has a part that these grammars cannot say."""


@frozen
class _At:
    """Where in a reply a state stands.

    tool: the call that is open. key: its next argument at the earliest, or inside a value this one.
    called: whether a call has ended. instead: words that would make another mark of the one before.
    """

    tool: int | None = None
    key: int = 0
    called: bool = False
    instead: tuple[str, ...] = ()


@frozen
class _Token:
    """A special of the format as one token."""

    id: int


_Atoms: TypeAlias = tuple["str | _Token", ...]
_Way: TypeAlias = tuple[str, "str | None"]
"""What stands in a state, and the rule behind it; None where the reply may end."""


@mutable
class _Writer:
    """Collects the rules; each stands for one state at one place."""

    grammar: Grammar
    token_ids: Mapping[str, int]
    schema: Mapping[str, Any] | None
    tools: tuple[Tool, ...]
    schemas: list[Schema] = field(init=False)
    lexemes: list[str] = field(factory=list)
    names: dict[tuple[str, _At], str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.schemas = [Schema(tool.parameters, tool.parameters) for tool in self.tools]

    def write(self, state: str) -> str | None:
        """The whole grammar, beginning in `state`."""
        start = self.rule(state, _At())
        rules: dict[str, list[_Way]] = {}
        while len(rules) < len(self.names):
            name, at = list(self.names)[len(rules)]
            rules[self.names[name, at]] = list(self.ways(self.grammar.states[name], at))
        whole = _ending(rules)
        if start not in whole:
            return None
        written = [
            f"{name}: " + "\n  | ".join(dict.fromkeys(filter(None, (_written(way, whole) for way in ways))))
            for name, ways in rules.items()
            if name in whole
        ]
        return "\n".join([f"start: {start}", *written, *self.lexemes, ""])

    def rule(self, name: str, at: _At) -> str:
        """The rule of a state."""
        return self.names.setdefault((name, at), f"s{len(self.names)}")

    def ways(self, state: State, at: _At) -> Iterator[_Way]:
        """What can stand in a state and behind it."""
        if state.slot == "skip":
            yield from self.skipped(state, at)
        elif state.slot == "text":
            yield from self.content(state, at)
        elif state.slot == "reasoning":
            for mark in self.marks(state, tools=False):
                yield from self.free(mark, at)
        elif state.slot == "name":
            yield from self.named(state, at)
        elif state.slot == "key":
            yield from self.keyed(state, at)
        elif state.slot == "value":
            yield from self.value(state, at)
        elif state.slot == "args":
            yield from self.arguments(state, at)
        else:
            raise _NoGrammar

    def skipped(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks(state, tools=bool(self.tools))
        layout = state.otherwise is not None or state.final or any(mark.confirm for mark in marks)
        lead = _SPACE if layout else self.word(at.instead)
        for mark in marks:
            yield from self.then(lead, mark, evolve(at, instead=()))
        # Text may not begin as a mark does that is itself ordinary text.
        if state.otherwise is not None and not state.lenient and all(map(self.special, marks)):
            yield "", self.rule(state.otherwise, at)

    def content(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks(state, tools=bool(self.tools))
        if at.called:
            yield "", None
        elif self.schema is not None:
            yield f"{_SPACE} {_json(self.schema)}", None
            marks = [mark for mark in marks if mark.tools]
        else:
            yield _SOME, None
        for mark in marks:
            if at.called or self.schema is not None:
                yield from self.then(_SPACE, mark, at)
            else:
                yield from self.free(mark, at)

    def named(self, state: State, at: _At) -> Iterator[_Way]:
        if state.match is not None:
            raise _NoGrammar
        for index, tool in enumerate(self.tools):
            for mark in self.marks(state):
                yield from self.then(_quoted(_encoded(tool.name, state)), mark, _At(tool=index))

    def keyed(self, state: State, at: _At) -> Iterator[_Way]:
        schema = self.parameters(at)
        for index in range(at.key, len(schema.names)):
            name = schema.names[index]
            for mark in self.marks(state):
                longer = [other.at[len(mark.at) :] for other in state.marks if other.at.startswith(mark.at)]
                words = tuple(found[0] for rest in longer if (found := re.match(r"\w+", rest)))
                yield from self.then(
                    _quoted(_encoded(name, state)), mark, evolve(at, key=index, instead=words)
                )
            if name in schema.required:
                return

    def value(self, state: State, at: _At) -> Iterator[_Way]:
        if state.wire == "literal":
            raise _NoGrammar
        schema = self.parameters(at)
        inner = schema.member(schema.names[at.key]) or Schema({}, {})
        kinds = inner.kinds
        done = evolve(at, key=at.key + 1, instead=())
        if state.wire == "string" or (state.wire is None and (kinds is None or "string" in kinds)):
            if kinds is None or "string" in kinds:
                yield from self.verbatim(state, _words(inner.node), done)
        elif kinds is None or kinds - {"string"}:
            value = f"{_SPACE} {_json(_alone(inner))} {_SPACE}"
            for mark in self.marks(state):
                yield from self.then(value, mark, done)

    def verbatim(self, state: State, words: Sequence[str] | None, done: _At) -> Iterator[_Way]:
        """A value that is a string to the byte; words: those it may be, None for any."""
        for mark in self.marks(state):
            if words is None:
                yield from self.free(mark, done)
            else:
                pad = f"{_quoted(mark.before)}?" if mark.before else ""
                yield from self.then(f"{pad} ({' | '.join(map(_quoted, words))}) {pad}", mark, done)

    def arguments(self, state: State, at: _At) -> Iterator[_Way]:
        if at.key:
            return
        whole = _json(self.parameters(at).node)
        if state.final:
            yield whole, None
        for mark in self.marks(state):
            yield from self.then(f"{whole} {_SPACE}", mark, evolve(at, key=len(self.parameters(at).names)))

    def special(self, mark: Mark) -> bool:
        """Whether ordinary text cannot spell the mark."""
        return any(isinstance(atom, _Token) for atom in self.atoms(mark.at))

    def marks(self, state: State, *, tools: bool = True) -> list[Mark]:
        """The marks that a well-formed reply may have there."""
        return [mark for mark in state.marks if not mark.lenient and (tools or not mark.tools)]

    def then(self, lead: str, mark: Mark, at: _At) -> Iterator[_Way]:
        """`lead`, the mark, and what may come behind it."""
        if (moved := self.moved(mark, at)) is not None:
            yield " ".join([lead, *map(_spelled, self.atoms(mark.at))]), self.rule(mark.to, moved)

    def free(self, mark: Mark, at: _At) -> Iterator[_Way]:
        """Any text up to the mark, and what may come behind it."""
        atoms = self.atoms(mark.at)
        first = next((index for index, atom in enumerate(atoms) if isinstance(atom, _Token)), None)
        if first is not None:
            lead = _escaped("".join(map(str, atoms[:first])))
            if (moved := self.moved(mark, at)) is not None:
                text = f"/{_ANY}{lead}/" if lead else _SOME
                yield " ".join([text, *map(_spelled, atoms[first:])]), self.rule(mark.to, moved)
            return
        for spelled, marks in self.confirmed(mark):
            place: _At | None = at
            for passed in marks:
                place = None if place is None else self.moved(passed, place)
            if place is not None:
                self.lexemes.append(f"t{len(self.lexemes)}[lazy]: /{_ANY}{spelled}/")
                yield f"t{len(self.lexemes) - 1}", self.rule(marks[-1].to, place)

    def confirmed(self, mark: Mark) -> list[tuple[str, tuple[Mark, ...]]]:
        """The regexes that end a text there, each with the marks that it passes.

        Where a mark is ordinary text that the text itself may hold, it takes the next one to be sure.
        """
        state = self.grammar.states[mark.to]
        nexts = self.marks(state) if mark.confirm and state.slot == "skip" else []
        if not nexts or any(map(self.special, nexts)):
            return [(_escaped(mark.at), (mark,))]
        return [
            (rf"{_escaped(mark.at)}[ \t\r\n]{{0,8}}{_escaped(after.at)}", (mark, after)) for after in nexts
        ]

    def moved(self, mark: Mark, at: _At) -> _At | None:
        """The place behind a mark; None where the open call still lacks an argument."""
        if not mark.end:
            return at
        schema = self.parameters(at)
        if any(name in schema.required for name in schema.names[at.key :]):
            return None
        return _At(called=True)

    def atoms(self, text: str) -> _Atoms:
        """A mark as texts and tokens."""
        known = sorted(self.token_ids, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        return tuple(
            _Token(self.token_ids[part]) if part in self.token_ids else part for part in parts if part
        )

    def word(self, instead: Sequence[str]) -> str:
        """A short text that the parser does not look at, but none of `instead`."""
        if not instead:
            return f"{_WORD}?"
        own = f"T{len(self.lexemes)}"
        self.lexemes.append(f"{own}: {_WORD}" + "".join(f" & ~/{_escaped(word)}/" for word in instead))
        return f"{own}?"

    def parameters(self, at: _At) -> Schema:
        """The schema of the open call's arguments."""
        if at.tool is None:
            raise _NoGrammar
        return self.schemas[at.tool]


def _ending(rules: Mapping[str, Sequence[_Way]]) -> frozenset[str]:
    """The rules from which a reply can come to its end."""
    before: dict[str, list[str]] = {}
    for name, ways in rules.items():
        for _, behind in ways:
            before.setdefault(behind or "", []).append(name)
    found, todo = set[str](), [""]
    while todo:
        todo += (new := {name for name in before.get(todo.pop(), ()) if name not in found})
        found |= new
    return frozenset(found)


def _written(way: _Way, whole: frozenset[str]) -> str | None:
    """A way in Lark's words; None if it leads nowhere."""
    body, behind = way
    if behind is None:
        return body or '""'
    return f"{body} {behind}".strip() if behind in whole else None


def _alone(schema: Schema) -> Any:
    """A schema inside another, by itself."""
    if not isinstance(schema.node, Mapping) or not isinstance(schema.root, Mapping):
        return schema.node
    return {**{key: schema.root[key] for key in _DEFINITIONS if key in schema.root}, **schema.node}


def _words(node: Any) -> list[str] | None:
    """The strings that an argument may be, where its schema lists them."""
    if not isinstance(node, Mapping):
        return None
    words = [node["const"]] if "const" in node else node.get("enum")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) and word for word in words):
        return None
    return words


def _encoded(text: str, state: State) -> str:
    for old, new in reversed(state.decode):
        text = text.replace(new, old)
    return text


def _json(schema: Any) -> str:
    if isinstance(schema, Mapping):
        schema = {**schema, "x-guidance": _LAYOUT}
    return f"%json {json.dumps(schema)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _spelled(atom: str | _Token) -> str:
    return f"<[{atom.id}]>" if isinstance(atom, _Token) else _quoted(atom)


def _escaped(text: str) -> str:
    return _META.sub(r"\\\g<0>", text).replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
