import os
import subprocess
import sys
from importlib import import_module

import click
import pytest

from colibri.cli.program import COMMANDS


def python(*args, **options):
    return subprocess.run(
        [sys.executable, *args], capture_output=True, text=True, timeout=60, check=False, **options
    )


def test_help_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for name, words in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert words in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_listed_help_is_the_commands_own(name):
    command = import_module(f"colibri.cli.{name.replace('-', '_')}").command
    assert isinstance(command, click.Command)
    assert command.help
    assert command.help.split(".")[0].split(",")[0].split()[0] == COMMANDS[name].split()[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: program {name}")


def test_no_arguments_show_the_help():
    result = python("-m", "colibri")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == python("-m", "colibri", "--help").stdout
    assert result.stdout.startswith("Usage: colibri [OPTIONS] COMMAND")


GROUP = """
from colibri import hookimpl

@hookimpl
def colibri_commands(cli):
    @cli.group()
    def herd():
        \"\"\"Zebras.\"\"\"

    @herd.command()
    def count():
        print(7)
"""


def test_a_group_without_a_command_shows_its_help(run, install):
    install("colibri-zebra", GROUP)
    result = run("herd")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == run("herd", "--help").stdout
    assert run("herd", "count").stdout == "7\n"


def test_the_version_is_the_distributions(run):
    assert run("--version").stdout.startswith("colibri, version ")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["rendr"], "No such command 'rendr'; see `program --help`"),
        (["models", "--colour"], "No such option '--colour'; see `program models --help`"),
        (["pull"], "Missing argument 'NAME'; see `program pull --help`"),
        (["parse", "--finish", "never"], "Invalid value for '--finish': 'never' is not one of"),
    ],
)
def test_misuse_is_one_sentence(refused, args, sentence):
    assert refused(*args).startswith(sentence)


RAISING = """
from colibri import hookimpl

@hookimpl
def colibri_commands(cli):
    @cli.command()
    def act():
        raise {error}
"""


def test_ctrl_c_ends_the_program_with_130(run, install):
    install("colibri-interrupted", RAISING.format(error="KeyboardInterrupt"))
    result = run("act")
    assert result.exit_code == 130
    assert result.stderr.strip() == ""


def test_a_defect_is_not_hidden(run, install):
    install("colibri-broken", RAISING.format(error="ZeroDivisionError"))
    assert isinstance(run("act").exception, ZeroDivisionError)


@pytest.mark.parametrize("args", [["models", "--json"], []])
def test_a_reader_that_goes_away_is_no_error(args):
    writer = subprocess.Popen(
        [sys.executable, "-m", "colibri", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    writer.stdout.close()
    errors = writer.stderr.read()
    writer.stderr.close()
    writer.wait(60)
    assert errors == b""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["models"], ["models", "--json"], ["--help"], []])
def test_a_full_disk_is_one_sentence(args, unbuffered):
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "colibri", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert result.returncode == 2
    assert result.stderr == "colibri: the output cannot be written: No space left on device\n"


LIGHT = """
import sys
{code}
heavy = sorted({{"numpy", "aiohttp", "colibri_engine", "tokenizers", "rich"}} & set(sys.modules))
print(heavy, "jinja2" in sys.modules)
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import colibri", "[] False"),
        ("import colibri.cli", "[] False"),
        ("import colibri\nfor name in colibri.__all__: getattr(colibri, name)", "['colibri_engine'] False"),
        ("import colibri\ncolibri.load([])", "['colibri_engine'] False"),
        (
            "from colibri.cli.program import program\n"
            "try: program(['--help'])\nexcept SystemExit as end: assert end.code == 0",
            "[] False",
        ),
    ],
)
def test_light_imports_stay_light(code, found):
    result = python("-c", LIGHT.format(code=code))
    assert result.stdout.splitlines()[-1] == found, result.stderr
