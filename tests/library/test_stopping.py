"""Stop sequences end a reply at the earliest match, however it is cut."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.stopping import StopFilter


def passed(pieces: list[str], stops: list[str], patient: bool = False) -> tuple[str, str | None, int]:
    stop_filter = StopFilter(stops, patient=patient)
    out = [part for piece in pieces for part in stop_filter.feed(piece)] + stop_filter.finish()
    fed = "".join(pieces)
    assert all(fed[start:end] == text for text, start, end in out)
    return "".join(text for text, _, _ in out), stop_filter.stopped, stop_filter.stopped_at


@pytest.mark.parametrize(
    ("text", "stops", "kept", "stopped"),
    [
        ("Hello", ["lo"], "Hel", "lo"),
        ("Hello", ["xyz"], "Hello", None),
        ("a\nxb", ["\n\n"], "a\nxb", None),
        ("xabyz", ["aab"], "xabyz", None),
        ("xaaaby", ["aab"], "xa", "aab"),
        ("one two", ["two", "one"], "", "one"),
        ("abc", ["ab", "abcd"], "", "ab"),
        ("so <|use", ["<|user|>"], "so <|use", None),
        ("", ["a"], "", None),
    ],
)
def test_the_earliest_stop_wins(text: str, stops: list[str], kept: str, stopped: str | None) -> None:
    assert passed([text], stops)[:2] == (kept, stopped)
    assert passed(list(text), stops)[:2] == (kept, stopped)


@pytest.mark.parametrize(
    ("text", "kept", "stopped"),
    [
        ("<|user|>Hi<|user|>", "Hi", "<|user|>"),
        (" \n<|user|>\n<|user|> Hi", "Hi", None),
        ("  Hi", "  Hi", None),
        ("  ", "  ", None),
        ("<|user|>  ", "", None),
        ("Hi<|user|>", "Hi", "<|user|>"),
        (" " * 300 + "<|user|>", " " * 300, "<|user|>"),
    ],
)
def test_leading_stops_are_patiently_ignored(text: str, kept: str, stopped: str | None) -> None:
    assert passed([text], ["<|user|>"], patient=True)[:2] == (kept, stopped)
    assert passed(list(text), ["<|user|>"], patient=True)[:2] == (kept, stopped)


def test_a_leading_newline_that_is_a_stop_is_ignored_too() -> None:
    assert passed(["\nHello\nthere"], ["\n"], patient=True)[:2] == ("Hello", "\n")
    assert passed(["\nHello"], ["\n"])[:2] == ("", "\n")


def test_only_what_may_become_a_stop_is_held() -> None:
    stop_filter = StopFilter(["<|user|>"])
    assert stop_filter.feed("so <|us") == [("so ", 0, 3)]
    assert stop_filter.feed("y") == [("<|usy", 3, 8)]


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("stops", [["aab"], ["\n\n"], ["ab", "ba"], ["a", "aab"], ["b\n", "ab"]])
def test_all_cuts_of_all_short_texts(stops: list[str], patient: bool) -> None:
    for size in range(1, 6):
        for letters in itertools.product("ab\n", repeat=size):
            text = "".join(letters)
            whole = passed([text], stops, patient)
            for at in range(1, size):
                assert passed([text[:at], text[at:]], stops, patient) == whole
            assert passed(list(text), stops, patient) == whole


@given(st.text("abc\n"), st.lists(st.text("abc\n", min_size=1, max_size=4), min_size=1, max_size=4))
def test_strict_stops_cut_where_str_find_says(text: str, stops: list[str]) -> None:
    places = [text.find(stop) for stop in stops if stop in text]
    kept, stopped, at = passed(list(text), stops)
    assert kept == (text[: min(places)] if places else text)
    assert (stopped is not None) == bool(places)
    assert not places or at == min(places)


@given(st.data())
def test_long_stops_hold_what_may_become_one(data: st.DataObject) -> None:
    """Past the depth at which the search changes its form, with stops that share their beginnings."""
    shared = "ab" * data.draw(st.integers(0, 120))
    stops = [shared + "c" * data.draw(st.integers(1, 200)) + end for end in "xyz"]
    near = data.draw(st.sampled_from(stops))
    text = "ab" + near[: data.draw(st.integers(0, len(near)))] + data.draw(st.sampled_from(["", "q", near]))
    at = min((found for stop in stops if (found := text.find(stop)) >= 0), default=-1)
    size = data.draw(st.integers(1, 70))
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    kept, stopped, _ = passed(pieces, stops)
    assert kept == (text if at < 0 else text[:at])
    assert (stopped is None) == (at < 0)


def test_the_longest_stop_that_a_request_may_name() -> None:
    stops = ["é<" * 512, "y" * 1024, "y" * 1023 + "z", "x"]
    assert passed(["..", stops[2], ".."], stops)[:2] == ("..", stops[2])
