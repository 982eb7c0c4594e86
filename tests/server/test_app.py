"""Checks in their order, the small endpoints, and answers in the API's shape."""

from __future__ import annotations

import asyncio
import io
import json
import re

import pytest

from colibri.server.routes import ROUTES

CHAT = "/v1/chat/completions"


async def test_models(serve):
    async with serve(model_id="org/model name") as live:
        status, body, headers = await live.json("GET", "/v1/models")
        assert status == 200
        assert body["object"] == "list"
        assert [card["id"] for card in body["data"]] == ["org/model name"]
        assert re.fullmatch("req_[0-9a-f]{32}", headers["x-request-id"])
        for spelled in ("org/model%20name", "org%2Fmodel%20name"):
            status, card, _ = await live.json("GET", f"/v1/models/{spelled}")
            assert (status, card["id"], card["object"]) == (200, "org/model name", "model")
        status, body, _ = await live.json("GET", "/v1/models/other")
        assert (status, body["error"]["code"]) == (404, "not_found")


async def test_health(serve):
    async with serve(api_key=("secret",)) as live:
        status, body, _ = await live.json("GET", "/health")
        assert (status, body) == (200, {"status": "ok"})
        status, body, _ = await live.json("GET", "/health", headers={"x-api-key": "secret"})
        assert body["scheduler"]["capacity"] == 1
        assert body["arch"] == "qwen36"


async def test_loading(serve):
    async with serve(loaded=False) as live:
        status, body, _ = await live.json("GET", "/health")
        assert (status, body["status"]) == (503, "loading")
        status, body, headers = await live.json("GET", "/v1/models")
        assert (status, body["error"]["code"]) == (503, "model_loading")
        assert "Retry-After" in headers
        status, body, _ = await live.json("POST", CHAT, json={"model": "x"})
        assert status == 503


ORDER = [
    ({"Host": "evil.example"}, b"{", 403, "forbidden"),
    ({}, b"{", 401, "invalid_api_key"),
    ({"x-api-key": "k"}, b"{", 400, None),
    ({"x-api-key": "k"}, b'{"model": "other"}', 404, "model_not_found"),
    ({"x-api-key": "k"}, b'{"model": "qwen36"}', 404, "not_found"),
]


@pytest.mark.parametrize(("headers", "body", "status", "code"), ORDER)
async def test_order_of_checks(serve, headers, body, status, code):
    async with serve(api_key=("k",)) as live:
        got, answer, _ = await live.json("POST", "/v1/nothing", headers=headers, data=body)
        assert (got, answer["error"]["code"]) == (status, code)
        assert set(answer["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/v1/"), ("GET", CHAT), ("PUT", "/health"), ("GET", "/v1/models/")],
)
async def test_what_is_not_there(serve, method, path):
    async with serve() as live:
        status, body, _ = await live.json(method, path)
        assert (status, body["error"]["code"]) == (404, "not_found")


async def test_a_body_may_leave_the_model_out_but_not_name_another(serve):
    messages = [{"role": "user", "content": "hi"}]
    async with serve() as live:
        assert (await live.json("POST", CHAT, json={"messages": messages}))[0] == 200
        assert (await live.json("POST", CHAT, json={"messages": messages, "model": None}))[0] == 200
        for named in ("other", "", 1, ["qwen36"], "\n" * 1000):
            status, body, _ = await live.json("POST", CHAT, json={"messages": messages, "model": named})
            assert (status, body["error"]["code"], body["error"]["param"]) == (
                404,
                "model_not_found",
                "model",
            )


async def raw(live, data: bytes) -> tuple[int, bytes]:
    head, body = await answered(live, data)
    return int(head.split()[1]) if head else 0, body


