import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri.protocols.base import ProtocolError
from colibri.protocols.json_body import MAX_DEPTH, decode_body

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize(
    ("raw", "param", "words"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b'{"a":1} x', None, "not valid JSON"),
        (b"[]", None, "must be a JSON object"),
        (b"null", None, "must be a JSON object"),
        (b'"text"', None, "must be a JSON object"),
        (b'{"a":"\xff"}', None, "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', None, "not UTF-8"),
        (b'{"a":NaN}', None, "NaN"),
        (b'{"a":[-Infinity]}', None, "-Infinity"),
        (b'{"a":1e999}', None, "too large"),
        (b'{"a":' + b"9" * 5000 + b"}", None, "too many digits"),
        (b'{"a":1,"a":2}', "a", "occurs twice"),
        (b'{"m":[{"b":{"c":1,"c":1}}]}', "c", "occurs twice"),
        (b'{"m":[{"t":"\\ud800"}]}', "m.0.t", "unpaired surrogate"),
        (b'{"m":[{"t":"\\udc00\\ud800"}]}', "m.0.t", "unpaired surrogate"),
        (b'{"m":{"\\udfff":1}}', "m", "unpaired surrogate"),
        (b'{"m":[{"t":"a\\u0000b"}]}', "m.0.t", "NUL"),
        (b'{"a":"raw\x00"}', None, "not valid JSON"),
        (nested(MAX_DEPTH + 1), "a", "deeper than"),
        (nested(100_000), None, "deeper than"),
        (b'{"a":' * 100_000, None, "deeper than"),
    ],
)
def test_a_body_that_cannot_be_meant_is_a_named_400(raw: bytes, param: str | None, words: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_body(raw)
    assert caught.value.wire.status == 400
    assert caught.value.wire.param == param
    assert words in caught.value.wire.message
    caught.value.wire.message.encode()


@pytest.mark.parametrize(
    "raw", [nested(MAX_DEPTH), b'{"a":"\\ud83d\\ude00"}', b'{"a":"\\\\ud800"}', b"{}", b' {"a": 1e308}\n']
)
def test_bodies_at_the_edge_are_read(raw: bytes) -> None:
    assert decode_body(raw) == json.loads(raw)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_every_json_object_means_what_json_says(body: dict[str, Any], ascii_only: bool) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only).encode()
    if b"\\u0000" in raw.replace(b"\\\\", b""):
        with pytest.raises(ProtocolError, match="NUL"):
            decode_body(raw)
    else:
        assert decode_body(raw) == body
