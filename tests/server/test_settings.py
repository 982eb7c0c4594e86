"""The settings table: precedence, bad values, unknown keys."""

from __future__ import annotations

import attrs
import pytest

from colibri.server.settings import SETTINGS, Settings, SettingsError, load_settings, settings_table


def test_later_sources_win(tmp_path):
    config = tmp_path / "colibri.toml"
    config.write_text('port = 1\nmax_queue = 2\nhost = "a"\nallowed_host = ["one"]\n')
    environ = {"COLIBRI_PORT": "3", "COLI_MAX_QUEUE": "4", "COLI_ALLOWED_HOSTS": "two, three"}
    settings = load_settings(config, environ, {"port": 5, "host": None, "allowed_host": ()})
    assert (settings.port, settings.max_queue, settings.host) == (5, 4, "a")
    assert settings.allowed_host == ("two", "three")


def test_defaults_are_themselves_legal():
    assert load_settings() == Settings()
    for row in SETTINGS:
        if row.default is not None:
            assert row.check(row.default, "default") == row.default


def test_names_flags_and_variables_are_unique():
    for key in ("name", "flag", "variable"):
        values = [getattr(row, key) for row in SETTINGS]
        assert len(set(values)) == len(values)
    assert [row.name for row in SETTINGS] == [field.name for field in attrs.fields(Settings)]


@pytest.mark.parametrize("word", ["1", "true", "YES", "on"])
def test_switch_words(word):
    assert load_settings(environ={"COLI_TOOL_FALLBACK": word}).tool_fallback is True
    assert load_settings(environ={"COLI_CONTINUE_ASSISTANT": "0"}).continue_assistant is False


@pytest.fixture
def written():
    """A value of a setting other than its default, as the environment spells it."""
    words = {"integer": "2", "number": "0.5", "list": "a.example", "text": "word"}

    def write(row, other=False) -> str:
        if row.kind == "switch":
            return "off" if other else "on"
        if row.choices:
            return row.choices[other]
        return words[row.kind].replace("2", "3").replace("0.5", "0.25") if other else words[row.kind]

    return write


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_variables_have_two_prefixes_and_the_documented_one_wins(row, written):
    documented, other = row.variables
    assert documented == row.variable
    assert {documented.partition("_")[0], other.partition("_")[0]} == {"COLI", "COLIBRI"}
    assert documented.partition("_")[2] == other.partition("_")[2]
    for name in row.variables:
        for value in (written(row), written(row, other=True)):
            read = getattr(load_settings(environ={name: value}), row.name)
            assert read == row.read(value, name)
    both = {other: written(row), documented: written(row, other=True)}
    assert load_settings(environ=both) == load_settings(environ={documented: both[documented]})
    assert load_settings(environ={**both, documented: ""}) == load_settings(environ={other: both[other]})


@pytest.mark.parametrize("row", [row for row in SETTINGS if row.kind != "text"], ids=lambda row: row.name)
def test_an_error_names_the_variable_that_was_set(row):
    other = row.variables[1]
    with pytest.raises(SettingsError, match=f"^{other}: `{row.name}` must be"):
        load_settings(environ={other: "\0"})


def test_paths_of_a_file_are_relative_to_its_folder(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    config = tmp_path / "etc" / "c.toml"
    config.write_text('api_key_file = "keys"\nkv_folder = "kv"\nmodel = "smollm2"\nhost = "keys"\n')
    settings = load_settings(config)
    folder = tmp_path / "etc"
    assert (settings.api_key_file, settings.kv_folder) == (str(folder / "keys"), str(folder / "kv"))
    assert (settings.model, settings.host) == ("smollm2", "keys")
    (folder / "smollm2").mkdir()
    assert load_settings(config).model == str(folder / "smollm2")
    assert load_settings(config, {"COLIBRI_KV_FOLDER": "kv"}, {"api_key_file": "k"}).kv_folder == "kv"
    assert load_settings(config, flags={"api_key_file": "keys"}).api_key_file == "keys"
    monkeypatch.chdir(folder)
    assert load_settings("c.toml").api_key_file == "keys"
    config.write_text('api_key_file = "/etc/keys"\n')
    assert load_settings(config).api_key_file == "/etc/keys"


def test_every_switch_can_be_turned_on_and_off():
    for row in SETTINGS:
        on, _, off = row.flag.partition("/")
        assert off == (f"--no-{on.removeprefix('--')}" if row.kind == "switch" else "")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("COLIBRI_PORT", "80a"),
        ("COLIBRI_PORT", "65536"),
        ("COLI_MAX_QUEUE", "-1"),
        ("COLI_MAX_QUEUE", "1.5"),
        ("COLI_QUEUE_TIMEOUT", "0"),
        ("COLI_QUEUE_TIMEOUT", "nan"),
        ("COLI_QUEUE_TIMEOUT", "inf"),
        ("COLI_KV_SLOTS", "17"),
        ("COLIBRI_TOP_P", "0"),
        ("COLI_TOOL_FALLBACK", "perhaps"),
        ("COLIBRI_CONTROL_TOKENS", "maybe"),
    ],
)
def test_bad_values_are_named(variable, text):
    row = next(row for row in SETTINGS if row.variable == variable)
    with pytest.raises(SettingsError) as caught:
        load_settings(environ={variable: text})
    assert variable in caught.value.message
    assert row.name in caught.value.message
    assert row.expected in caught.value.message


