"""The sandbox in which chat templates run, with everything that Hugging Face gives them.

It is jinja's immutable sandbox with trim_blocks, lstrip_blocks and loop controls; `tojson` neither escapes
nor sorts; `raise_exception`, `strftime_now` and the `generation` tag are there (transformers 5.24,
utils/chat_template_utils.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn, TypeAlias

from jinja2 import DictLoader, TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

__all__ = ["ChatEnvironment", "Clock", "to_json"]

Clock: TypeAlias = Callable[[], datetime]

_DICT_NAMES = frozenset(dir(dict))


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """What chat templates may use.

    `loader` holds the sources of templates that others import, by name; `clock` tells the time to
    `strftime_now`.
    """

    mappings: tuple[type, ...] = (dict,)
    """Types that have the attributes of a dict and no others."""

    def __init__(self, loader: Mapping[str, str], clock: Clock) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, loopcontrols],
            loader=DictLoader(loader) if loader else None,
            optimized=False,  # folding constants costs a fifth of a compilation and saves nothing in a render
        )
        self.filters["tojson"] = to_json
        self.globals.update(
            raise_exception=_raise_exception,
            strftime_now=lambda format: clock().strftime(format),
            dict=_DictMaker(),
            namespace=_GuardedNamespace,
        )
        self._safe: dict[tuple[type, str], bool] = {}

    def getattr(self, obj: Any, attribute: str) -> Any:
        """`obj.attribute`: jinja's rule, without its failed look-up for a key of a dict."""
        if type(obj) in self.mappings and attribute not in _DICT_NAMES and attribute[:1] != "_":
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Jinja's verdict, which depends on the type alone, remembered."""
        key = (type(obj), attr)
        if key not in self._safe:
            self._safe[key] = super().is_safe_attribute(obj, attr, value)
        return self._safe[key]


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """The filter `tojson`: JSON as it is, with nothing escaped for HTML and keys in their own order."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, which marks what the model writes; the text is unchanged."""

    tags: set[str] = {"generation"}  # noqa: RUF012 - declared so by jinja

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the body as a scope of its own: names set inside stay inside."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _DictMaker:
    """What templates know as `dict`."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class _GuardedNamespace(Namespace):
    """What templates know as `namespace`: it holds no name that starts with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *mappings = args
        attributes = dict(*mappings, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"a namespace holds no name that starts with an underscore, such as {name!r}")


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
