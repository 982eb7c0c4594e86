"""The `colibri` program, also installed as `coli`."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the program on the process's arguments; never returns."""
    from colibri.cli.program import program

    program(prog_name="colibri")