async def answered(live, data: bytes) -> tuple[bytes, bytes]:
    """Head and body of the answer to these bytes, after which the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
    writer.write(data)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        POST + b"\r\n",
        POST + b"Content-Length: 0\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        POST + b"Content-Length: +2\r\n\r\n{}",
        POST + b"Content-Length: 2, 2\r\n\r\n{}",
        POST + b"Content-Length: 99999999999999999999999999\r\n\r\n{}",
        POST + b"Content-Length: 4194305\r\n\r\n" + b" " * 4194305,
        POST + b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n{}",
        POST + b"Content-Length: 2\r\n\r\n[]",
        POST + b"Content-Length: 2\r\n\r\n\xff\xff",
        POST + b"Content-Length: 16\r\n\r\n" + b'{"model":"\\ud8"}',
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
)
async def test_broken_framing_is_an_error_object(serve, request_bytes):
    async with serve() as live:
        status, body = await raw(live, request_bytes)
        assert status == 400
        assert json.loads(body)["error"]["type"] == "invalid_request_error"


ENCODED = "The body must be sent with a Content-Length, not a Transfer-Encoding."
SEVERAL = "The request has several Content-Length headers; send exactly one."
INVALID = "The Content-Length header is invalid; it must be one number, of digits only."
HOST = "The request needs exactly one Host header."
LINE = "The request does not begin with a request line of HTTP/1.1."
LENGTHS = [b"+45", b"0x2d", b"", b"-1", b"2, 2", b"2 2", b"2.0", b"99999999999999999999999999", b"\xb2"]
BROKEN = [
    *((POST + b"Content-Length: %b\r\n\r\n{}" % length, INVALID) for length in LENGTHS),
    (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", SEVERAL),
    (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", SEVERAL),
    (POST + b"content-length: 2\r\nX: 1\r\nCONTENT-LENGTH: 2\r\n\r\n{}", SEVERAL),
    (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", ENCODED),
    (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}", ENCODED),
    (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ENCODED),
    (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", ENCODED),
    (POST + b"Transfer-Encoding: gzip\r\n\r\n{}", ENCODED),
    (POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n", ENCODED),
    (POST + b"\r\n", "The request needs a body and its Content-Length header."),
    (POST + b"Host: localhost\r\n\r\n", HOST),
    (b"GET / HTTP/1.1\r\n\r\n", HOST),
    (b"nonsense\r\n\r\n", LINE),
    (b"GET / HTTP/9.9\r\n\r\n", LINE),
    (POST + b"no colon\r\n\r\n", "A header of the request is invalid"),
    (POST + b"X: a\0b\r\n\r\n", "A header of the request is invalid"),
    (POST + b"X: Content-Length\0\r\n\r\n", "A header of the request is invalid"),
    (POST + b"X: %b\r\n\r\n" % (b"a" * 9000), "A line in the head of the request is too long."),
    (b"GET /%b HTTP/1.1\r\n\r\n" % (b"a" * 9000), "A line in the head of the request is too long."),
]


@pytest.mark.parametrize(("request_bytes", "reason"), BROKEN)
async def test_broken_framing_is_answered_as_anything_else_is(serve, caplog, request_bytes, reason):
    caplog.set_level("INFO", "colibri.access")
    async with serve(access_log=True) as live:
        head, body = await answered(live, request_bytes)
        line, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        assert line == "HTTP/1.1 400 Bad Request"
        assert (headers["server"], headers["connection"]) == ("colibri", "close")
        assert re.fullmatch("req_[0-9a-f]{32}", headers["x-request-id"])
        assert headers["x-request-id"] == headers["x-typesafe-request-id"]
        assert int(headers["content-length"]) == len(body)
        error = json.loads(body)["error"]
        assert error.pop("message").startswith(reason)
        assert error == {"type": "invalid_request_error", "param": None, "code": None}
        (logged,) = [
            json.loads(record.message) for record in caplog.records if record.name == "colibri.access"
        ]
        assert (logged["id"], logged["status"]) == (headers["x-request-id"], 400)
        assert sum(live.app.metrics.responses.values()) == 1


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE", "CONNECT"])
@pytest.mark.parametrize("loaded", [True, False])
async def test_every_answer_says_who_gives_it(serve, method, loaded):
    paths = ["/", "/nothing", "/%ff", *(route.path.replace("{model}", "qwen36") for route in ROUTES)]
    async with serve(loaded=loaded) as live:
        for path in paths:
            for host in (b"localhost", b"evil.example"):
                target = b"localhost:80" if method == "CONNECT" else path.encode()
                head, _ = await answered(
                    live,
                    b"%b %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
                    % (method.encode(), target, host),
                )
                assert re.search(rb"\r\nServer: colibri(\r\n|$)", head), (path, head)
                assert head.startswith(b"HTTP/1.1 ")


async def test_a_body_of_the_full_size_is_read(serve):
    async with serve() as live:
        body = json.dumps({"model": "qwen36"}).encode().ljust(4 * 1024 * 1024)
        status, answer, _ = await live.json("POST", "/nothing", data=io.BytesIO(body))
        assert (status, answer["error"]["code"]) == (404, "not_found")


async def test_a_refused_request_leaves_the_connection_usable(serve):
    async with serve(api_key=("k",)) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        for _ in range(3):
            writer.write(POST.replace(b"Connection: close\r\n", b"") + b"Content-Length: 2\r\n\r\n{}")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
            assert b" 401 " in head.splitlines()[0]
            size = int(re.search(rb"Content-Length: (\d+)", head)[1])
            await reader.readexactly(size)
        writer.close()


async def test_expect_continue(serve):
    async with serve() as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(POST + b"Content-Length: 13\r\nExpect: 100-continue\r\n\r\n")
        assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5) == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"model":"x"}')
        answer = await asyncio.wait_for(reader.read(), 5)
        assert b" 404 " in answer.splitlines()[0]
        writer.close()


@pytest.mark.parametrize(
    "line",
    [
        b"GET /%ff%fe",
        b"GET /v1/models/%ff%00%2e%2e",
        b"GET /\xff\xfe",
        b"GET /../../etc/passwd",
        b"GET //health",
        b"GET /health/",
        b"GET http://localhost/nothing",
        b"GET http://[::1",
        b"GET *",
        b"CONNECT localhost:80",
        b"TRACE /",
        b"G\x00T /",
        b"GET /" + b"a" * 20_000,
        b"GET /?" + b"a=1&" * 1000,
    ],
)
async def test_strange_request_lines_are_refused_in_words(serve, line):
    async with serve() as live:
        status, body = await raw(live, line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert 400 <= status < 500
        assert json.loads(body)["error"]["message"]
        assert (await live.json("GET", "/health"))[0] == 200


@pytest.mark.parametrize("count", [200, 5000])
async def test_heads_that_are_too_large_are_refused(serve, count):
    async with serve() as live:
        lines = b"".join(b"x-%d: y\r\n" % number for number in range(count))
        status, body = await raw(live, b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
        assert status == 400
        assert json.loads(body)["error"]["type"] == "invalid_request_error"
