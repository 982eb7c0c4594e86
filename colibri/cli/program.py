"""The program itself: finds commands on first use and ends every user's mistake as one sentence.

Command modules are imported only when their command runs, so that `colibri --help` stays fast.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click
from click.exceptions import NoArgsIsHelpError

from colibri.cli.common import disable_plugin, disabled_plugins
from colibri.cli.failures import sentence, warn
from colibri.cli.hooks import any_plugin_names_hook

__all__ = ["COMMANDS", "Program", "program"]

COMMANDS = {
    "chat": "Talk with a model in the terminal.",
    "doctor": "Tell what would fail here, and how to repair it.",
    "engine-check": "Check that a program can be served as an engine.",
    "families": "List the installed model families.",
    "models": "List the models that can be pulled.",
    "parse": "Read a model's raw reply into reasoning, text and tool calls.",
    "plugins": "List the plugins, and why one failed to load.",
    "prefix": "Tell whether each prompt starts with the one before.",
    "pull": "Fetch a model into the cache.",
    "render": "Write the exact prompt of a request.",
    "run": "Answer one prompt.",
    "serve": "Serve a model over HTTP.",
    "stop": "End a server that runs in the background.",
    "verify": "Compare a family's prompts with a checkpoint's own template.",
}
"""The commands with their one-line help; each is `command` in the module of its name."""

_FROM_PLUGINS = "colibri.commands"
_MISUSE = 2
_INTERRUPTED = 130


class Program(click.Group):
    """A group whose commands live in modules of their own, and in plugins."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the program's own commands, then those of plugins."""
        if not any_plugin_names_hook("colibri_commands"):
            return list(COMMANDS)
        return [*COMMANDS, *(name for name in _plugin_commands(ctx).commands if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported if it is the program's own; plugins are asked for any other."""
        if cmd_name in COMMANDS:
            command: click.Command = import_module(f"colibri.cli.{cmd_name.replace('-', '_')}").command
            return command
        return _plugin_commands(ctx).commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing their modules."""
        names = self.list_commands(ctx)
        others = _plugin_commands(ctx).commands if len(names) > len(COMMANDS) else {}
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, COMMANDS.get(name) or others[name].get_short_help_str()) for name in names]
            )

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run, and end the process; errors a user can repair become one sentence and exit code 2."""
        if not standalone_mode:
            return self._run(args, **extra)
        try:
            code = self._run(args, **extra)
            sys.stdout.flush()
        except click.Abort:
            sys.exit(_INTERRUPTED)
        except BrokenPipeError:
            _drop_unwritable()
            sys.exit(1)
        except Exception as error:
            _end(error)
        sys.exit(code if isinstance(code, int) else 0)

    def _run(self, args: Sequence[str] | None, **extra: Any) -> Any:
        """Run; a group without a command writes its help."""
        try:
            return super().main(args, standalone_mode=False, **extra)
        except NoArgsIsHelpError as error:
            click.echo(error.format_message())
            return 0


def _plugin_commands(ctx: click.Context) -> click.Group:
    """What plugins add, asked once a run; one that fails to is named on stderr and left out."""
    if _FROM_PLUGINS in ctx.meta:
        group: click.Group = ctx.meta[_FROM_PLUGINS]
        return group
    from colibri.registry import find_plugins

    group = ctx.meta[_FROM_PLUGINS] = click.Group()
    manager, found = find_plugins(disabled=disabled_plugins(ctx))
    for info in found:
        others = [plugin for name, plugin in manager.list_name_plugin() if name != info.name]
        try:
            manager.subset_hook_caller("colibri_commands", others)(cli=group)
        except Exception as error:
            warn(f"plugin {info.distribution} could not add its commands: {sentence(error) or error!r}")
    return group


def _end(error: Exception) -> NoReturn:
    message = sentence(error)
    if message is None:
        raise error
    _drop_unwritable()
    click.echo(f"colibri: {message}", err=True)
    sys.exit(_MISUSE)


def _drop_unwritable() -> None:
    """Drop what stdout holds if it takes no more, else the interpreter complains of it at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="colibri-llm", prog_name="colibri")
@disable_plugin
def program() -> None:
    """Exact prompts, parsed replies and a server for open-weights model families."""
