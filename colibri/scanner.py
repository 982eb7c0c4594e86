"""The scanner: finds the marks of an output grammar in a reply that arrives in pieces.

It is the only code that holds text back because a mark may be arriving. What it holds is bounded
(`Grammar.hold`), its decisions read a fixed window of text, and so its results do not depend on how the
reply is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from colibri.automaton import Edge, Node, Search
from colibri.sink import Sink
from colibri.states import LOOK
from colibri.steps import Observer, Step

__all__ = ["Scanner"]

_BLANK = re.compile(r"[ \t\r\n]*")
_LONE = re.compile("[\udc00-\udcff]")


class _Verdict(Enum):
    """What becomes of a mark that does not count, or not yet."""

    HOLD = "what follows must tell, or was cut by the token limit"
    REFUSED = "it is text"


_Found: TypeAlias = "tuple[Edge | None, int]"


class Scanner:
    """Runs a compiled grammar over a reply and tells a `Sink` what it finds.

    node: where it stands. held: the text held back. base: raw offset of its first character. `special`
    are the spellings of special tokens; `spell` maps the characters that stand for authentic ones, if the
    compiled grammar has any, to those spellings.
    """

    def __init__(
        self,
        node: Node,
        sink: Sink,
        *,
        special: Iterable[str] = (),
        spell: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.node = node
        self.base = 0
        self.held = ""
        self._sink = sink
        self._spell = spell or {}
        self._special = tuple(self._spell or special)
        self._observer = observer
        self._wide: list[tuple[int, int]] = []
        self._after = ""
        self._quote = ""
        self._depth = 0
        self._simple = node.plain
        self._inside: Search | None = None
        self._put = sink.enter(node, 0)

    def feed(self, text: str, *, lone: bool = False) -> None:
        """Take more of the reply; `lone`: it is one character that stands for a special token.

        `text` is not empty.
        """
        buffer = self.held + text if self.held else text
        if lone or self._wide:
            all_text = False
        elif self._simple:
            node = self.node
            all_text = node.search(buffer) is None and buffer[-1] not in node.tail_ends
        elif self._inside is not None:
            match = self._inside(buffer)
            all_text = match is not None and match.end() == len(buffer)
        else:
            all_text = False
        if all_text:
            start = self.base
            self.base = end = start + len(buffer)
            self.held = ""
            self._put(buffer, start, end)
        else:
            self._run(buffer, None)

    def finish(self, reason: str) -> None:
        """The reply is over: `reason` is "stop" or "length". What is still held finds its meaning."""
        self._run(self.held, reason)
        if self.held:
            start, end = self.base, self._raw(len(self.held))
            self._sink.frame("cut", start, end)
            self.base, self.held, self._wide = end, "", []

    def _run(self, buffer: str, reason: str | None) -> None:
        size = len(buffer)
        self._measure(buffer)
        at = 0
        while True:
            if self._after and at < size:
                at = self._take_after(buffer, at)
            if at == size:
                break
            node = self.node
            if node.otherwise is not None:
                edge, start = self._lead(node, buffer, at, reason)
                if edge is None and start < 0:
                    self._step(node, node.otherwise, at)
                    continue
            elif node.plain:
                edge, start = self._find(node, buffer, at, reason)
            else:
                edge, start = self._find_outside(node, buffer, at, reason)
            if edge is None:
                if start > at:
                    self._give(buffer, at, start)
                at = start
                break
            self._cross(node, edge, buffer, at, start)
            at = start + len(edge.literal)
        self.base = self._raw(at)
        self.held = buffer[at:]
        self._measure(self.held)
        self._simple = self.node.plain and not self._after
        self._inside = self.node.string_ends[self._quote] if self._quote in self.node.escapes else None
        if self._observer and self.held and reason is None:
            self._observer(Step("held", self.base, self._raw(len(self.held)), self.node.name))

    # Finding the next mark. Each gives (edge, where it starts) or (None, where holding starts).

    def _find(self, node: Node, buffer: str, at: int, reason: str | None) -> _Found:
        search = node.search if reason is None else node.search_whole
        scan = at
        while (match := search(buffer, scan)) is not None:
            start = match.start()
            verdict = self._judge(node, buffer, match, reason)
            if isinstance(verdict, Edge):
                return verdict, start
            if verdict is _Verdict.HOLD:
                return None, self._layout(node, buffer, at, start)
            scan = start + 1
        if reason is None:
            return None, self._layout(node, buffer, at, len(buffer))
        return None, self._cut(node, buffer, at, scan, reason)

    def _lead(self, node: Node, buffer: str, at: int, reason: str | None) -> _Found:
        """In a state with `else`: a mark behind white space or a short header; -1 leads on to `else`."""
        size = len(buffer)
        within = node.state.within
        if within:
            scan, limit, search = at, at + within, node.search if reason is None else node.search_whole
        else:
            blank = _BLANK.match(buffer, at)
            scan = limit = blank.end() if blank else at
            if scan - at > LOOK:
                return None, -1
            if scan == size:
                return None, at if reason is None else size
            search = node.match if reason is None else node.match_whole
        while (match := search(buffer, scan)) is not None and match.start() <= limit:
            verdict = self._judge(node, buffer, match, reason)
            if isinstance(verdict, Edge):
                return verdict, match.start()
            if verdict is _Verdict.HOLD:
                return None, at
            scan = match.start() + 1
            if scan > limit:
                break
        if reason is None and within and size - at <= within:
            return None, at
        if reason is not None and node.state.final and node.search(buffer, scan) is not None:
            return None, at
        return None, -1

    def _find_outside(self, node: Node, buffer: str, at: int, reason: str | None) -> _Found:
        """In a state whose strings, or brackets, hide marks."""
        size = len(buffer)
        scan = at
        search = node.search if reason is None else node.search_whole
        while True:
            if self._quote:
                scan, open_ = self._string(node, buffer, scan)
                if open_:
                    return None, scan if reason is None else size
            match = search(buffer, scan)
            if match is None:
                return None, size
            start, literal = match.start(), match.group()
            if literal in node.string_ends:
                self._quote = literal
                scan = match.end()
                continue
            cut = literal not in node.words or literal in node.longer
            if cut and reason is None and match.end() == size:
                return None, start
            if literal in node.edges and not self._depth:
                verdict = self._judge(node, buffer, match, reason)
                if isinstance(verdict, Edge):
                    return verdict, start
                if verdict is _Verdict.HOLD:
                    return None, start
            if node.state.nest:
                self._depth = max(0, self._depth + (buffer[start] in "([{") - (buffer[start] in ")]}"))
            scan = start + 1

    def _string(self, node: Node, buffer: str, at: int) -> tuple[int, bool]:
        """Where the open string ends; or, with True, up to where its text is certain."""
        quote, size = self._quote, len(buffer)
        match = node.string_ends[quote](buffer, at)
        if quote in node.escapes:
            end = match.end() if match else at
            if end == size or buffer[end] != quote:
                return end, True
            end += 1
        else:
            if match is None:
                return size, True
            end = match.end()
            if match.group() != quote:
                return match.start(), True
        self._quote = ""
        return end, False

    def _judge(self, node: Node, buffer: str, match: re.Match[str], reason: str | None) -> Edge | _Verdict:
        """Whether the mark found counts, must wait for more text, or is text."""
        literal = match.group()
        edge = node.edges.get(literal)
        if reason is None and match.end() == len(buffer) and (edge is None or literal in node.longer):
            return _Verdict.HOLD
        while edge is not None:
            behind = match.start() + len(literal)
            counts = not edge.confirm or self._confirm(node, edge, buffer, behind, reason)
            if counts:
                return edge
            if counts is None:
                return _Verdict.HOLD
            if self._observer:
                start, end = self._raw(match.start()), self._raw(behind)
                self._observer(Step("refused", start, end, node.name, edge.spelled, edge.target.name))
            literal = node.shorter.get(literal, "")
            edge = node.edges.get(literal)
        return _Verdict.REFUSED

    # Confirming a mark by what follows it.

    def _confirm(self, node: Node, edge: Edge, buffer: str, at: int, reason: str | None) -> bool | None:
        size, limit = len(buffer), at + LOOK
        legal = self._legal(edge.target, buffer, at, min(size, limit), node.reasoning)
        if legal is not None or size >= limit:
            return bool(legal)
        if reason != "stop":
            return None
        target, rest = edge.target, buffer[at:]
        if not target.state.final:
            return False
        if target.slot in ("name", "key"):
            return bool(self._sink.word(target, rest, whole=True, reasoning=node.reasoning, declared=True))
        return not rest.strip()

    def _legal(self, node: Node, buffer: str, at: int, end: int, reasoning: bool) -> bool | None:
        """Whether buffer[at:end] may begin the text of `node`; None when it is too short to tell."""
        if node.slot in ("name", "key"):
            match = node.search(buffer, at, end)
            whole = match is not None and node.match_whole(buffer, match.start(), end) is not None
            text = buffer[at : match.start() if match else end]
            return self._sink.word(node, text, whole=whole, reasoning=reasoning, declared=False)
        if node.slot not in ("args", "call", "skip"):
            return True
        blank = _BLANK.match(buffer, at, end)
        start = blank.end() if blank else at
        if start == end:
            return None
        if node.slot != "skip":
            return buffer[start] == "{"
        match = node.match(buffer, start, end)
        if match is None:
            return False
        literal: str = match.group()
        if match.end() == end and (literal not in node.edges or literal in node.longer):
            return None
        edge = node.edges.get(literal)
        while edge is not None:
            behind = start + len(literal)
            legal = not edge.confirm or self._legal(edge.target, buffer, behind, end, reasoning)
            if legal is not False:
                return legal
            literal = node.shorter.get(literal, "")
            edge = node.edges.get(literal)
        return False

    # Layout, and the marks that the end of the reply cuts.

    def _layout(self, node: Node, buffer: str, at: int, end: int) -> int:
        """Where the longest text right before `end` starts that may be layout before a mark."""
        if end > at and buffer[end - 1] in node.tail_ends:
            for tail in node.tails:
                if buffer.endswith(tail, at, end):
                    return end - len(tail)
        return end

    def _cut(self, node: Node, buffer: str, at: int, scan: int, reason: str) -> int:
        """Where a mark starts that the token limit cut and that must not be shown as text."""
        if reason == "length" and (match := node.search(buffer, scan)) is not None:
            whole_token = any(special in buffer[match.start() :] for special in self._special)
            if whole_token or node.slot not in ("text", "reasoning", "skip"):
                return self._layout(node, buffer, at, match.start())
        return len(buffer)

    def _take_after(self, buffer: str, at: int) -> int:
        """Take the layout that belongs to the last mark, as far as it is there."""
        after, end = self._after, at
        while after and end < len(buffer) and buffer[end] == after[0]:
            after, end = after[1:], end + 1
        self._after = after if end == len(buffer) else ""
        if end > at:
            self._sink.frame("layout", self._raw(at), self._raw(end))
        return end

    # Reporting.

    def _cross(self, node: Node, edge: Edge, buffer: str, at: int, start: int) -> None:
        """Report the text up to a mark, its layout and the mark itself; enter the mark's target."""
        end = start + len(edge.literal)
        lay, kind = start, "layout"
        if node.otherwise is not None:
            lay, kind = at, "header" if buffer[at:start].strip(" \t\r\n") else "layout"
        elif edge.before:
            before = edge.before
            while not buffer.endswith(before, at, start):
                before = before[1:]
            lay = start - len(before)
        if lay > at:
            self._give(buffer, at, lay)
        sink, raw_start, raw_end = self._sink, self._raw(start), self._raw(end)
        sink.leave(node, self._raw(lay))
        if start > lay:
            sink.frame(kind, self._raw(lay), raw_start)
        sink.mark(edge, raw_start, raw_end)
        if self._observer:
            self._observer(Step("mark", raw_start, raw_end, node.name, edge.spelled, edge.target.name))
        self._after = edge.after
        self._enter(edge.target, raw_end)

    def _step(self, node: Node, target: Node, at: int) -> None:
        raw = self._raw(at)
        if self._observer:
            self._observer(Step("else", raw, raw, node.name, to=target.name))
        self._sink.leave(node, raw)
        if node.state.lenient:
            self._sink.frame("forgiven", raw, raw)
        self._enter(target, raw)

    def _enter(self, node: Node, raw: int) -> None:
        self.node = node
        self._quote, self._depth = "", 0
        self._put = self._sink.enter(node, raw)

    def _give(self, buffer: str, start: int, end: int) -> None:
        text = buffer[start:end]
        if self._wide:
            text = _LONE.sub(lambda match: self._spell[match.group()], text)
        self._put(text, self._raw(start), self._raw(end))

    def _measure(self, buffer: str) -> None:
        """Note which characters of the buffer stand for several of the raw reply."""
        if self._spell:
            found = _LONE.finditer(buffer)
            self._wide = [(match.start(), len(self._spell[match.group()]) - 1) for match in found]

    def _raw(self, at: int) -> int:
        """The raw offset of index `at` of the buffer."""
        if not self._wide:
            return self.base + at
        return self.base + at + sum(gain for place, gain in self._wide if place < at)
