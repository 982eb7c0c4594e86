import pytest

from colibri.errors import FamilyFileError
from colibri.tables import Table


def table(**data):
    return Table(data, file="zebra.toml")


def test_values_of_the_right_kind_are_taken():
    top = table(name="z", on=True, count=3, names=["a"], sub={"key": "v"})
    assert (top.take("name", str), top.take("on", bool), top.take("count", int)) == ("z", True, 3)
    assert top.strings("names") == ("a",)
    assert top.table("sub").take("key", str) == "v"
    assert top.maybe("absent", str) is None
    assert top.choice("mode", ("a", "b"), "b") == "b"
    top.done()


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda t: t.take("missing", str), "zebra.toml: `missing` is required and must be a string"),
        (lambda t: t.take("count", str), "zebra.toml: `count` must be a string, not 3"),
        (lambda t: t.take("on", int), "zebra.toml: `on` must be a whole number, not True"),
        (lambda t: t.strings("mixed"), "zebra.toml: `mixed` must be a list of strings, not one with 1"),
        (lambda t: t.choice("count", ("a",), "a"), "zebra.toml: `count` must be one of 'a', not 3"),
        (lambda t: t.choice("one", (True,), True), "zebra.toml: `one` must be one of True, not 1"),
        (lambda t: t.table("sub").take("x", int), "zebra.toml: `sub.x` must be a whole number, not 'y'"),
    ],
)
def test_errors_name_file_key_and_expectation(read, message):
    with pytest.raises(FamilyFileError) as caught:
        read(table(count=3, on=True, mixed=["a", 1], one=1, sub={"x": "y"}))
    assert caught.value.message == message


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
    top = table(titel="Zebra")
    top.maybe("title", str)
    with pytest.raises(FamilyFileError, match=r"`titel` is not known; did you mean `title`\?"):
        top.done()


def test_an_unknown_key_far_from_all_lists_the_known_ones():
    top = table(qqq=1)
    top.maybe("title", str)
    with pytest.raises(FamilyFileError, match="`qqq` is not known; known here: title"):
        top.done()
