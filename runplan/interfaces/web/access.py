"""Decides who may use the pages: by the host, the origin, the entry token, the cookie and the token of a form."""

import hashlib
import hmac
import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec import Struct

ENTRY_S = 600.0  #: how long the printed address can be used
SESSION_S = 12 * 3600  #: how long a browser stays signed in
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DEFAULT_PORTS = {"http": 80, "https": 443}


class Site(Struct, frozen=True, kw_only=True):
    env: Mapping[str, str]  #: of this process; commands run with it
    key: bytes  #: signs cookies and forms; never leaves the memory of this process
    origins: frozenset[str]  #: the addresses by which browsers reach the pages: scheme, host and port
    port: int
    is_secure: bool = False  #: browsers reach it by https
    is_read_only: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers send a cookie to every port of a host, so it names the port."""
        return f"{'__Host-' if self.is_secure else ''}runplan-{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        return frozenset(urlsplit(origin).netloc for origin in self.origins)


def is_loopback(address: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_loopback
    return address == "localhost"


def is_wildcard(address: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(address).is_unspecified
    return address == ""


def origin_of(scheme: str, host: str, port: int | None) -> str:
    """The origin as browsers write it: without the default port of the scheme."""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()
    return f"{scheme}://{shown}" + ("" if port in (None, DEFAULT_PORTS.get(scheme)) else f":{port}")


def list_origins(scheme: str, address: str, port: int, url: str) -> frozenset[str]:
    """The origins of pages on this address, on the loopback names, and on the address that a user has set."""
    origins = {origin_of(scheme, host, port) for host in (*LOOPBACK, *([] if is_wildcard(address) else [address]))}
    if not url:
        return frozenset(origins)
    parts = urlsplit(url)
    return frozenset({*origins, origin_of(parts.scheme, parts.hostname or "", parts.port)})


def is_own_origin(site: Site, origin: str | None, fetch_site: str | None) -> bool:
    """Whether a page of this site has sent a form. Browsers send a header; without a referrer the origin is `null`."""
    return origin in site.origins if origin not in (None, "null") else fetch_site == "same-origin"


class EntryToken:
    """The token in the printed address: it can be used once, and for ten minutes."""

    def __init__(self, token: str, now: float) -> None:
        self._token = token
        self._until = now + ENTRY_S

    def use(self, token: str, now: float) -> bool:
        """Whether it is the token; after that it is none."""
        is_valid = bool(self._token) and now < self._until and is_same(self._token, token)
        if is_valid:
            self._token = ""
        return is_valid


def make_session(site: Site, now: float) -> str:
    expires = str(int(now) + SESSION_S)
    return f"{expires}.{_sign(site, 'session', expires)}"


def is_session(site: Site, cookie: str, now: float) -> bool:
    expires, _, signature = cookie.partition(".")
    return is_same(_sign(site, "session", expires), signature) and now < int(expires)


def make_form_token(site: Site, cookie: str) -> str:
    return _sign(site, "form", cookie)


def _sign(site: Site, purpose: str, text: str) -> str:
    return hmac.new(site.key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def is_same(expected: str, actual: str) -> bool:
    """Compare in a time that does not depend on the texts."""
    return hmac.compare_digest(expected.encode(), actual.encode("utf-8", "replace"))
