"""What a user is told when something went wrong."""

from __future__ import annotations

import errno

import click

__all__ = ["sentence", "warn"]


def sentence(error: BaseException) -> str | None:
    """One sentence for an error that the user can repair; None for a defect of the program."""
    from colibri.errors import ColibriError
    from colibri_engine.errors import ContextLengthExceeded, EngineError

    if isinstance(error, ContextLengthExceeded):
        return (
            f"the prompt has {error.used} tokens and the context holds {error.limit}; shorten it or give"
            " more with --ctx"
        )
    if isinstance(error, ColibriError | EngineError):
        return error.message
    if isinstance(error, click.UsageError):
        command = error.ctx.command_path if error.ctx is not None else "colibri"
        return f"{error.format_message().rstrip('.')}; see `{command} --help`"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        if error.errno == errno.ENOSPC and error.filename is None:
            return f"the output cannot be written: {reason}"
        return reason if error.filename is None else f"{error.filename}: {reason}"
    return None


def warn(message: str) -> None:
    """Tell on stderr what does not stop the program."""
    click.echo(f"colibri: warning: {message}", err=True)
