"""docs/family-file.md and docs/reply-grammar.md name every key that is read, and no other."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from colibri.family import Family
from colibri.loading import load_family
from colibri.states import SLOTS, WIRES
from colibri.tables import Table

sys.path.insert(0, str(Path(__file__).parent))
from pages import blocks

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \| (.+) \|$", re.MULTILINE)
DEFAULT = re.compile(r"`(true|false|[\"\[{].*)`")


def rows(page: str) -> dict[str, dict[str, list[str]]]:
    """Section -> key -> the cells beside it."""
    found = {}
    for section in re.split(r"^## ", (DOCS / page).read_text("utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        found[title] = {
            key: cells.split(" | ")
            for keys, cells in ROW.findall(text)
            for key in re.findall(r"`(.+?)`", keys)
        }
    return found


PAGE = rows("family-file.md")
TABLES = {title.strip("`[]"): keys for title, keys in PAGE.items() if title.startswith("`[")}


@pytest.fixture
def zebra(tmp_path):
    """The family that docs/how-to-add-a-family.md makes."""
    for block in blocks(DOCS / "how-to-add-a-family.md"):
        if block.file is not None:
            (tmp_path / Path(block.file).name).write_text(block.body, "utf-8")
    return tmp_path / "zebra.toml"


@pytest.fixture
def asked(monkeypatch):
    """File -> path of a table -> key -> the values to choose from, for every key that is asked for."""
    keys = defaultdict(lambda: defaultdict(dict))
    maybe, choice = Table.maybe, Table.choice

    def noted_maybe(table, key, kind):
        keys[table.file][table.path].setdefault(key, ())
        return maybe(table, key, kind)

    def noted_choice(table, key, options, default):
        keys[table.file][table.path][key] = options
        return choice(table, key, options, default)

    monkeypatch.setattr(Table, "maybe", noted_maybe)
    monkeypatch.setattr(Table, "choice", noted_choice)
    return keys


def test_keys_of_the_family_file(zebra, asked):
    load_family(str(zebra))
    read = asked["zebra.toml"]
    assert set(read.pop("")) == {*PAGE["The top"], *TABLES}
    assert set(read) == set(TABLES)
    for name, keys in read.items():
        assert set(keys) == set(TABLES[name])
        for key, options in keys.items():
            values = [json.dumps(option) for option in options if option is not None]
            assert all(f"`{value}`" in TABLES[name][key][0] for value in values), key


def test_writing_the_defaults_changes_nothing(zebra):
    """Every default that the page spells as TOML is the one of an absent key."""
    own = tomllib.loads(zebra.read_text("utf-8")) | {"features": {}, "folding": {}, "thinking": {}}
    plain = _loaded(zebra, own)
    defaults = {}
    for name, keys in TABLES.items():
        spelled = [(key, DEFAULT.fullmatch(cells[1])) for key, cells in keys.items()]
        defaults[name] = tomllib.loads("\n".join(f"{key} = {value[1]}" for key, value in spelled if value))
        assert defaults[name]
    written = _loaded(zebra, own | {name: table | own.get(name, {}) for name, table in defaults.items()})
    for part in ("identity", "stops", "features", "folding", "serve", "control_tokens"):
        assert getattr(written, part) == getattr(plain, part)
    for part in ("thinking", "keywords", "special_tokens", "forced_tool"):
        assert getattr(written.render, part) == getattr(plain.render, part)


def _loaded(file: Path, data: dict) -> Family:
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in data.items() if key not in tables]
    for name, table in tables.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    file.write_text("\n".join(lines), "utf-8")
    return load_family(str(file))


def test_keys_of_the_reply_grammar(zebra, asked):
    load_family(str(zebra))
    page, read = rows("reply-grammar.md"), defaultdict(set)
    for path, keys in asked["zebra.grammar.toml"].items():
        kind = "mark" if re.search(r"\.\d+$", path) else path.partition(".")[0]
        read[kind] |= set(keys)
    assert read[""] | {"like"} == {key.partition(".")[0] for key in page["The file"]}
    assert read["state"] == set(page["States"])
    assert read["mark"] == set(page["Marks"])
    assert set(SLOTS) == set(page["Slots"])
    assert all(f"`{wire}`" in page["States"]["as"][0] for wire in WIRES)
