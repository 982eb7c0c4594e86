"""`colibri families`: what is installed."""

from __future__ import annotations

import attrs
import click

from colibri.cli.common import as_json, disable_plugin, load_registry
from colibri.cli.output import write_json, write_table

__all__ = ["command"]


@click.command()
@as_json
@disable_plugin
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the installed model families."""
    registry = load_registry(ctx)
    if as_json:
        write_json(
            [
                {
                    "id": family.id,
                    "title": family.title,
                    "distribution": registry.distribution(family.id),
                    "served_as": family.served_as,
                    "model_types": family.model_types,
                    "features": attrs.asdict(family.features),
                    "stop": family.stops.strings,
                    "end_tokens": family.stops.tokens,
                    "network": family.network is not None,
                }
                for family in registry.values()
            ]
        )
        return
    write_table(
        ("ID", "MODEL", "THINKING", "EFFORTS", "TOOLS", "MEDIA", "NETWORK", "FROM"),
        [
            (
                family.id,
                family.title,
                family.features.thinking,
                " ".join(family.features.efforts) or "-",
                "yes" if family.features.tools else "no",
                " ".join(family.features.media) or "-",
                "yes" if family.network is not None else "no",
                registry.distribution(family.id),
            )
            for family in registry.values()
        ],
        spare=("MODEL", "NETWORK", "MEDIA", "TOOLS", "EFFORTS", "THINKING", "FROM"),
    )
