"""Rendering that keeps track: a sandbox in which every character of the result knows its origin.

The template's own text and string literals become traced strings labelled "format" when it is compiled;
inputs come as traced values; and the few places where jinja would build a plain string are replaced. The
text is what the plain sandbox gives. A plain string met anywhere counts as computed, so that a place that
is missing here can lose a label but never forge one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import count
from string import Formatter
from typing import Any, TypeAlias

from jinja2 import nodes, pass_eval_context
from jinja2.filters import do_join
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedFormatter
from jinja2.visitor import NodeTransformer

from colibri.messages import Path
from colibri.provenance import Kind, Segment
from colibri.sandbox import ChatEnvironment, Clock, to_json
from colibri.traced_text import Placed, Run, TracedMarkup, TracedStr, derived, escaped, joined, made_from
from colibri.traced_values import ChangedDict, TracedDict, plain

__all__ = ["TracedEnvironment", "segments_of"]


class TracedEnvironment(ChatEnvironment):
    """Renders to a `TracedStr`."""

    concat = staticmethod(joined)
    mappings = (dict, TracedDict, ChangedDict)

    def __init__(self, loader: Mapping[str, str], clock: Clock) -> None:
        super().__init__(loader, clock)
        self._numbers = count(1)
        own = {
            "e": escaped,
            "escape": escaped,
            "indent": _indent,
            "join": _join,
            "safe": _safe,
            "tojson": _to_json,
        }
        self.filters = {name: _guarded(function) for name, function in self.filters.items()} | own
        self.filters |= {"traced concat": _concat, "traced loop": _enter}

    def constant(self, text: TracedStr) -> nodes.Expr:
        """An expression that is `text`."""
        name = f"traced_{self.number()}"
        setattr(self, name, text)
        return nodes.EnvironmentAttribute(name)

    def number(self) -> int:
        """A number that nothing else in this environment has."""
        return next(self._numbers)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or method of the template; text from one that is not traced is derived."""
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str) and not isinstance(result, TracedStr):
            return derived(str(result), getattr(__obj, "__self__", None), args, kwargs)
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Give `str.format` of a traced string labels."""
        plain = super().wrap_str_format(value)
        template = getattr(value, "__self__", None)
        if plain is None or not isinstance(template, TracedStr) or value.__name__ != "format":
            return plain

        def format(*args: Any, **kwargs: Any) -> TracedStr:
            text = plain(*args, **kwargs)
            result = _formatted(SandboxedFormatter(self), template, args, kwargs)
            return result if result == text else derived(text, template, args, kwargs)

        return format

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Labelling(self).visit(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree


class _Labelling(NodeTransformer):
    """Rewrites a template's tree so that its own text is labelled and its loops leave marks."""

    def __init__(self, environment: TracedEnvironment) -> None:
        self._environment = environment

    def _literal(self, text: str) -> nodes.Expr:
        return self._environment.constant(TracedStr(text, [(len(text), "format", (), None)] if text else []))

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Expr:
        return self._literal(node.data)

    def visit_Const(self, node: nodes.Const) -> nodes.Expr:
        return self._literal(node.value) if isinstance(node.value, str) else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        node.node = self.visit(node.node)
        if not isinstance(node.arg, nodes.Const):  # a literal key is looked up, never printed
            node.arg = self.visit(node.arg)
        return node

    def _untouched(self, node: nodes.Node) -> nodes.Node:
        return node  # all they hold is the name of another template

    visit_Extends = visit_FromImport = visit_Import = visit_Include = _untouched

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return nodes.Filter(nodes.List(node.nodes), "traced concat", [], [], None, None)

    def visit_For(self, node: nodes.For) -> nodes.Node | list[nodes.Node]:
        self.generic_visit(node)
        if not isinstance(node.target, nodes.Name):
            return node
        loop = self._environment.number()
        item = nodes.Name(node.target.name, "load")
        enter = nodes.Filter(item, "traced loop", [nodes.Const(loop)], [], None, None)
        leave = self._environment.constant(TracedStr("", [(0, "leave", (), loop)]))
        node.body.insert(0, nodes.Output([enter]))
        return [node, nodes.Output([leave])]


