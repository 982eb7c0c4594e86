"""Family files with mistakes: one sentence that names the file, the key and what was expected."""

import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import pytest

import colibri
import colibri_smollm2
from colibri.errors import FamilyFileError

SOURCES = {
    file.name: file.read_text(encoding="utf-8")
    for file in files(colibri_smollm2).iterdir()
    if file.name.endswith((".toml", ".jinja"))
}
ODD: list[Any] = [5, -1, 1.5, True, "", " ", "\x00", "{X}", "..", [], [5], [""], {}, {"x": 5}, {"x": []}]


@pytest.fixture
def family(tmp_path):
    """Write the files, some of them changed, and load the family."""

    def load(**changes):
        for name, text in {**SOURCES, **changes}.items():
            if text is None:
                (tmp_path / name).unlink(missing_ok=True)
            elif isinstance(text, bytes):
                (tmp_path / name).write_bytes(text)
            else:
                (tmp_path / name).write_text(text, encoding="utf-8")
        return colibri.load_family(tmp_path / "smollm2.toml")

    return load


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def file_of(table: dict[str, Any]) -> str:
    return "\n".join(f"{json.dumps(key)} = {toml(value)}" for key, value in table.items())


def changed(table: Any) -> Iterator[Any]:
    """The table with one value made odd, or left out, or one key added."""
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        for odd in ODD:
            yield {**table, key: odd} if isinstance(table, dict) else [*table[:key], odd, *table[key + 1 :]]
        if isinstance(table, dict):
            yield {other: item for other, item in table.items() if other != key}
        if isinstance(value, dict | list):
            for inner in changed(value):
                yield {**table, key: inner} if isinstance(table, dict) else [*table[:key], inner]
    if isinstance(table, dict):
        yield {**table, "zebra": 1}


@pytest.mark.parametrize("name", ["smollm2.toml", "chatml.grammar.toml"])
def test_any_mistake_is_one_sentence_that_names_its_file(family, name):
    refused = []
    for table in changed(tomllib.loads(SOURCES[name])):
        try:
            family(**{name: file_of(table)})
        except FamilyFileError as error:
            refused.append(error.message)
    assert len(refused) > 50
    assert [message for message in refused if name not in message or "\n" in message] == []


@pytest.mark.parametrize("name", list(SOURCES))
@pytest.mark.parametrize(
    ("content", "message"),
    [(None, r"cannot be read \(No such file"), (b"\xff\xfe", "must be UTF-8")],
)
def test_a_file_that_cannot_be_read(family, name, content, message):
    with pytest.raises(FamilyFileError, match=message) as caught:
        family(**{name: content})
    assert caught.value.message.startswith(name)


@pytest.mark.parametrize("key", ["grammar", "template"])
@pytest.mark.parametrize("name", ["none.toml", "\x00", "."])
def test_a_file_that_is_not_there_is_told_with_the_key_that_names_it(family, key, name):
    data = tomllib.loads(SOURCES["smollm2.toml"])
    (data if key == "grammar" else data["prompt"])[key] = name
    with pytest.raises(FamilyFileError, match=rf"which `.*{key}` of smollm2\.toml names, cannot be read"):
        family(**{"smollm2.toml": file_of(data)})
