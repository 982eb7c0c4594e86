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
from colibri.lark import SPACE, escaped, json_of, one_of, quoted, token
from colibri.signature import Signature
from colibri.states import LOOK, Mark, State
from colibri.texts import Lengths, Texts

__all__ = ["reply_constraint"]

_WORD = r"/[0-9A-Za-z_.:\n -]{1,32}/"
_ANY = r"(?s:.*)"
_SOME = r"(?s:.+)"
_BLANK = r"[ \t\r\n]"
# What may stand around a name or key: white space, quotes, and more that none begins with.
_AROUND = "[^!#-&(-~]*"


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
        text = _Writer(grammar, token_ids, schema, signatures).write(state)
        return text if text is None or text.encode() else None
    except (_NoGrammar, RecursionError, UnicodeEncodeError):
        return None


class _NoGrammar(Exception):
    """The format, or a declaration, has a part that these grammars cannot say."""


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
    signatures: Sequence[Signature]
    lexemes: dict[str, str] = field(factory=dict)
    names: dict[tuple[str, _At], str] = field(factory=dict)
    todo: list[tuple[str, _At]] = field(factory=list)
    tails: dict[tuple[str, int | None, bool], str] = field(factory=dict)
    asides: dict[tuple[str, str], tuple[tuple[str, ...], str]] = field(factory=dict)
    cut: dict[str, _Atoms] = field(factory=dict)
    spellings: dict[str, str] = field(factory=dict)

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
            for mark in self.marks(state, tools=False):
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
            raise _NoGrammar

    def skipped(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks(state, tools=bool(self.signatures))
        lead = SPACE if self.laid_out(state) else self.word(at.instead)
        for mark in marks:
            yield from self.then(lead, state, mark, at)
        if state.otherwise is None or state.lenient or state.within:
            return
        # Text may not begin as a mark does that is itself ordinary text.
        behind = {mark.at for mark in self.grammar.states[state.otherwise].marks}
        if all(self.special(mark) or (mark.lenient and mark.at in behind) for mark in self.active(state)):
            yield "", self.rule(state.otherwise, at)

    def content(self, state: State, at: _At) -> Iterator[_Way]:
        marks = self.marks(state, tools=bool(self.signatures))
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
            raise _NoGrammar
        for index, signature in enumerate(self.signatures):
            for mark in self.marks(state):
                if not _readable(signature.name, state, mark):
                    raise _NoGrammar
                name = quoted(state.encoded(signature.name))
                yield from self.then(name, state, mark, _At(tool=index))

    def keyed(self, state: State, at: _At) -> Iterator[_Way]:
        signature = self.signature(at)
        if not signature.separate:
            raise _NoGrammar
        if at.key >= len(signature.names):
            return
        name = signature.names[at.key]
        for mark in self.marks(state):
            if _readable(name, state, mark):
                yield from self.then(quoted(state.encoded(name)), state, mark, at)
            elif name in signature.required:
                raise _NoGrammar
        if name not in signature.required:
            yield "", self.rule(state.name, _At(at.tool, at.key + 1))

    def value(self, state: State, at: _At) -> Iterator[_Way]:
        parameter = self.signature(at).parameter(at.key)
        kinds, done = parameter.kinds, _At(at.tool, at.key + 1, pad=at.pad)
        if state.wire == "literal" or (state.wire is None and kinds is None and not parameter.anything):
            raise _NoGrammar
        if state.wire == "string" or (state.wire is None and (kinds is None or "string" in kinds)):
            if kinds is None or "string" in kinds:
                null = state.wire is None and kinds is not None and "null" in kinds
                texts = _spellings(parameter.texts, null=null)
                for mark in self.marks(state):
                    yield from self.verbatim(state, mark, done, texts)
        elif kinds is None or kinds - {"string"}:
            if parameter.json is None:
                raise _NoGrammar
            words = [
                quoted(str(text)) for text in parameter.texts or () if text is None or isinstance(text, bool)
            ]
            for mark in self.marks(state):
                for value in (parameter.json, *words):
                    yield from self.then(f"{SPACE} {value} {SPACE}", state, mark, done)

    def arguments(self, state: State, at: _At) -> Iterator[_Way]:
        signature = self.signature(at)
        if at.key:
            return
        if signature.json is None:
            raise _NoGrammar
        if state.final:
            yield signature.json, None
        for mark in self.marks(state):
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
        other = re.compile(self.misread(state, at, () if self.special(mark) else self.marks(state)))
        bodies = [_length(text) for text in texts if isinstance(text, Lengths)]
        for word in texts:
            spelled = f"{at.pad}{word}{mark.before}{mark.at}"
            if isinstance(word, str) and word and not (other.pattern and other.fullmatch(spelled)):
                bodies.append(escaped(word))
        if bodies:
            body = f"{escaped(at.pad)}{one_of(bodies)}{escaped(mark.before)}"
            yield from self.free(state, mark, at, body)

    def free(self, state: State, mark: Mark, at: _At, body: str = _ANY) -> Iterator[_Way]:
        """Text that matches a regex up to the mark, and what may come behind it."""
        atoms = self.atoms(mark.at)
        first = next((index for index, atom in enumerate(atoms) if isinstance(atom, _Token)), None)
        if first is not None:
            lead = body + escaped("".join(map(str, atoms[:first])))
            if (behind := self.behind(state, mark, at)) is not None:
                text = (
                    f"{self.text(state, at, _SOME)}?" if lead == _ANY else lead and self.text(state, at, lead)
                )
                yield " ".join([text, *map(_spelled, atoms[first:])]).strip(), behind
            return
        for spelled, marks in self.confirmed(mark):
            from_, place = state, at
            for passed in marks[:-1]:
                moved = self.moved(passed, place)
                if moved is None:
                    break
                from_, place = self.grammar.states[passed.to], moved
            else:
                if (behind := self.behind(from_, marks[-1], place)) is not None:
                    text = self.text(state, at, body + spelled, exits=self.marks(state))
                    yield self.lexeme(text, "t"), behind

    def text(self, state: State, at: _At, body: str, exits: Sequence[Mark] = ()) -> str:
        """The lexeme of a text in which no mark counts, but for an exit at its very end."""
        other = self.misread(state, at, exits)
        return self.lexeme(f"/{body}/ & ~/{other}/" if other else f"/{body}/")

    def misread(self, state: State, at: _At, exits: Sequence[Mark]) -> str:
        """A regex of the texts in which a mark counts, or an exit before the end; empty if there are none."""
        place = state.name, at.tool, bool(exits)
        if place not in self.tails:
            marks = self.active(state)
            never = [regex for mark in marks if mark not in exits for regex in self.counting(mark, state, at)]
            ends = [regex for mark in marks if mark in exits for regex in self.counting(mark, state, at)]
            if state.slot == "text" and self.signatures:
                never += map(escaped, sorted(self.grammar.telling_marks))
            tails = [one_of(never)] * bool(never) + [f"{one_of(ends)}(?s:.)"] * bool(ends)
            self.tails[place] = f"{_ANY}{one_of(tails)}{_ANY}" if tails else ""
        return self.tails[place]

    def confirmed(self, mark: Mark) -> list[tuple[str, tuple[Mark, ...]]]:
        """The regexes that end a text there, each with the marks that it passes.

        Where a mark is ordinary text that the text itself may hold, it takes the next one to be sure.
        """
        state = self.grammar.states[mark.to]
        nexts = self.marks(state) if mark.confirm and state.slot == "skip" else []
        if not nexts or any(map(self.special, nexts)):
            return [(escaped(mark.at), (mark,))]
        if any(after.confirm for after in nexts):
            raise _NoGrammar
        return [(f"{escaped(mark.at)}{_BLANK}{{0,8}}{escaped(after.at)}", (mark, after)) for after in nexts]

    def counting(self, mark: Mark, state: State, at: _At) -> list[str]:
        """The regexes of ordinary text in which a mark counts, inside a text of `state`."""
        target, spelled = self.grammar.states[mark.to], escaped(mark.at)
        if self.special(mark):
            return []
        nexts = [after for after in self.active(target) if not self.special(after)]
        if not mark.confirm or target.slot not in ("name", "key", "args", "call", "skip"):
            return [spelled]
        if target.slot in ("args", "call"):
            return [rf"{spelled}{_BLANK}*\{{"]
        if target.slot == "skip":
            rests = [rest for after in nexts for rest in self.counting(after, state, at)]
            return [f"{spelled}{_BLANK}*{one_of(rests)}"] if rests else []
        if target.slot == "name" and state.slot != "reasoning":
            return [spelled]
        known = self.known(at) if target.slot == "key" else [tool.name for tool in self.signatures]
        if not known or not nexts:
            return []
        words, ends = map(target.encoded, known), (after.at for after in nexts)
        return [f"{spelled}{_AROUND}{one_of(map(escaped, words))}{_AROUND}{one_of(map(escaped, ends))}"]

    # Marks, and what is behind them.

    def then(self, lead: str, state: State, mark: Mark, at: _At) -> Iterator[_Way]:
        """`lead`, the mark, and what may come behind it."""
        if (behind := self.behind(state, mark, at)) is not None:
            yield f"{lead} {self.spelled(mark.at)}", behind

    def behind(self, state: State, mark: Mark, at: _At) -> str | None:
        """The rule behind a mark of `state`; None where the open call still lacks an argument."""
        moved = self.moved(mark, at)
        if moved is None:
            return None
        if (state.name, mark.at) not in self.asides:
            self.asides[state.name, mark.at] = self.aside(state, mark)
        instead, pad = self.asides[state.name, mark.at]
        return self.rule(mark.to, _At(moved.tool, moved.key, moved.called, instead, pad))

    def aside(self, state: State, mark: Mark) -> tuple[tuple[str, ...], str]:
        """The `instead` and `pad` of the place behind a mark."""
        target = self.grammar.states[mark.to]
        others = [
            other for other in self.active(state) if other.at.startswith(mark.at) and other.to != mark.to
        ]
        instead = tuple(sorted(filter(None, (_instead(other.at[len(mark.at) :]) for other in others))))
        if instead and target.slot != "skip":
            raise _NoGrammar
        return () if self.laid_out(target) else instead, mark.after if target.slot == "value" else ""

    def moved(self, mark: Mark, at: _At) -> _At | None:
        """The place behind a mark; None where the open call still lacks an argument."""
        if not mark.end:
            return at
        signature = self.signature(at)
        if at.key <= len(signature.names):
            if not signature.separate:
                raise _NoGrammar
            if at.key < signature.needed:
                return None
        return _At(called=True)

    def marks(self, state: State, *, tools: bool = True) -> list[Mark]:
        """The marks that a well-formed reply may have there."""
        return [mark for mark in state.marks if not mark.lenient and (tools or not mark.tools)]

    def active(self, state: State) -> list[Mark]:
        """The marks that the parser knows there."""
        return [mark for mark in state.marks if self.signatures or not mark.tools]

    def laid_out(self, state: State) -> bool:
        """Whether nothing but layout may stand before the marks of a state without text."""
        return state.otherwise is not None or state.final or any(mark.confirm for mark in self.marks(state))

    def special(self, mark: Mark) -> bool:
        """Whether ordinary text cannot spell the mark."""
        return any(isinstance(atom, _Token) for atom in self.atoms(mark.at))

    def atoms(self, text: str) -> _Atoms:
        """A mark as texts and tokens."""
        if text not in self.cut:
            known = sorted(self.token_ids, key=len, reverse=True)
            parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
            self.cut[text] = tuple(
                _Token(self.token_ids[part]) if part in self.token_ids else part for part in parts if part
            )
        return self.cut[text]

    def spelled(self, text: str) -> str:
        """A mark in Lark's words."""
        if text not in self.spellings:
            self.spellings[text] = " ".join(map(_spelled, self.atoms(text)))
        return self.spellings[text]

    def word(self, instead: Sequence[str]) -> str:
        """A short text that the parser does not look at, but nothing of `instead`."""
        return f"{self.lexeme(_WORD + ''.join(f' & ~/{regex}/' for regex in instead))}?"

    def signature(self, at: _At) -> Signature:
        """The function of the open call."""
        if at.tool is None:
            raise _NoGrammar
        return self.signatures[at.tool]

    def known(self, at: _At) -> Sequence[str]:
        """The parameters of the open call."""
        return () if at.tool is None else self.signatures[at.tool].names


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
        raise _NoGrammar
    strings = [text for text in texts if isinstance(text, str | Lengths)]
    if not null:
        return strings
    if None in texts:
        return [*strings, "null"]
    if any(text.admits("null") for text in strings if isinstance(text, Lengths)):
        raise _NoGrammar
    return [text for text in strings if text != "null"]


def _length(lengths: Lengths) -> str:
    """A regex of the texts that are so long, but not empty."""
    return f"(?s:.{{{max(lengths.least, 1)},{'' if lengths.most is None else lengths.most}}})"


def _instead(rest: str) -> str | None:
    """A regex of the words that make a mark the longer one that has `rest` behind it."""
    word = re.match(r"[0-9A-Za-z_.:\n -]*", rest)
    if word is None or not word[0]:
        return None
    return escaped(word[0]) + (_ANY if word[0] == rest else "")


def _spelled(atom: str | _Token) -> str:
    return token(atom.id) if isinstance(atom, _Token) else quoted(atom)
