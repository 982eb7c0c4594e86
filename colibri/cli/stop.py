"""`colibri stop`: end a server that runs in the background."""

from __future__ import annotations

import click

from colibri.server import pidfile
from colibri.server.settings import SETTINGS

__all__ = ["command"]

_PORT = next(row for row in SETTINGS if row.name == "port")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    envvar=_PORT.variables,
    default=_PORT.default,
    show_default=True,
    help="The port that the server listens on.",
)
@click.option("--dry-run", is_flag=True, help="Tell which server would end, and leave it.")
def command(port: int, dry_run: bool) -> None:
    """End the server of this user that listens on a port.

    It takes no more requests and gives those that run the time that its --drain-limit says.
    """
    server = pidfile.running(port)
    if dry_run:
        click.echo(f"the server on port {port} is process {server.pid}; it would be stopped")
        return
    pidfile.stop(server)
    click.echo(f"stopped the server on port {port}")
