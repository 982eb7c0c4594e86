"""The server's settings: one table that flags, environment, TOML file, checks and docs are made from.

The fields of `Settings` are the table. Defaults yield to the TOML file, that to the environment, that to
the flags.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, fields, frozen

from colibri.server.setting import Setting, SettingsError

__all__ = [
    "DEFAULT_TOKENS",
    "SETTINGS",
    "Setting",
    "Settings",
    "SettingsError",
    "load_settings",
    "settings_table",
]

DEFAULT_TOKENS = 1024
"""How many tokens a reply has at most where neither request nor operator says."""


def _is_command(text: str) -> bool:
    try:
        return bool(shlex.split(text))
    except ValueError:
        return False


def _is_host_name(text: str) -> bool:
    return re.fullmatch(r"[^\s/*@?#]+", text) is not None


def _row(default: Any, flag: str, variable: str, help: str, **rules: Any) -> Any:
    return field(default=default, metadata={"row": Setting(flag, variable, help, **rules)})


@frozen
class Settings:
    """Everything `colibri serve` can be told."""

    model: str | None = _row(
        None,
        "--model",
        "COLI_MODEL",
        "checkpoint: a folder, a .gguf file or a name that can be pulled",
        beside=os.path.exists,
    )
    model_id: str | None = _row(
        None, "--model-id", "COLIBRI_MODEL_ID", "the name clients use; the family's own when absent"
    )
    family: str | None = _row(
        None, "--family", "COLIBRI_FAMILY", "model family; found from the checkpoint when absent"
    )
    engine: str = _row(
        "process",
        "--engine",
        "COLIBRI_ENGINE",
        "where the model runs: in a process of its own, or in the server's (local)",
        choices=("process", "local"),
    )
    engine_cmd: str | None = _row(
        None,
        "--engine-cmd",
        "COLIBRI_ENGINE_CMD",
        "command of another engine that speaks the serve line protocol",
        form=_is_command,
        words="a command with its arguments, every quote closed",
    )
    engine_drain: float = _row(
        30.0,
        "--engine-drain",
        "COLI_ENGINE_DRAIN_S",
        "seconds that an engine in a process of its own has to end",
        kind="number",
        positive=True,
    )
    kv_folder: str | None = _row(
        None,
        "--kv-folder",
        "COLIBRI_KV_FOLDER",
        "folder in which conversations outlive the engine; nothing is kept when absent",
        beside=lambda path: True,
    )
    context: int | None = _row(
        None,
        "--ctx",
        "COLIBRI_CTX",
        "tokens of context per slot; the checkpoint's own when absent",
        kind="integer",
        minimum=1,
    )
    threads: int | None = _row(
        None,
        "--threads",
        "COLIBRI_THREADS",
        "threads that compute; one per core when absent",
        kind="integer",
        minimum=1,
    )
    kv_slots: int = _row(
        1,
        "--kv-slots",
        "COLI_KV_SLOTS",
        "conversations that are kept and served at the same time",
        kind="integer",
        minimum=1,
        maximum=16,
    )
    host: str = _row(
        "127.0.0.1",
        "--host",
        "COLIBRI_HOST",
        "address to listen on",
        form=_is_host_name,
        words="an address or a host name",
    )
    port: int = _row(
        8000,
        "--port",
        "COLIBRI_PORT",
        "port to listen on; 0 takes a free one",
        kind="integer",
        minimum=0,
        maximum=65535,
    )
    api_key: tuple[str, ...] = _row(
        (),
        "--api-key",
        "COLI_API_KEY",
        "key that clients must send; may be repeated",
        kind="list",
        secret=True,
    )
    api_key_file: str | None = _row(
        None,
        "--api-key-file",
        "COLIBRI_API_KEY_FILE",
        "file with one key a line",
        beside=lambda path: True,
    )
    allow_insecure_bind: bool = _row(
        False,
        "--allow-insecure-bind/--no-allow-insecure-bind",
        "COLIBRI_ALLOW_INSECURE_BIND",
        "listen beyond loopback without a key",
        kind="switch",
    )
    allowed_host: tuple[str, ...] = _row(
        (),
        "--allowed-host",
        "COLI_ALLOWED_HOSTS",
        "host name that requests may name beside loopback ones; may be repeated",
        kind="list",
        separator=",",
        form=_is_host_name,
        words="a list of host names, each in full since there are no wildcards",
    )
    cors_origin: tuple[str, ...] = _row(
        (),
        "--cors-origin",
        "COLIBRI_CORS_ORIGINS",
        "browser origin to allow instead of the local ones; +ORIGIN adds one, * allows any; may be repeated",
        kind="list",
        separator=",",
    )
    max_queue: int = _row(
        8,
        "--max-queue",
        "COLI_MAX_QUEUE",
        "requests that may wait for a slot; one more is answered 429",
        kind="integer",
        minimum=0,
    )
    queue_timeout: float = _row(
        300.0,
        "--queue-timeout",
        "COLI_QUEUE_TIMEOUT",
        "seconds a request may wait for a slot",
        kind="number",
        positive=True,
    )
    max_tokens: int | None = _row(
        None,
        "--max-tokens",
        "COLIBRI_MAX_TOKENS",
        f"most tokens of a reply; when absent, {DEFAULT_TOKENS} where a request names none, else what the"
        " context holds",
        kind="integer",
        minimum=1,
    )
    temperature: float | None = _row(
        None,
        "--temp",
        "COLIBRI_TEMPERATURE",
        "temperature of requests that name none; the family's own when absent",
        kind="number",
        minimum=0,
        maximum=2,
    )
    top_p: float | None = _row(
        None,
        "--top-p",
        "COLIBRI_TOP_P",
        "top_p of requests that name none; the family's own when absent",
        kind="number",
        positive=True,
        maximum=1,
    )
    think: bool | None = _row(
        None,
        "--think/--no-think",
        "COLIBRI_THINK",
        "whether models reason whose requests do not say; the family's own default when absent",
        kind="switch",
    )
    continue_assistant: bool = _row(
        True,
        "--continue-assistant/--no-continue-assistant",
        "COLI_CONTINUE_ASSISTANT",
        "a trailing assistant message is continued rather than answered",
        kind="switch",
    )
    tool_fallback: bool = _row(
        False,
        "--tool-fallback/--no-tool-fallback",
        "COLI_TOOL_FALLBACK",
        "offer tools on families whose format has none, by a prompt that describes them",
        kind="switch",
    )
    tool_salvage: bool = _row(
        False,
        "--tool-salvage/--no-tool-salvage",
        "COLI_TOOL_SALVAGE",
        "recover an argument from a malformed tool call",
        kind="switch",
    )
    control_tokens: str = _row(
        "text",
        "--control-tokens",
        "COLIBRI_CONTROL_TOKENS",
        "client text that spells a control token is ordinary text, or is refused",
        choices=("text", "refuse"),
    )
    visible_keepalive: bool = _row(
        False,
        "--visible-keepalive/--no-visible-keepalive",
        "COLIBRI_VISIBLE_KEEPALIVE",
        "signs of life of a stream show as dots, for clients that wait for text",
        kind="switch",
    )
    max_connections: int = _row(
        64,
        "--max-connections",
        "COLIBRI_MAX_CONNECTIONS",
        "connections at one time; one more is closed at once",
        kind="integer",
        minimum=1,
    )
    max_connections_per_address: int = _row(
        8,
        "--max-connections-per-address",
        "COLIBRI_MAX_CONNECTIONS_PER_ADDRESS",
        "connections at one time from one address other than loopback",
        kind="integer",
        minimum=1,
    )
    read_deadline: float = _row(
        30.0,
        "--read-deadline",
        "COLIBRI_READ_DEADLINE",
        "seconds within which a request must arrive, and within which a client must take what it is sent",
        kind="number",
        positive=True,
    )
    drain_limit: float = _row(
        30.0,
        "--drain-limit",
        "COLIBRI_DRAIN_LIMIT",
        "seconds that running requests have to finish after SIGTERM",
        kind="number",
        minimum=0,
    )
    access_log: bool = _row(
        True,
        "--access-log/--no-access-log",
        "COLIBRI_ACCESS_LOG",
        "one line a request on stderr",
        kind="switch",
    )


def _rows() -> tuple[Setting, ...]:
    return tuple(
        evolve(attribute.metadata["row"], name=attribute.name, default=attribute.default)
        for attribute in fields(Settings)
    )


SETTINGS: tuple[Setting, ...] = _rows()
"""The table, one row a field of `Settings`, in its order."""


def load_settings(
    config: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings from a TOML file, environment variables and flags, later ones winning.

    Relative paths in the file are relative to its folder. Variables may begin with either prefix; the one
    that the table names wins. `flags` maps names of settings to values; None and empty lists count as not
    given, as do empty environment variables.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, or a value does not fit.
    """
    rows = {row.name: row for row in SETTINGS}
    values: dict[str, Any] = {}
    environ = environ or {}
    for key, value in (_read_file(Path(config)) if config is not None else {}).items():
        row = _known(rows, key, str(config))
        values[key] = row.located(row.check(value, str(config)), Path(config or "").parent)
    for row in SETTINGS:
        if given := [name for name in row.variables if environ.get(name)]:
            values[row.name] = row.read(environ[given[0]], given[0])
    for key, value in (flags or {}).items():
        row = _known(rows, key, "flags")
        if value is not None and value != () and value != []:
            values[key] = row.check(value, row.flag.partition("/")[0])
    return Settings(**values)


def _known(rows: Mapping[str, Setting], key: str, source: str) -> Setting:
    row = rows.get(key)
    if row is not None:
        return row
    spelled = {spelling: row for row in rows.values() for spelling in _spellings(row)}
    near = difflib.get_close_matches(_plain(key), spelled, 1)
    hint = f"did you mean `{spelled[near[0]].name}`?" if near else f"known are {', '.join(rows)}"
    raise SettingsError(f"{source}: `{key}` is not a setting; {hint}")


def _spellings(row: Setting) -> Iterable[str]:
    """What the setting is called in any place, in the form of TOML keys."""
    variable = _plain(row.variable)
    return _plain(row.name), variable, variable.partition("_")[2], *map(_plain, row.flag.split("/"))


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_").lower()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not TOML ({error})") from None


def settings_table(rows: Sequence[Setting] = SETTINGS) -> str:
    """The table in Markdown, for the docs."""
    lines: Iterable[tuple[str, ...]] = (
        (f"`{row.flag}`", f"`{row.variable}`", f"`{row.name}`", row.expected, row.shown_default, row.help)
        for row in rows
    )
    head = ("flag", "environment", "TOML key", "value", "default", "meaning")
    body = [head, ("---",) * len(head), *lines]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in body)
