"""What holds for the segments of every prompt."""

from itertools import pairwise


def value_at(path, variables):
    """The value that a path leads to; that of a printed key is the key."""
    if path[-1] == "@key":
        return path[-2]
    value = variables
    for step in path:
        value = value[step]
    return value


def check(text, segments, variables):
    """They cover the text without gaps and merge neighbours; what is copied equals its source."""
    assert [0, *(s.end for s in segments)] == [*(s.start for s in segments), len(text)]
    assert all(s.start < s.end for s in segments)
    for before, after in pairwise(segments):
        assert before.kind != "format" or after.kind != "format" or before.scope != after.scope
    for s in segments:
        if s.offset is not None and s.path[0] in variables:
            source = value_at(s.path, variables)
            assert source[s.offset : s.offset + s.end - s.start] == text[s.start : s.end]
