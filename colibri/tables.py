"""Reading a TOML table with errors that name the file, the key and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from colibri.errors import FamilyFileError

__all__ = ["Table"]

T = TypeVar("T")

_KINDS = {str: "a string", bool: "true or false", int: "a whole number", dict: "a table", list: "a list"}


class Table:
    """One table of a file: `take` its keys one by one, then `done` refuses what is left over."""

    def __init__(self, data: Mapping[str, Any], *, file: str, path: str = "") -> None:
        self._data = dict(data)
        self._known: list[str] = []
        self.file = file
        self.path = path

    def error(self, key: str, expected: str) -> FamilyFileError:
        """The error for `key`, ready to raise."""
        where = f"{self.path}.{key}" if self.path else key
        return FamilyFileError(f"{self.file}: `{where}` {expected}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of `key`, which must be of `kind`; required when there is no default."""
        value = self.maybe(key, kind)
        if value is not None:
            return value
        if default is None:
            raise self.error(key, f"is required and must be {_KINDS.get(kind, kind.__name__)}")
        return default

    def maybe(self, key: str, kind: type[T]) -> T | None:
        """The value of `key`, which must be of `kind` if it is there; otherwise None."""
        self._known.append(key)
        value = self._data.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"must be {_KINDS.get(kind, kind.__name__)}, not {value!r}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """The list of strings at `key`, empty when it is absent."""
        values: list[Any] = self.take(key, list, [])
        for value in values:
            if not isinstance(value, str):
                raise self.error(key, f"must be a list of strings, not one with {value!r}")
        return tuple(values)

    def choice(self, key: str, options: tuple[T, ...], default: T) -> T:
        """The value of `key`, one of `options`."""
        self._known.append(key)
        value = self._data.pop(key, default)
        for option in options:
            if value == option and type(value) is type(option):
                return option
        raise self.error(key, f"must be one of {', '.join(map(repr, options))}, not {value!r}")

    def table(self, key: str) -> Table:
        """The sub-table at `key`, empty when it is absent."""
        path = f"{self.path}.{key}" if self.path else key
        return Table(self.take(key, dict, {}), file=self.file, path=path)

    def rest(self) -> dict[str, Any]:
        """Everything not taken, for tables whose keys are free."""
        rest, self._data = self._data, {}
        return rest

    def done(self) -> None:
        """Refuse keys that nobody took.

        Raises:
            FamilyFileError: a key is not known; the message proposes the nearest one.
        """
        for key in self._data:
            near = difflib.get_close_matches(key, self._known, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(self._known))}"
            raise self.error(key, f"is not known; {hint}")
