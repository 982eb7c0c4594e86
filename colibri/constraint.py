"""What a reply may be, as a Lark grammar for constrained decoding, made from the grammar that reads replies.

One description of a format thus says both how a reply is read and how it must be written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve, field, frozen, mutable

from colibri.conversation import Tool
from colibri.grammar import Grammar
from colibri.lark import SPACE, escaped, json_of, one_of, quoted
from colibri.marks import ANY, Marks, NoGrammar, Token
from colibri.signature import Signature
from colibri.states import LOOK, Mark, State
from colibri.texts import Lengths, Texts

__all__ = ["reply_constraint"]

_WORD = r"/[0-9A-Za-z_.:\n -]{1,32}/"
_SOME = r"(?s:.+)"


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
    elements, values in a notation of their own, or one JSON object with name and arguments; nor where a
    name could not be read back, or a declaration asks for more than can be held to while arguments are
    written one by one. What stays open: JSON whose strings spell the format's marks, where those are
    ordinary text, is read as they say.
    """
    if not token_ids.keys() >= set(grammar.special):
        return None
    try:
        signatures = [Signature(tool) for tool in {tool.name: tool for tool in tools}.values()]
        text = _Writer(grammar, Marks(grammar, token_ids, signatures), schema, signatures).write(state)
        return text if text is None or text.encode() else None
    except (NoGrammar, RecursionError, UnicodeEncodeError):
        return None


@frozen
class _At:
    """Where in a reply a state stands.

    tool: the call that is open. key: its next argument at the earliest, or inside a value this one.
    called: whether nothing but calls may follow. instead: the regexes of what would make another mark of
    the one before. pad: layout that belongs to the mark before.
    """

    tool: int | None = None
    key: int = 0
    called: bool = False
    instead: tuple[str, ...] = ()
    pad: str = ""


_Way: TypeAlias = tuple[str, "str | None"]
"""What stands in a state, and the rule behind it; None where the reply may end."""