@pytest.mark.parametrize(
    "toml", ["port = true", "port = 1.5", 'port = "1"', "host = 1", "api_key = [1]", "api_key = 'x'"]
)
def test_toml_types_are_checked(tmp_path, toml):
    config = tmp_path / "c.toml"
    config.write_text(toml)
    with pytest.raises(SettingsError, match="must be"):
        load_settings(config)


def test_unknown_key_proposes_the_nearest(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("max_queu = 3")
    with pytest.raises(SettingsError, match="did you mean `max_queue`"):
        load_settings(config)
    with pytest.raises(SettingsError, match="did you mean `kv_slots`"):
        load_settings(flags={"kv_slot": 1})


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
def test_what_a_setting_is_called_elsewhere_leads_to_its_name(tmp_path, row):
    config = tmp_path / "c.toml"
    spelled = {*row.flag.split("/"), row.variable, row.variable.lower(), row.name.upper() + "S"}
    spelled |= {word.strip("-") for word in row.flag.split("/")} | {row.variable.partition("_")[2].lower()}
    for key in spelled - {row.name}:
        config.write_text(f"{key} = 3")
        with pytest.raises(SettingsError) as caught:
            load_settings(config)
        assert caught.value.message == f"{config}: `{key}` is not a setting; did you mean `{row.name}`?"


def test_a_key_that_is_near_nothing_is_told_what_there_is():
    with pytest.raises(SettingsError, match="`zzz` is not a setting; known are model, model_id"):
        load_settings(flags={"zzz": 1})


@pytest.mark.parametrize(
    "value", ["*", "*.example.com", "http://a.example", "a.example/v1", "a b", "user@a", "", "a\0"]
)
def test_allowed_hosts_are_names_in_full(value):
    with pytest.raises(
        SettingsError, match="`allowed_host` must be a list of host names, each in full"
    ) as caught:
        load_settings(flags={"allowed_host": ("a.example", value)})
    assert repr(value) in caught.value.message


@pytest.mark.parametrize("value", ["a.example", "a.example:80", "[::1]:80", "::1", "ä.example", "a_b"])
def test_what_can_stand_in_a_host_header_may_be_allowed(value):
    assert load_settings(flags={"allowed_host": (value,)}).allowed_host == (value,)


@pytest.mark.parametrize("value", ["'", '"', "a 'b", 'a "b c', "a \\", " ", "a\0"])
def test_a_command_that_no_shell_reads_is_no_command(value):
    with pytest.raises(SettingsError, match="--engine-cmd: `engine_cmd` must be a command"):
        load_settings(flags={"engine_cmd": value})


@pytest.mark.parametrize("row", [row for row in SETTINGS if row.kind == "text"], ids=lambda row: row.name)
def test_no_text_holds_a_null(row):
    with pytest.raises(SettingsError, match=f"`{row.name}`"):
        load_settings(flags={row.name: "a\0b"})


def test_unreadable_files_are_one_sentence(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(SettingsError, match="is not TOML"):
        load_settings(tmp_path / "bad.toml")


def test_secrets_are_not_shown(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("api_key = 12345678")
    with pytest.raises(SettingsError) as caught:
        load_settings(config)
    assert "12345678" not in caught.value.message


def test_docs_table_has_every_row():
    table = settings_table()
    assert table.count("\n") == len(SETTINGS) + 2
    for row in SETTINGS:
        assert row.flag in table
        assert row.variable in table
