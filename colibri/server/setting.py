"""One setting of the server: what it is called, and what its values may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import frozen

from colibri.errors import ColibriError
from colibri.server.variables import both_names

__all__ = ["Kind", "Setting", "SettingsError"]

Kind: TypeAlias = Literal["text", "integer", "number", "switch", "list"]

_EXPECTED = {
    "text": "a string",
    "integer": "a whole number",
    "number": "a number",
    "switch": "true or false",
    "list": "a list of strings",
}
_SWITCH_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_SWITCH_WORDS |= {"0": False, "false": False, "no": False, "off": False}


class SettingsError(ColibriError):
    """A setting is unknown or has a value that it cannot have; the message names it and its source."""

    code = "invalid_setting"


@frozen
class Setting:
    """One row of the table.

    `flag` is the command line's spelling, `variable` the environment's, `name` the TOML key. Numbers lie
    in [minimum, maximum]; `positive` excludes zero. `separator` splits a list in the environment; without
    one the variable holds a single item. `secret` values are never shown. `form` tells whether a text, or an
    item of a list, is what `words` calls it. `beside` tells of a path whether a value of the TOML file means
    it when it is relative to the file's folder.
    """

    flag: str
    variable: str
    help: str
    kind: Kind = "text"
    name: str = ""
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    positive: bool = False
    choices: tuple[str, ...] = ()
    separator: str | None = None
    secret: bool = False
    form: Callable[[str], bool] = lambda text: True
    words: str = ""
    beside: Callable[[Path], bool] = lambda path: False

    @property
    def variables(self) -> tuple[str, str]:
        """The environment variables that hold the setting: the documented one, and with the other prefix."""
        return both_names(self.variable)

    def read(self, text: str, source: str) -> Any:
        """The value that an environment variable spells.

        Raises:
            SettingsError: it spells none.
        """
        if self.kind == "list":
            items = text.split(self.separator) if self.separator else [text]
            return self.check([item.strip() for item in items if item.strip()], source)
        if self.kind == "switch":
            return self.check(_SWITCH_WORDS.get(text.strip().lower(), text), source)
        if self.kind in ("integer", "number"):
            try:
                return self.check(int(text) if self.kind == "integer" else float(text), source)
            except ValueError:
                raise self._error(text, source) from None
        return self.check(text, source)

    def check(self, value: Any, source: str) -> Any:
        """`value` in the type of its field.

        Raises:
            SettingsError: it has another type or lies outside the range.
        """
        if not self._fits(value):
            raise self._error(value, source)
        if self.kind == "list":
            return tuple(value)
        return float(value) if self.kind == "number" else value

    def located(self, value: Any, folder: Path) -> Any:
        """What `value` means in a TOML file in `folder`."""
        return str(folder / value) if self.kind == "text" and self.beside(folder / value) else value

    def _fits(self, value: Any) -> bool:
        if self.kind == "list":
            return isinstance(value, list | tuple) and all(self._is_text(item) for item in value)
        if self.kind == "switch":
            return isinstance(value, bool)
        if self.kind == "text":
            return self._is_text(value) and (not self.choices or value in self.choices)
        if isinstance(value, bool) or not isinstance(value, int if self.kind == "integer" else int | float):
            return False
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        return math.isfinite(value) and low <= value <= high and not (self.positive and value <= 0)

    def _is_text(self, value: Any) -> bool:
        return isinstance(value, str) and value != "" and "\0" not in value and self.form(value)

    def _error(self, value: Any, source: str) -> SettingsError:
        shown = "the value given" if self.secret else repr(value)
        return SettingsError(f"{source}: `{self.name}` must be {self.expected}, not {shown}")

    @property
    def shown_default(self) -> str:
        """The default in words; empty where there is none."""
        if self.default is None or self.default == ():
            return ""
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        words = self.words or _EXPECTED[self.kind]
        if self.positive:
            words += " above 0"
        if self.minimum is not None:
            words += f" from {self.minimum:g}"
        if self.maximum is not None:
            words += f" to {self.maximum:g}" if self.minimum is not None else f", at most {self.maximum:g}"
        return words