@mutable
class _Writer:
    """Collects the rules; each stands for one state at one place."""

    grammar: Grammar
    marks: Marks
    schema: Mapping[str, Any] | None
    signatures: Sequence[Signature]
    lexemes: dict[str, str] = field(factory=dict)
    names: dict[tuple[str, _At], str] = field(factory=dict)
    todo: list[tuple[str, _At]] = field(factory=list)

    def write(self, state: str) -> str | None:
        """The whole grammar, beginning in `state`."""
        start = self.rule(state, _At())
        rules: dict[str, list[_Way]] = {}
        while self.todo:
            name, at = self.todo.pop()
            rules[self.names[name, at]] = list(self.ways(self.grammar.states[name], at))
        whole = _ending(rules)
        if start not in whole:
            return None
        written = [
            f"{name}: " + "\n  | ".join(dict.fromkeys(filter(None, (_written(way, whole) for way in ways))))
            for name, ways in rules.items()
            if name in whole
        ]
        lexemes = [
            f"{name}[lazy]: {body}" if name.islower() else f"{name}: {body}"
            for body, name in self.lexemes.items()
        ]
        return "\n".join([f"start: {start}", *written, *lexemes, ""])

    def rule(self, name: str, at: _At) -> str:
        """The rule of a state."""
        if (name, at) not in self.names:
            self.todo.append((name, at))
        return self.names.setdefault((name, at), f"s{len(self.names)}")

    def lexeme(self, body: str, kind: str = "T") -> str:
        """The name of a lexeme."""
        return self.lexemes.setdefault(body, f"{kind}{len(self.lexemes)}")

    def ways(self, state: State, at: _At) -> Iterator[_Way]:
        """What can stand in a state and behind it."""
        if state.slot == "skip":
            yield from self.skipped(state, at)
        elif state.slot == "text":
            yield from self.content(state, at)
        elif state.slot == "reasoning":
            for mark in [mark for mark in self.marks.written(state) if not mark.tools]:
                yield from self.free(state, mark, at)
        elif state.slot == "name":
            yield from self.named(state, at)
        elif state.slot == "key":
            yield from self.keyed(state, at)
        elif state.slot == "value":
            yield from self.value(state, at)
        elif state.slot == "args":
            yield from self.arguments(state, at)
        else:
            raise NoGrammar

    def skipped(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks.written(state)
        lead = SPACE if self.marks.laid_out(state) else self.word(at.instead)
        for mark in marks:
            yield from self.then(lead, state, mark, at)
        if state.otherwise is None or state.lenient or state.within:
            return
        # Text may not begin as a mark does that is itself ordinary text.
        behind = {mark.at for mark in self.grammar.states[state.otherwise].marks}
        if all(
            self.marks.special(mark) or (mark.lenient and mark.at in behind)
            for mark in self.marks.read(state)
        ):
            yield "", self.rule(state.otherwise, at)

    def content(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks.written(state)
        if at.called:
            yield "", None
            for mark in marks:
                yield from self.then(SPACE, state, mark, at)
        elif self.schema is not None:
            whole = f"{SPACE} {json_of(self.schema)}"
            yield whole, None
            for mark in marks:
                if mark.tools:
                    yield from self.then(SPACE, state, mark, at)
                else:
                    yield from self.then(f"{whole} {SPACE}", state, mark, evolve(at, called=True))
        else:
            yield f"{self.text(state, at, _SOME)}?", None
            for mark in marks:
                yield from self.free(state, mark, at)

    def named(self, state: State, at: _At) -> Iterator[_Way]:
        if state.match is not None:
            raise NoGrammar
        for index, signature in enumerate(self.signatures):
            for mark in self.marks.written(state):
                if not _readable(signature.name, state, mark):
                    raise NoGrammar
                name = quoted(state.encoded(signature.name))
                yield from self.then(name, state, mark, _At(tool=index))

    def keyed(self, state: State, at: _At) -> Iterator[_Way]:
        signature = self.signature(at)
        if not signature.separate:
            raise NoGrammar
        if at.key >= len(signature.names):
            return
        name = signature.names[at.key]
        for mark in self.marks.written(state):
            if _readable(name, state, mark):
                yield from self.then(quoted(state.encoded(name)), state, mark, at)
            elif name in signature.required:
                raise NoGrammar
        if name not in signature.required:
            yield "", self.rule(state.name, _At(at.tool, at.key + 1))

    def value(self, state: State, at: _At) -> Iterator[_Way]:
        parameter = self.signature(at).parameter(at.key)
        kinds, done = parameter.kinds, _At(at.tool, at.key + 1, pad=at.pad)
        if state.wire == "literal" or (state.wire is None and kinds is None and not parameter.anything):
            raise NoGrammar
        if state.wire == "string" or (state.wire is None and (kinds is None or "string" in kinds)):
            if kinds is None or "string" in kinds:
                null = state.wire is None and kinds is not None and "null" in kinds
                texts = _spellings(parameter.texts, null=null)
                for mark in self.marks.written(state):
                    yield from self.verbatim(state, mark, done, texts)
        elif kinds is None or kinds - {"string"}:
            if parameter.json is None:
                raise NoGrammar
            words = [
                quoted(str(text)) for text in parameter.texts or () if text is None or isinstance(text, bool)
            ]
            for mark in self.marks.written(state):
                for value in (parameter.json, *words):
                    yield from self.then(f"{SPACE} {value} {SPACE}", state, mark, done)

    def arguments(self, state: State, at: _At) -> Iterator[_Way]:
        signature = self.signature(at)
        if at.key:
            return
        if signature.json is None:
            raise NoGrammar
        if state.final:
            yield signature.json, None
        for mark in self.marks.written(state):
            done = evolve(at, key=len(signature.names) + 1)
            yield from self.then(f"{signature.json} {SPACE}", state, mark, done)

    # Text that is not looked into, up to a mark.

    def verbatim(self, state: State, mark: Mark, at: _At, texts: Sequence[str | Lengths]) -> Iterator[_Way]:
        """A string to the byte. Any that is not held to a form may lack the layout around it."""
        if Lengths() in texts:
            yield from self.free(state, mark, at)
            return
        if "" in texts or any(isinstance(text, Lengths) and not text.least for text in texts):
            yield from self.free(state, mark, at, f"{escaped(at.pad)}{escaped(mark.before)}")
        other = re.compile(
            self.marks.misread(state, at.tool, () if self.marks.special(mark) else self.marks.written(state))
        )
        bodies = [_length(text) for text in texts if isinstance(text, Lengths)]
        for word in texts:
            spelled = f"{at.pad}{word}{mark.before}{mark.at}"
            if isinstance(word, str) and word and not (other.pattern and other.fullmatch(spelled)):
                bodies.append(escaped(word))
        if bodies:
            body = f"{escaped(at.pad)}{one_of(bodies)}{escaped(mark.before)}"
            yield from self.free(state, mark, at, body)

    def free(self, state: State, mark: Mark, at: _At, body: str = ANY) -> Iterator[_Way]:
        """Text that matches a regex up to the mark, and what may come behind it."""
        atoms = self.marks.atoms(mark.at)
        first = next((index for index, atom in enumerate(atoms) if isinstance(atom, Token)), None)
        if first is not None:
            before = "".join(map(str, atoms[:first]))
            lead = body + escaped(before)
            if (behind := self.behind(state, mark, at)) is not None:
                text = lead and self.text(state, at, _SOME if lead == ANY else lead)
                optional = "?" if lead == ANY else ""
                yield f"{text}{optional} {self.marks.spelled(mark.at[len(before) :])}".strip(), behind
            return
        for spelled, marks in self.marks.confirmed(mark):
            from_, place = state, at
            for passed in marks[:-1]:
                moved = self.moved(passed, place)
                if moved is None:
                    break
                from_, place = self.grammar.states[passed.to], moved
            else:
                if (behind := self.behind(from_, marks[-1], place)) is not None:
                    text = self.text(state, at, body + spelled, exits=self.marks.written(state))
                    yield self.lexeme(text, "t"), behind

    def text(self, state: State, at: _At, body: str, exits: Sequence[Mark] = ()) -> str:
        """The lexeme of a text in which no mark counts, but for an exit at its very end."""
        other = self.marks.misread(state, at.tool, exits)
        return self.lexeme(f"/{body}/ & ~/{other}/" if other else f"/{body}/")

    # Marks, and what is behind them.

    def then(self, lead: str, state: State, mark: Mark, at: _At) -> Iterator[_Way]:
        """`lead`, the mark, and what may come behind it."""
        if (behind := self.behind(state, mark, at)) is not None:
            yield f"{lead} {self.marks.spelled(mark.at)}", behind

    def behind(self, state: State, mark: Mark, at: _At) -> str | None:
        """The rule behind a mark of `state`; None where the open call still lacks an argument."""
        moved = self.moved(mark, at)
        if moved is None:
            return None
        return self.rule(mark.to, _At(moved.tool, moved.key, moved.called, *self.marks.aside(state, mark)))

    def moved(self, mark: Mark, at: _At) -> _At | None:
        """The place behind a mark; None where the open call still lacks an argument."""
        if not mark.end:
            return at
        signature = self.signature(at)
        if at.key <= len(signature.names):
            if not signature.separate:
                raise NoGrammar
            if at.key < signature.needed:
                return None
        return _At(called=True)

    def word(self, instead: Sequence[str]) -> str:
        """A short text that the parser does not look at, but nothing of `instead`."""
        return f"{self.lexeme(_WORD + ''.join(f' & ~/{regex}/' for regex in instead))}?"

    def signature(self, at: _At) -> Signature:
        """The function of the open call."""
        if at.tool is None:
            raise NoGrammar
        return self.signatures[at.tool]


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


def _readable(word: str, state: State, mark: Mark) -> bool:
    """Whether a name or key is read as it is meant, before that mark."""
    spelled = state.encoded(word)
    places = [(spelled + mark.at).find(other.at) for other in state.marks]
    return (
        word == state.decoded(spelled)
        and spelled == spelled.strip()
        and 0 < len(spelled) <= LOOK // 2
        and not any(0 <= place < len(spelled) for place in places)
    )


def _spellings(texts: Texts | None, *, null: bool) -> list[str | Lengths]:
    """How the strings that are admitted are written; null: whether the text `null` is read as null."""
    if texts is None:
        raise NoGrammar
    strings = [text for text in texts if isinstance(text, str | Lengths)]
    if not null:
        return strings
    if None in texts:
        return [*strings, "null"]
    if any(text.admits("null") for text in strings if isinstance(text, Lengths)):
        raise NoGrammar
    return [text for text in strings if text != "null"]


def _length(lengths: Lengths) -> str:
    """A regex of the texts that are so long, but not empty."""
    return f"(?s:.{{{max(lengths.least, 1)},{'' if lengths.most is None else lengths.most}}})"
