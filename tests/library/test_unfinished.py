"""Arguments that a reply's end cut off, closed where they stop."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.unfinished import finished

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), VALUES, max_size=4), st.booleans(), st.sampled_from([None, 1]), st.randoms()
)
def test_every_beginning_of_an_object_is_closed(value, ascii_only, indent, dice: random.Random) -> None:
    whole = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert finished(whole) == whole
    for end in {1, len(whole) - 1, *(dice.randint(1, len(whole)) for _ in range(12))}:
        closed = finished(whole[:end])
        assert closed is not None, whole[:end]
        keys = list(json.loads(closed))
        assert keys[:-1] == list(value)[: max(0, len(keys) - 1)]


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ('{"path": "a.p', {"path": "a.p"}),
        ('{"path": "a\\\\', {"path": "a\\"}),
        ('{"path": "a\\u00', {"path": "a"}),
        ('{"a": 1, "b', {"a": 1, "b": None}),
        ('{"a": [1, {"b": tr', {"a": [1, {"b": None}]}),
        ('{"a": -', {"a": None}),
        ("{", {}),
    ],
)
def test_what_had_begun_stays(text, closed) -> None:
    assert json.loads(finished(text)) == closed


@pytest.mark.parametrize("text", ["", "oops", "[1", "{a: 1}", '{"a": 1} x', "{]"])
def test_what_begins_no_object_is_left(text) -> None:
    assert finished(text) is None
