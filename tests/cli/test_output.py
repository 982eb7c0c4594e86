"""Tables on terminals of any width."""

import re
import sys

import pytest

from colibri.cli.output import write_table
from colibri.registry import load


@pytest.fixture
def drawn(monkeypatch, capsys):
    """The lines of a table as a terminal of so many columns shows them, without colours."""

    def draw(width, *table, **options) -> list[str]:
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("LINES", "25")
        write_table(*table, **options)
        return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in capsys.readouterr().out.splitlines()]

    return draw


HEADERS = ("ID", "LEVELS", "WORDS", "NONE", "FROM")
ROWS = [
    (
        "deepseek_v4_preview",
        "none minimal low medium high",
        "some/path/of/a/file",
        "-",
        "colibri-a",
    ),
    ("b", "-", "it is ok", "-", "colibri-gpt-oss"),
]


def test_a_wide_table_is_one_line_a_row(drawn):
    assert drawn(200, HEADERS, ROWS) == [
        "ID                   LEVELS                        WORDS                FROM",
        "deepseek_v4_preview  none minimal low medium high  some/path/of/a/file  colibri-a",
        "b                    -                             it is ok             colibri-gpt-oss",
    ]


@pytest.mark.parametrize("width", range(20, 120))
def test_words_are_whole_at_any_width(drawn, width):
    lines = drawn(width, HEADERS, ROWS, prose=("WORDS",), spare=("FROM", "LEVELS"))
    words = " ".join(lines).split()
    assert "deepseek_v4_preview" in words
    text = "".join(lines)
    for name in ("FROM", "LEVELS"):
        cells = [row[HEADERS.index(name)] for row in ROWS]
        if name in words and "without" not in words:
            assert set(" ".join(cells).split()) <= set(words)
        else:
            assert "for those a wider terminal, or --json" in text
    table = [line for line in lines if not line.startswith("without")]
    assert max(map(len, table)) <= max(width, len("deepseek_v4_preview") + 2 + 24)


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_ids_levels_and_distributions_of_the_installed_families_are_whole(drawn, width, run, monkeypatch):
    from colibri.cli import families

    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    caught = []
    monkeypatch.setattr(families, "write_table", lambda *table, **options: caught.append((table, options)))
    assert run("families").exit_code == 0
    ((table, options),) = caught
    lines = drawn(width, *table, **options)
    words = set(" ".join(lines).split())
    registry = load()
    assert all(len(line) <= width for line in lines if not line.startswith("without "))
    for family in registry.values():
        assert {family.id, registry.distribution(family.id), *family.features.efforts} <= words


def test_a_table_without_rows_has_its_headers(drawn):
    assert drawn(80, HEADERS, []) == ["ID  LEVELS  WORDS  NONE  FROM"]


def test_programs_get_every_column(capsys):
    write_table(HEADERS, ROWS, spare=("FROM",))
    assert capsys.readouterr().out.splitlines() == ["\t".join(row) for row in (HEADERS, *ROWS)]
