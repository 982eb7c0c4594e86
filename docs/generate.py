"""Fill the generated parts of the documentation: `make docs`.

A page marks a part with a comment, `<!-- generated: WHAT -->`, and its end with `<!-- end -->`. WHAT is

- `families`: the table of all variants;
- `settings`: the table of the server's settings;
- `errors`: the table of all errors of library and engine;
- `variants ID...`: what the variants of a format offer, as data says;
- `prompt ID CASE [OPTIONS]`: a prompt, OPTIONS being a JSON object of template keywords;
- `reply ID CASE [OPTIONS]`: what the model writes for the first assistant turn of the case.
"""

from __future__ import annotations

import json
import pkgutil
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import evolve

import colibri
import colibri_engine
from colibri.conversation import Conversation, Thinking
from colibri.differences import pieces
from colibri.errors import ColibriError
from colibri.family import Family
from colibri.framing import serve_defaults
from colibri.loss_mask import reply_spans
from colibri.protocols.openai_errors import explain
from colibri.server.settings import settings_table
from colibri_engine.errors import EngineError

DOCS = Path(__file__).parent
PAGES = [
    *(DOCS / name for name in ("api.md", "errors.md", "families.md")),
    *sorted((DOCS / "formats").glob("*.md")),
]
PART = re.compile(r"<!-- generated: (?P<what>.+?) -->\n(?P<old>.*?)<!-- end -->", re.DOTALL)
DATE = {"strftime_now": lambda form: "2026-01-02"}  # for the format that writes today's date

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Lima", "days": 2}'},
}
CASES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is 91 prime?"},
            {"role": "assistant", "reasoning_content": "91 = 7 · 13.", "content": "No."},
            {"role": "user", "content": "And 97?"},
        ]
    },
    "call": {
        "messages": [
            {"role": "user", "content": "Weather in Lima?"},
            {
                "role": "assistant",
                "reasoning_content": "I need the tool.",
                "content": None,
                "tool_calls": [CALL],
            },
            {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "clear"},
        ],
        "tools": [WEATHER],
    },
}


def registry() -> colibri.Registry:
    """The built-in families and those of the plugins in this repository, whatever else is installed."""
    projects = sorted((DOCS.parent / "plugins").glob("*/pyproject.toml"))
    return colibri.load([tomllib.loads(path.read_text("utf-8"))["project"]["name"] for path in projects])


def generated(what: str, families: colibri.Registry) -> str:
    """The text of a generated part."""
    kind, *words = what.split(maxsplit=3 if what.startswith(("prompt", "reply")) else -1)
    if kind == "families":
        return families_table(families)
    if kind == "settings":
        return settings_table()
    if kind == "errors":
        return errors_table()
    if kind == "variants":
        return variants_table([families[name] for name in words])
    family, case, options = families[words[0]], words[1], json.loads(words[2] if len(words) > 2 else "{}")
    text = prompt_of if kind == "prompt" else reply_of
    return f"```text\n{text(family, _conversation(case, options))}```\n"


def _conversation(case: str, options: dict[str, Any]) -> Conversation:
    body = CASES[case]
    return colibri.conversation_from_openai(body["messages"], body.get("tools"), options={**DATE, **options})


def prompt_of(family: Family, conversation: Conversation) -> str:
    """The prompt, a line for each line and turn of it."""
    return _lines(pieces(family.render(conversation)))


def reply_of(family: Family, conversation: Conversation) -> str:
    """What the model writes for the first assistant turn, its end token included."""
    turns = conversation.turns
    at = next(index for index, turn in enumerate(turns) if turn.role == "assistant")
    written = family.render(evolve(conversation, turns=turns[: at + 1]), cue=False)
    ((start, end),) = reply_spans(family, written)
    return _lines(written.text[start:end].splitlines(keepends=True))


def _lines(texts: Sequence[str]) -> str:
    return "".join("  " + text.replace("\n", "⏎") + "\n" for text in texts)


def errors_table() -> str:
    """All errors with a code of their own, the library's before the engine's."""
    for package in (colibri, colibri_engine):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)
    rows = [
        (f"`{kind.code}`", f"`{kind.__module__}.{kind.__qualname__}`", _summary(kind), _answered(kind))
        for base in (ColibriError, EngineError)
        for kind in _with_code(base)
    ]
    return _table(("code", "error", "meaning", "answer"), rows)


