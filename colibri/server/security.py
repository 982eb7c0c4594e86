"""Who may talk to the server: keys, host names, browser origins and the address to listen on."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from attrs import frozen

from colibri.server.settings import Settings, SettingsError

__all__ = ["Cors", "Hosts", "Keys", "check_bind", "is_loopback"]

_LOCAL_ORIGINS = (
    "http://127.0.0.1:8000",
    "http://localhost:8000",
    "http://127.0.0.1:5173",
    "http://localhost:5173",
    "http://tauri.localhost",
    "tauri://localhost",
)
_CORS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, x-api-key, anthropic-version, "
    "X-TypeSafe-SDK, X-TypeSafe-Runtime, X-TypeSafe-Retry-Count",
    "Access-Control-Expose-Headers": "x-request-id, x-typesafe-request-id, x-colibri-queue-wait-ms, "
    "x-colibri-elapsed-ms, x-colibri-engine-ms, Retry-After",
    "Access-Control-Max-Age": "600",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address; names other than localhost count as public."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_bind(settings: Settings, keys: Keys) -> None:
    """Refuse to listen beyond loopback without a key unless the settings allow it.

    Raises:
        SettingsError: anybody who reaches the machine could use the model.
    """
    if not is_loopback(settings.host) and not keys.required and not settings.allow_insecure_bind:
        raise SettingsError(
            f"`host` {settings.host} can be reached from other machines and no key is set; set"
            " COLI_API_KEY or --api-key-file, or allow it with --allow-insecure-bind"
        )


class Keys:
    """The keys that clients may send; none at all lets everybody in.

    Keys are kept and compared as digests, all of them every time, so that neither content nor length
    shows in the time it takes.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._digests = tuple({_digest(key) for key in keys})

    @classmethod
    def load(cls, settings: Settings) -> Keys:
        """The keys of the settings and of their key file, one a line.

        Raises:
            SettingsError: the file cannot be read or holds no key.
        """
        keys = list(settings.api_key)
        if settings.api_key_file is not None:
            try:
                lines = Path(settings.api_key_file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(
                    f"`api_key_file` {settings.api_key_file} cannot be read ({error}); name a text file"
                ) from None
            listed = [line.strip() for line in lines if line.strip()]
            if not listed:
                raise SettingsError(f"`api_key_file` {settings.api_key_file} holds no key; write one a line")
            keys += listed
        return cls(keys)

    @property
    def required(self) -> bool:
        """Whether clients must send a key."""
        return bool(self._digests)

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Whether `Authorization: Bearer` or `x-api-key` carries one of the keys, or none is needed."""
        if not self._digests:
            return True
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        bearer = _digest(token.strip() if scheme.lower() == "bearer" else "")
        sent = (bearer, _digest(headers.get("x-api-key", "")))
        matches = [hmac.compare_digest(one, known) for one in sent for known in self._digests]
        return any(matches)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


@frozen
class Hosts:
    """Host names that a request may be addressed to: the guard against DNS rebinding, without wildcards."""

    names: frozenset[str]

    @classmethod
    def load(cls, settings: Settings) -> Hosts:
        """Loopback names, the address listened on and the allowed hosts."""
        given = (settings.host, *settings.allowed_host)
        return cls(frozenset({"127.0.0.1", "localhost", "::1", "", *(_host_name(name) for name in given)}))

    def admit(self, header: str) -> bool:
        """Whether a Host header names one of them; its port does not matter."""
        return _host_name(header) in self.names


def _host_name(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text if text.count(":") > 1 else text.partition(":")[0]


@frozen
class Cors:
    """Browser origins that may read the answers."""

    origins: frozenset[str]

    @classmethod
    def load(cls, settings: Settings) -> Cors:
        """The local origins; origins in the settings replace them, those with a `+` add to them."""
        plain = [origin for origin in settings.cors_origin if not origin.startswith("+")]
        added = [origin[1:] for origin in settings.cors_origin if origin.startswith("+")]
        return cls(frozenset([*(plain or _LOCAL_ORIGINS), *added]))

    def headers(self, origin: str | None) -> dict[str, str]:
        """What an answer to a page of this origin carries; nothing for others."""
        if not origin:
            return {}
        if "*" in self.origins:
            return {"Access-Control-Allow-Origin": "*", **_CORS}
        if origin not in self.origins:
            return {}
        return {"Access-Control-Allow-Origin": origin, **_CORS, "Vary": "Origin"}
