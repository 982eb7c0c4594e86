"""Keys, host names, origins, the bind guard, connection caps and deadlines."""

from __future__ import annotations

import asyncio
import socket

import pytest

from colibri.server.connections import HttpServer
from colibri.server.security import Cors, Hosts, Keys, check_bind, is_loopback
from colibri.server.settings import Settings, SettingsError, load_settings

from .conftest import eventually


def settings(**flags):
    return load_settings(flags=flags)


@pytest.mark.parametrize(
    ("headers", "admitted"),
    [
        ({}, False),
        ({"Authorization": "Bearer one"}, True),
        ({"Authorization": "bearer two"}, True),
        ({"x-api-key": "two"}, True),
        ({"x-api-key": "tw"}, False),
        ({"Authorization": "one"}, False),
        ({"Authorization": "Basic one"}, False),
        ({"Authorization": "Bearer "}, False),
        ({"Authorization": "Bearer wrong", "x-api-key": "one"}, True),
        ({"x-api-key": "\udcff"}, False),
    ],
)
def test_keys(headers, admitted):
    assert Keys(["one", "two"]).admit(headers) is admitted


def test_no_key_admits_everybody_and_an_empty_key_nobody_sets():
    assert Keys().admit({})
    with pytest.raises(SettingsError):
        settings(api_key=("",))


def test_key_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n  two \n")
    keys = Keys.load(settings(api_key=("three",), api_key_file=str(file)))
    assert all(keys.admit({"x-api-key": key}) for key in ("one", "two", "three"))
    file.write_text("\n")
    with pytest.raises(SettingsError, match="holds no key"):
        Keys.load(settings(api_key_file=str(file)))
    with pytest.raises(SettingsError, match="cannot be read"):
        Keys.load(settings(api_key_file=str(tmp_path / "none")))


@pytest.mark.parametrize(
    ("header", "admitted"),
    [
        ("127.0.0.1:8000", True),
        ("LOCALHOST", True),
        ("[::1]:80", True),
        ("::1", True),
        ("", True),
        ("llm.example.com:443", True),
        ("10.0.0.5", True),
        ("evil.com", False),
        ("localhost.evil.com", False),
        ("*", False),
        ("[::2]", False),
    ],
)
def test_hosts(header, admitted):
    hosts = Hosts.load(settings(host="10.0.0.5", allowed_host=("LLM.example.com",)))
    assert hosts.admit(header) is admitted


def test_hosts_have_no_wildcard():
    assert not Hosts.load(Settings(allowed_host=("*",))).admit("evil.com")


def test_cors():
    assert Cors.load(settings()).headers("http://localhost:5173")["Vary"] == "Origin"
    assert Cors.load(settings()).headers("https://ui.example") == {}
    assert Cors.load(settings()).headers(None) == {}
    replaced = Cors.load(settings(cors_origin=("https://ui.example",)))
    assert replaced.headers("https://ui.example")
    assert not replaced.headers("http://localhost:5173")
    added = Cors.load(settings(cors_origin=("+https://ui.example",)))
    assert added.headers("https://ui.example")
    assert added.headers("http://localhost:5173")
    anyone = Cors.load(settings(cors_origin=("*",))).headers("https://any.example")
    assert anyone["Access-Control-Allow-Origin"] == "*"
    assert "Vary" not in anyone


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("example.com", False),
    ],
)
def test_bind_guard(host, loopback):
    assert is_loopback(host) is loopback
    open_to_all = settings(host=host)
    if loopback:
        check_bind(open_to_all, Keys())
    else:
        with pytest.raises(SettingsError, match="no key is set"):
            check_bind(open_to_all, Keys())
    check_bind(open_to_all, Keys(["k"]))
    check_bind(settings(host=host, allow_insecure_bind=True), Keys())


async def nothing(reader):
    """Whether the connection ends without a byte of answer."""
    try:
        return await asyncio.wait_for(reader.read(), 5) == b""
    except ConnectionError:
        return True


async def test_cross_origin_answers(serve):
    async with serve(api_key=("k",)) as live:
        origin = {"Origin": "http://localhost:5173"}
        async with live.http.options("/v1/models", headers=origin) as answer:
            assert (answer.status, await answer.read()) == (204, b"")
            assert answer.headers["Access-Control-Allow-Origin"] == origin["Origin"]
        async with live.http.options("/v1/models", headers={**origin, "Host": "evil.com"}) as answer:
            assert (answer.status, await answer.read()) == (403, b"")
        async with live.http.get("/v1/models", headers=origin) as answer:
            assert answer.status == 401
            assert answer.headers["Access-Control-Allow-Origin"] == origin["Origin"]
        async with live.http.get("/v1/models", headers={"Origin": "https://evil.com"}) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers


async def test_connections_beyond_the_cap_are_closed_at_once(serve):
    async with serve(max_connections=2) as live:
        kept = [await asyncio.open_connection("127.0.0.1", live.port) for _ in range(2)]
        await eventually(lambda: len(live.app.http.connections) == 2)
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        assert await nothing(reader)
        writer.close()
        kept[0][1].close()
        await eventually(lambda: len(live.app.http.connections) == 1)
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(b"GET /health HTTP/1.0\r\n\r\n")
        assert b"200" in await asyncio.wait_for(reader.read(), 5)
        for _, each in [*kept, (reader, writer)]:
            each.close()


class Fake(asyncio.Transport):
    """Just enough of a transport to ask for its peer."""

    def __init__(self, peer):
        super().__init__({"peername": peer})


async def test_the_cap_per_address_spares_loopback():
    server = HttpServer(
        lambda request: None,
        lambda request, error: None,
        max_connections=64,
        max_per_address=2,
        idle_timeout=30,
    )

    def connect(peer):
        if not server.has_room(peer):
            return False
        connection = server()
        transport = Fake(peer)
        connection.transport = transport
        server.connection_made(connection, transport)
        return True

    assert [connect(("10.0.0.1", 1)) for _ in range(3)] == [True, True, False]
    assert [connect(("10.0.0.2", 1)) for _ in range(3)] == [True, True, False]
    assert all(connect(("127.0.0.1", 1)) for _ in range(20))
    assert all(connect(("::1", 1, 0, 0)) for _ in range(20))
    assert connect(None)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: local",
        b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
    ],
)
async def test_requests_that_never_arrive_are_dropped_without_an_answer(serve, sent):
    async with serve(read_deadline=0.1) as live:
        reader, writer = await asyncio.open_connection("127.0.0.1", live.port)
        writer.write(sent)
        assert await nothing(reader)
        writer.close()


async def test_nagle_is_off(serve):
    async with serve() as live:
        _, writer = await asyncio.open_connection("127.0.0.1", live.port)
        await eventually(lambda: live.app.http.connections)
        (connection,) = live.app.http.connections
        raw = connection.transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()
