"""Writing results: tables for people, JSON for programs, and text byte for byte."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click
from attrs import frozen

__all__ = ["printable", "size_words", "write_exactly", "write_json", "write_table"]

_NOTHING = "-"
"""What a cell without a value shows."""

_PROSE = 24
"""How many characters a column of prose has at least, if it needs as many."""


def write_json(value: Any) -> None:
    """One JSON value on one line of stdout."""
    write_exactly(json.dumps(value, ensure_ascii=False) + "\n")


def printable(text: str) -> str:
    """`text` with a question mark for each half of a surrogate pair, which no UTF-8 text can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def write_exactly(text: str) -> None:
    """`text`, made `printable`, in UTF-8 on stdout, nothing added and no line ending changed."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.buffer.flush()


def size_words(size: int) -> str:
    """A number of bytes, in the unit that all commands use."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def write_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    prose: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """A table: drawn on a terminal, elsewhere one tab-separated line a row.

    On a terminal columns without any value are left out. Where it is narrow cells become several lines, and
    only words in the columns of `prose` are ever broken. If that is not enough the columns of `spare` are
    left out, the first ones first.
    """
    if not sys.stdout.isatty():
        for row in (headers, *rows):
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    columns = [_Column.of(cells, prose) for cells in zip(headers, *rows, strict=True)]
    if rows:
        columns = [column for column in columns if set(column.cells) != {_NOTHING}]
    left_out = []
    for name in spare:
        if _drawn(column.least for column in columns) <= console.width:
            break
        left_out += [column.name for column in columns if column.name == name]
        columns = [column for column in columns if column.name != name]
    table = Table(box=None, pad_edge=False)
    widths = _widths(columns, console.width)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.name, width=width, overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(Text, cells))
    console.width = max(console.width, _drawn(widths))
    console.print(table)
    if left_out:
        click.secho(f"without {', '.join(left_out)}: for those a wider terminal, or --json", dim=True)


@frozen
class _Column:
    """Cells below each other, and how many characters wide they are at least and at most."""

    name: str
    cells: tuple[str, ...]
    least: int
    most: int

    @classmethod
    def of(cls, cells: tuple[str, ...], prose: Collection[str]) -> _Column:
        """The column of these cells, the first of which is its name."""
        from rich.cells import cell_len

        name, *rest = cells
        words = [cell_len(word) for cell in cells for word in cell.split()]
        least = max(words, default=0)
        return cls(
            name,
            tuple(rest),
            min(least, _PROSE) if name in prose else least,
            max(cell_len(cell) for cell in cells),
        )


def _drawn(widths: Iterable[int]) -> int:
    """How wide a table of such columns is, with a blank on both sides of each but at the edges."""
    return sum(width + 2 for width in widths) - 2


def _widths(columns: Sequence[_Column], room: int) -> list[int]:
    """What room there is beyond the least, given to the narrowest columns first."""
    widths = [column.least for column in columns]
    while _drawn(widths) < room:
        wanting = [at for at, column in enumerate(columns) if widths[at] < column.most]
        if not wanting:
            break
        widths[min(wanting, key=widths.__getitem__)] += 1
    return widths
