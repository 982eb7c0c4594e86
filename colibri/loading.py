"""Family files into a `Family`: `<variant>.toml`, its template and its reply grammar, from one folder."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from colibri.conversation import Tool
from colibri.errors import FamilyFileError
from colibri.family import (
    Family,
    Features,
    Folding,
    Identity,
    ParserLike,
    Prompt,
    Serve,
    Start,
    Stops,
)
from colibri.framing import extend
from colibri.grammar import Grammar, load_grammar
from colibri.parser import Parser
from colibri.rendering import Renderer, reply_tail
from colibri.tables import Table
from colibri.templates import ChatTemplate, Prepare
from colibri.thinking import EFFORTS, ThinkingRule

__all__ = ["load_family", "read_grammar"]


def load_family(
    file: Traversable | str,
    *,
    network: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None,
    prepare: Prepare | None = None,
) -> Family:
    """The family that a variant's TOML file describes.

    The template and the grammar that it names lie in the same folder. `network` builds the engine's
    ArchSpec; `prepare` rearranges template messages where a template cannot.

    Raises:
        FamilyFileError: a file is missing or malformed; the message names it, the key and what was
            expected.
    """
    path = Path(file) if isinstance(file, str) else file
    data = _read_toml(path)
    top = Table(data, file=path.name)
    family_id = top.take("id", str)
    if not family_id.replace("_", "").isalnum() or family_id != family_id.lower():
        raise top.error("id", f"must be lower-case letters, digits and underscores, not {family_id!r}")
    title = top.take("title", str)
    folder = _folder(path)
    prompt, thinking, tools = top.table("prompt"), top.table("thinking"), top.table("tools")
    grammar = read_grammar(folder, top.take("grammar", str), by=f"`grammar` of {path.name}")
    rule = _thinking(thinking)
    stops = _stops(top.table("stops"))
    renderer = _renderer(prompt, tools, folder, grammar, rule, stops, prepare)
    features = _features(top.table("features"), tools, thinking, rule, renderer)
    identity = _identity(top.table("identity"))
    control = (*grammar.special, *stops.tokens, *prompt.strings("control_tokens"))
    folding, serve = _folding(top.table("folding")), _serve(top.table("serve"))
    for table in (prompt, thinking, tools, top):
        table.done()

    def new_parser(
        tools: Sequence[Tool] = (),
        prompt: Prompt | None = None,
        start: Start = None,
        *,
        salvage: bool = False,
    ) -> ParserLike:
        prime = None if prompt is None else reply_tail(prompt.text, grammar)
        return Parser(grammar, tools, prime=prime, start=start, salvage=salvage)

    return Family(
        id=family_id,
        title=title,
        identity=identity,
        stops=stops,
        features=features,
        folding=folding,
        serve=serve,
        grammar=grammar,
        template=renderer.template,
        render=renderer,
        new_parser=new_parser,
        extend=partial(extend, renderer, new_parser, stops.tokens),
        control_tokens=tuple(dict.fromkeys(control)),
        network=network,
    )


def read_grammar(folder: Traversable, name: str, *, by: str | None = None) -> Grammar:
    """The grammar in `folder` called `name`; `like` in it refers to another file of the folder.

    `by` says what names the file, for the error when it is missing.

    Raises:
        FamilyFileError: the file is missing or malformed.
    """

    def resolve(other: str) -> Mapping[str, Any]:
        return _read_toml(folder / other, by=f"`like` in the grammar {name}")

    return load_grammar(_read_toml(folder / name, by=by), file=name, resolve=resolve)


def _folder(path: Traversable) -> Traversable:
    if isinstance(path, Path):
        return path.parent
    parent = getattr(path, "parent", None)
    if parent is None:
        raise FamilyFileError(f"{path.name}: the folder of this file cannot be told; pass a Path")
    return parent  # type: ignore[no-any-return]


def _read_text(path: Traversable, by: str | None = None) -> str:
    named = f", which {by} names," if by else ""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise FamilyFileError(f"{path.name}: the file{named} cannot be read ({reason})") from None
    except UnicodeDecodeError as error:
        raise FamilyFileError(f"{path.name}: the file must be UTF-8 ({error.reason})") from None
    except ValueError as error:
        raise FamilyFileError(f"{path.name!r}: the file{named} cannot be read ({error})") from None


def _read_toml(path: Traversable, by: str | None = None) -> dict[str, Any]:
    try:
        return tomllib.loads(_read_text(path, by))
    except tomllib.TOMLDecodeError as error:
        raise FamilyFileError(f"{path.name}: the file is not TOML ({error})") from None


def _identity(table: Table) -> Identity:
    identity = Identity(
        model_types=table.strings("model_types"),
        template_hashes=frozenset(table.strings("template_hashes")),
        template_marks=table.strings("template_marks"),
        template_absent=table.strings("template_absent"),
        needs_template=table.take("needs_template", bool, False),
    )
    by_name = table.take("by_name", bool, False)
    table.done()
    if any(name != name.strip().lower() for name in identity.model_types):
        raise table.error("model_types", "must be lower case, as model types are compared")
    if not (by_name or identity.model_types or identity.template_hashes or identity.template_marks):
        raise table.error("model_types", "or template hashes or marks are required, or `by_name = true`")
    return identity


def _stops(table: Table) -> Stops:
    ids: list[Any] = table.take("token_ids", list, [])
    if any(not isinstance(value, int) or isinstance(value, bool) or value < 0 for value in ids):
        raise table.error("token_ids", "must be a list of token ids, whole numbers from 0")
    stops = Stops(
        strings=table.strings("strings"),
        patient=table.take("patient", bool, False),
        tokens=table.strings("tokens"),
        token_ids=tuple(ids),
    )
    table.done()
    return stops


def _thinking(table: Table) -> ThinkingRule:
    levels = table.strings("levels")
    ranked = [level for level in EFFORTS if level in levels]
    if list(levels) != ranked:
        raise table.error("levels", f"must be some of {', '.join(EFFORTS)} in this order")
    return ThinkingRule(
        switch=table.maybe("switch", str),
        on=table.maybe("on", str) or True,
        off=table.maybe("off", str) or False,
        effort=table.maybe("effort", str),
        levels=levels,
        values=table.take("values", dict, {}),
        preserve=table.maybe("preserve", str),
        preserve_value=table.take("preserve_value", bool, True),
    )


def _renderer(
    prompt: Table,
    tools: Table,
    folder: Traversable,
    grammar: Grammar,
    rule: ThinkingRule,
    stops: Stops,
    prepare: Prepare | None,
) -> Renderer:
    name = prompt.take("template", str)
    by = f"of {prompt.file}"
    shared = {
        other: _read_text(folder / other, f"`prompt.shared` {by}") for other in prompt.strings("shared")
    }
    source = _read_text(folder / name, f"`prompt.template` {by}")
    return Renderer(
        template=ChatTemplate(source, name=name, loader=shared, prepare=prepare),
        grammar=grammar,
        thinking=rule,
        stop=stops.strings,
        special_tokens=prompt.take("special_tokens", dict, {}),
        keywords=prompt.take("keywords", dict, {}),
        forced_tool=tools.choice("forced", ("narrow", "narrow+line", "message", "ignored"), "ignored"),
        tool_choice_keyword=tools.maybe("choice_keyword", str),
        open_keyword=prompt.maybe("open_keyword", str),
    )


def _features(
    table: Table, tools: Table, thinking: Table, rule: ThinkingRule, renderer: Renderer
) -> Features:
    native = tools.take("native", bool, False)
    features = Features(
        tools=native,
        tools_served=tools.take("served", bool, native),
        thinking=thinking.choice("kind", ("none", "switch", "always"), "none"),
        efforts=rule.levels,
        preserve_thinking=rule.preserve is not None,
        roles=table.strings("roles") or ("system", "user", "assistant"),
        forced_tool=renderer.forced_tool,
        media=table.strings("media"),
        prefix_stable=table.choice("prefix_stable", ("always", "never", "preserved"), "never"),
    )
    table.done()
    return features


def _folding(table: Table) -> Folding:
    folding = Folding(
        late_system=table.take("late_system", bool, True),
        text_parts=table.take("text_parts", bool, True),
        tool_text_parts=table.take("tool_text_parts", bool, True),
        bare_tools=table.take("bare_tools", bool, True),
    )
    table.done()
    return folding


def _serve(table: Table) -> Serve:
    effort = table.maybe("effort", str)
    if effort is not None and effort not in EFFORTS:
        raise table.error("effort", f"must be one of {', '.join(EFFORTS)}")
    when_off: tuple[bool | str | None, ...] = (True, False, "when_off", None)
    serve = Serve(
        model_id=table.maybe("model_id", str),
        thinking=table.choice("thinking", (True, False, None), None),
        effort=effort,
        preserve_thinking=table.choice("preserve_thinking", when_off, None),  # type: ignore[arg-type]
        sampling=table.take("sampling", dict, {}),
    )
    table.done()
    return serve