def _with_code(kind: type[ColibriError | EngineError]) -> Iterator[type[ColibriError | EngineError]]:
    if "code" in vars(kind) and kind.__module__.partition(".")[0] in ("colibri", "colibri_engine"):
        yield kind
    for inner in sorted(kind.__subclasses__(), key=lambda inner: (inner.__module__, inner.__qualname__)):
        yield from _with_code(inner)


def _summary(kind: type[ColibriError | EngineError]) -> str:
    return " ".join((kind.__doc__ or "").partition("\n\n")[0].split()).replace("|", "\\|")


def _answered(kind: type[ColibriError | EngineError]) -> str:
    if kind.__module__.startswith(("colibri.cli", "colibri.server")):
        return "–"
    made = kind(9, 8) if kind.code == "context_length_exceeded" else kind("m")
    wire = explain(made)
    return f"{wire.status} `{wire.code}`"


def families_table(families: colibri.Registry) -> str:
    """All variants with what they offer."""
    rows = [
        (
            f"`{family.id}`",
            family.title,
            "built in" if family.network else "another",
            f"`{family.served_as}`",
            _code(family.model_types) or "by name only",
            _thinking(family),
            ", ".join(family.features.efforts) or "–",
            _served_thinking(family),
            _tools(family),
            "yes" if _continues(family) else "no",
            ", ".join(family.features.media) or "–",
            _stability(family),
            families.distribution(family.id),
        )
        for family in families.values()
    ]
    headers = ("id", "model", "engine", "served as", "model types", "thinking", "efforts", "served thinking")
    return _table((*headers, "tools", "continuation", "media", "prefix stable", "from"), rows)


def variants_table(families: Sequence[Family]) -> str:
    """What the variants of one format offer and how their turns end."""
    rows = [
        (
            f"`{family.id}`",
            family.title,
            _code(family.stops.tokens),
            _thinking(family),
            ", ".join(family.features.efforts) or "–",
            _stability(family),
            ", ".join(f"{name} {value:g}" for name, value in family.serve.sampling.items()) or "–",
        )
        for family in families
    ]
    return _table(
        ("id", "model", "a turn ends with", "thinking", "efforts", "prefix stable", "sampling"), rows
    )


def _code(words: Sequence[str]) -> str:
    """Words in code marks; a bar would end the cell."""
    return " ".join(f"`{word}`" for word in words).replace("|", "\\|")


def _thinking(family: Family) -> str:
    return {"none": "–", "switch": "can be turned off", "always": "always"}[family.features.thinking]


def _served_thinking(family: Family) -> str:
    """What a server's prompt says of thinking to a request that says nothing of it."""
    chat = _conversation("chat", {})
    question = evolve(chat, turns=chat.turns[:2])
    wishes = {"off": Thinking(enabled=False)} if family.features.thinking == "switch" else {}
    wishes |= {level: Thinking(enabled=True, effort=level) for level in family.features.efforts}
    wishes["on"] = Thinking(enabled=True)
    if family.features.thinking == "none":
        return "–"
    served = family.render(serve_defaults(question, family))
    said = (word for word, wish in wishes.items() if family.render(evolve(question, thinking=wish)) == served)
    return next(said, "the model decides")


def _tools(family: Family) -> str:
    features = family.features
    return "no" if not features.tools else "yes" if features.tools_served else "in the library only"


def _stability(family: Family) -> str:
    stable = family.features.prefix_stable
    return "if past reasoning is kept" if stable == "preserved" else stable


def _continues(family: Family) -> bool:
    chat = _conversation("chat", {})
    try:
        prompt = family.render(evolve(chat, turns=chat.turns[:3], open_last=True))
    except ColibriError:
        return False
    return prompt.text.endswith("No.")


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def filled(page: str, families: colibri.Registry) -> str:
    """The page with its generated parts made anew."""

    def part(match: re.Match[str]) -> str:
        what = match["what"]
        return f"<!-- generated: {what} -->\n{generated(what, families)}<!-- end -->"

    return PART.sub(part, page)


def main() -> None:
    """Write every page anew."""
    families = registry()
    for path in PAGES:
        old = path.read_text(encoding="utf-8")
        new = filled(old, families)
        if new != old:
            path.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(DOCS.parent)} changed\n")


if __name__ == "__main__":
    main()
