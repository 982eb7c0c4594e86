"""Nothing of a difference can be overlooked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import colibri
from colibri.corpus import conversations
from colibri.differences import changes, excerpt, first_difference, pieces, visible
from colibri.errors import ColibriError

FAMILIES = colibri.load()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b\n\t", "a·b⏎⇥"),
        ("\r\x00\xa0\u200b\u3000", "\\u{d}\\u{0}\\u{a0}\\u{200b}\\u{3000}"),
        ("e\u0301 é 世界 🏔", "e\\u{301}·é·世界·🏔"),
        ("\ud800", "\\u{d800}"),
    ],
)
def test_invisible_characters_become_visible(text, shown):
    assert visible(text) == shown


@given(st.text())
def test_what_is_visible_is_printable_and_on_one_line(text):
    assert visible(text).isprintable()
    assert " " not in visible(text)


def test_equal_texts_do_not_differ():
    assert first_difference("same", "same") is None


@pytest.mark.parametrize(
    ("left", "right", "at", "column"),
    [
        ("abc", "abd", 2, 2),
        ("ab", "abc", 2, 2),
        ("", "a", 0, 0),
        ("x" * 100 + "\na", "x" * 100 + " a", 100, 41),
        ("\u200b" + "a", "\u200b" + "b", 1, 8),
    ],
)
def test_the_first_difference_is_pointed_at(left, right, at, column):
    found = first_difference(left, right)
    assert (found.at, found.column) == (at, column)
    assert found.left[:column] == found.right[:column]
    assert found.left[column : column + 1] != found.right[column : column + 1]


@given(st.text("ab\n \u200b", max_size=120), st.text("ab\n \u200b", max_size=120))
def test_any_difference_is_pointed_at(left, right):
    found = first_difference(left, right)
    if found is None:
        assert left == right
        return
    assert left[: found.at] == right[: found.at]
    assert left[found.at : found.at + 1] != right[found.at : found.at + 1]
    assert found.left[: found.column] == found.right[: found.column]


def test_an_excerpt_says_what_it_leaves_out():
    assert excerpt("0123456789", 5, before=2, after=2) == ("…3456…", 3)
    assert excerpt("0123456789", 1, before=2, after=20) == ("0123456789", 1)


@pytest.mark.parametrize("family_id", FAMILIES)
def test_pieces_are_the_prompt(family_id):
    for conversation in conversations().values():
        try:
            prompt = FAMILIES[family_id].render(conversation)
        except ColibriError:
            continue
        assert "".join(pieces(prompt)) == prompt.text
        assert all(pieces(prompt))
        assert not any("\n" in piece[:-1] for piece in pieces(prompt))


def test_pieces_end_where_a_turn_does_even_without_newlines():
    prompt = FAMILIES["glm47"].render(conversations()["several_turns"])
    assert "<|user|>Name a river." in pieces(prompt)


@given(st.lists(st.sampled_from("abc")), st.lists(st.sampled_from("abc")))
def test_changes_lead_from_one_to_the_other(left, right):
    told = changes(left, right)
    assert [piece for _, pieces, _ in told for piece in pieces] == left
    assert [piece for _, _, pieces in told for piece in pieces] == right
    assert all((a == b) == (tag == "equal") for tag, a, b in told)
