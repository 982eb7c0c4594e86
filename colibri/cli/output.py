"""Writing results: tables for people, JSON for programs, and text byte for byte."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

__all__ = ["printable", "write_exactly", "write_json", "write_table"]


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


def write_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table: drawn on a terminal, elsewhere one tab-separated line a row."""
    if not sys.stdout.isatty():
        for row in (headers, *rows):
            click.echo("\t".join(row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for header in headers:
        table.add_column(header, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