def segments_of(text: TracedStr, length: int) -> tuple[Segment, ...]:
    """The runs of the first `length` characters as segments, neighbours of one origin merged."""
    segments: list[Segment] = []
    begin = start = 0
    current: _Origin | None = None
    for n, kind, path, offset, scope in _scoped(text):
        origin = (kind, path, scope, None if offset is None else offset - start)
        if origin != current:
            if current is not None:
                segments.append(_segment(begin, start, current))
            begin, current = start, origin
        start += n
        if start >= length:
            break
    if current is not None and begin < length:
        segments.append(_segment(begin, length, current))
    return tuple(segments)


# Kind, path, scope, and how far the prompt is behind the value that it copies.
_Origin: TypeAlias = tuple[Kind, Path, Path | None, int | None]


def _segment(begin: int, end: int, origin: _Origin) -> Segment:
    kind, path, scope, ahead = origin
    return Segment(begin, end, kind, path, None if ahead is None else ahead + begin, scope)


def _scoped(text: TracedStr) -> Iterator[tuple[int, Kind, Path, int | None, Path | None]]:
    """The runs that hold text, each with the path of the item that the outermost loop was at."""
    loops: list[tuple[int | None, Path]] = []
    scope = None
    for n, kind, path, offset in text._runs:
        if kind == "enter" or kind == "leave":
            numbers = [number for number, _ in loops]
            if offset in numbers:
                del loops[numbers.index(offset) :]
            if kind == "enter":
                loops.append((offset, path))
            scope = loops[0][1] if loops else None
        else:
            yield n, kind, path, offset, scope


def _concat(values: Iterable[Any]) -> TracedStr:
    """What `~` gives."""
    return joined([str(value) for value in values])


def _enter(item: Any, loop: int) -> TracedStr:
    run: Run = (0, "enter", item._path, loop) if isinstance(item, Placed) else (0, "leave", (), loop)
    return TracedStr("", [run])


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, str) and not isinstance(result, TracedStr):
            return derived(str(result), args, kwargs)
        return result

    return guarded


def _as_traced(value: Any) -> TracedStr:
    return joined([str(value)])


def _safe(value: Any) -> TracedMarkup:
    return TracedMarkup(_as_traced(value))


@pass_eval_context
def _join(context: nodes.EvalContext, value: Any, d: str = "", attribute: Any = None) -> Any:
    return do_join(context, value, _as_traced(d), attribute)


def _indent(s: str, width: int | str = 4, first: bool = False, blank: bool = False) -> TracedStr:
    margin = width if isinstance(width, str) else " " * width
    top, *rest = (_as_traced(s) + "\n").splitlines()
    lines = [margin + line if line or blank else line for line in rest]
    result = TracedStr("\n").join([top, *lines])
    return margin + result if first else result


def _formatted(formatter: Formatter, template: TracedStr, args: Sequence[Any], kwargs: Any) -> TracedStr:
    """What `template.format(*args, **kwargs)` gives, for templates of one origin and plain fields."""
    (_, kind, path, _), *others = template._runs or [(0, "computed", (), None)]
    pieces: list[str] = []
    number = 0
    for literal, name, spec, conversion in formatter.parse(template):
        if literal:
            literal_run: Run = (len(literal), kind, path, None)
            pieces.append(derived(literal, template) if others else TracedStr(literal, [literal_run]))
        if name is None:
            continue
        if name[:1] in ("", ".", "["):
            name = f"{number}{name}"
            number += 1
        if spec or conversion:
            field = f"{{{name}{'!' + conversion if conversion else ''}:{spec}}}"
            pieces.append(derived(formatter.vformat(field, args, kwargs), args, kwargs))
        else:
            pieces.append(_as_traced(formatter.get_field(name, args, kwargs)[0]))
    return joined(pieces)


def _to_json(value: Any, *args: Any, **options: Any) -> TracedStr:
    text = to_json(plain(value), *args, **options)
    if isinstance(value, TracedStr) and len(text) == len(value) + 2:  # nothing had to be escaped
        quote = made_from(text[:1], value)
        return joined([quote, value, quote])
    return made_from(text, value)
