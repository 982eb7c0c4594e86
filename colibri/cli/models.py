"""`colibri models`: the models that can be pulled."""

from __future__ import annotations

import click

from colibri.cli.common import as_json
from colibri.cli.output import size_words, write_json, write_table
from colibri.models import cached, known_models

__all__ = ["command"]


@click.command()
@as_json
def command(as_json: bool) -> None:
    """List the models that can be pulled, and where those are that have been."""
    rows = [(model, cached(model)) for model in known_models().values()]
    if as_json:
        write_json(
            [
                {
                    "name": model.name,
                    "title": model.title,
                    "license": model.license,
                    "size": model.size,
                    "sha256": model.sha256,
                    "path": None if path is None else str(path),
                }
                for model, path in rows
            ]
        )
        return
    write_table(
        ("NAME", "MODEL", "LICENSE", "SIZE", "FILE"),
        [
            (model.name, model.title, model.license, size_words(model.size), str(path or "not fetched"))
            for model, path in rows
        ],
        prose=("FILE",),
        spare=("LICENSE", "MODEL"),
    )
