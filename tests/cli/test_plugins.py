import json

import pytest

GREETING = """
import click
from colibri import hookimpl

@hookimpl
def colibri_commands(cli):
    @cli.command("greet", help="Say hello.")
    def greet():
        click.echo("hello")
"""
RAISING = "raise RuntimeError('no luck')"
FAILING_HOOK = """
from colibri import hookimpl

@hookimpl
def colibri_commands(cli):
    raise RuntimeError("no luck")
"""
MISSPELT = """
from colibri import hookimpl

@hookimpl
def colibri_comands(cli):
    pass
"""
OVERRIDING = """
import click
from colibri import hookimpl

@hookimpl
def colibri_commands(cli):
    cli.add_command(click.Command("models", callback=lambda: click.echo("mine")))
"""


def plugins(run, *args):
    result = run("plugins", "--json", *args)
    assert result.exit_code == 0, result.output
    return {info["distribution"]: info for info in json.loads(result.stdout)}


def test_a_plugin_adds_a_command(run, install):
    install("colibri-greeting", GREETING)
    assert "  greet " in run("--help").stdout
    assert run("greet").stdout == "hello\n"
    info = plugins(run)["colibri-greeting"]
    assert info["version"] == "1.5"
    assert info["hooks"] == ["colibri_commands"]
    assert info["error"] is None


def test_a_disabled_plugin_adds_none(run, refused, install):
    install("colibri-greeting", GREETING)
    assert refused("--disable-plugin", "colibri-greeting", "greet").startswith("No such command 'greet'")
    assert "colibri-greeting" not in plugins(run, "--disable-plugin", "colibri_greeting")


def test_a_plugin_that_raises_on_import_is_listed_and_harms_nothing(run, install):
    install("colibri-unlucky", RAISING)
    assert plugins(run)["colibri-unlucky"]["error"] == "RuntimeError: no luck"
    row = next(line for line in run("plugins").stdout.splitlines() if "unlucky" in line)
    assert row.split("\t") == ["colibri-unlucky", "1.5", "colibri_unlucky", "-", "-", "RuntimeError: no luck"]
    result = run("families")
    assert result.exit_code == 0
    assert "warning: plugin colibri-unlucky 1.5 failed to load: RuntimeError: no luck" in result.stderr
    assert run("--help").exit_code == 0


def test_a_plugin_whose_commands_fail_is_named_and_harms_nothing(run, install):
    install("colibri-unlucky", FAILING_HOOK)
    install("colibri-greeting", GREETING)
    result = run("greet")
    assert result.stdout == "hello\n"
    assert "warning: plugin colibri-unlucky could not add its commands: RuntimeError" in result.stderr


def test_a_misspelt_hook_is_told(run, install):
    install("colibri-misspelt", MISSPELT)
    assert "'colibri_comands' is not known" in plugins(run)["colibri-misspelt"]["error"]


def test_the_programs_own_commands_win(run, install):
    install("colibri-overriding", OVERRIDING)
    assert "mine" not in run("models").stdout


def test_a_plugin_that_is_asked_for_and_missing_is_told(refused, monkeypatch):
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "colibri-nowhere")
    assert "colibri-nowhere is not installed" in refused("families")


def test_no_third_party_plugin_is_loaded_when_none_is_named(run, install, monkeypatch):
    install("colibri-greeting", GREETING)
    monkeypatch.setenv("COLIBRI_LOAD_PLUGINS", "")
    assert "colibri-greeting" not in plugins(run)


def test_all_lists_the_built_in_families_too(run):
    everything, strangers = plugins(run, "--all"), plugins(run)
    assert set(strangers) <= set(everything)
    assert all(not info["builtin"] for info in strangers.values())


COPYCAT = """
from importlib.resources import files
from colibri import hookimpl, load_family
import colibri_smollm2

@hookimpl
def colibri_families():
    return [load_family(files(colibri_smollm2) / "smollm2.toml")]
"""


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("name", ["copycat", "smollm2"])
def test_two_plugins_claiming_one_id_are_both_named(run, install, options, name):
    install("colibri-copycat", COPYCAT, name)
    result = run("plugins", *options)
    assert result.exit_code == 2
    assert "family 'smollm2' is claimed by" in result.stderr
    assert "colibri-copycat" in result.stderr
    assert "colibri-smollm2" in result.stderr
    assert "--disable-plugin" in result.stderr
    assert "colibri-copycat" in result.stdout
    assert run("families", "--disable-plugin", "colibri-copycat").exit_code == 0


def test_a_plugin_that_ends_the_process_on_import_is_listed(run, install):
    install("colibri-quitter", "raise SystemExit(3)")
    assert plugins(run)["colibri-quitter"]["error"] == "SystemExit: 3"
