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
