"""Who may use the pages: the host, the origin, the entry token, the cookie and the tokens of forms."""

import pytest
from msgspec.structs import replace

from runplan.interfaces.web.access import (
    ENTRY_S,
    SESSION_S,
    EntryToken,
    Site,
    is_loopback,
    is_own_origin,
    is_same,
    is_session,
    list_origins,
    make_form_token,
    make_session,
)

NOW = 1_800_000_000.0
SITE = Site(env={}, key=b"k" * 32, origins=list_origins("http", "127.0.0.1", 8642, "https://pages.example"), port=8642)


OWN_HOSTS = ("127.0.0.1:8642", "localhost:8642", "LOCALHOST:8642", "[::1]:8642", "pages.example")
OTHER_HOSTS = ("", "127.0.0.1", "evil.example", "evil.example:8642", "localhost.evil.example:8642")


def test_the_loopback_names_and_the_address_of_the_settings_are_hosts() -> None:
    assert all(host.lower() in SITE.hosts for host in OWN_HOSTS)
    assert not any(host in SITE.hosts for host in OTHER_HOSTS)


@pytest.mark.parametrize(
    ("origin", "fetch_site", "is_own"),
    [
        ("http://127.0.0.1:8642", None, True),
        ("https://pages.example", "same-origin", True),
        ("null", "same-origin", True),
        (None, "same-origin", True),
        ("http://127.0.0.1:9999", "same-site", False),
        ("https://127.0.0.1:8642", None, False),
        ("http://evil.example", "same-origin", False),
        ("null", "cross-site", False),
        ("null", None, False),
        (None, "same-site", False),
        (None, "none", False),
        (None, None, False),
    ],
)
def test_only_a_page_of_the_site_may_send_a_form(origin: str | None, fetch_site: str | None, is_own: bool) -> None:
    assert is_own_origin(SITE, origin, fetch_site) is is_own


@pytest.mark.parametrize(
    ("scheme", "address", "port", "url", "origins"),
    [
        ("http", "127.0.0.1", 80, "", {"http://127.0.0.1", "http://localhost", "http://[::1]"}),
        ("https", "10.0.0.7", 443, "", {"https://10.0.0.7"}),
        ("https", "fd00::7", 8642, "", {"https://[fd00::7]:8642"}),
        ("http", "127.0.0.1", 1, "http://Pages.Example:8080/x", {"http://pages.example:8080"}),
    ],
)
def test_origins_are_written_as_browsers_do(scheme: str, address: str, port: int, url: str, origins: set[str]) -> None:
    assert origins <= list_origins(scheme, address, port, url)


def test_every_address_of_the_machine_is_no_origin() -> None:
    assert list_origins("https", "0.0.0.0", 1, "") == list_origins("https", "::", 1, "")
    assert not any("0.0.0.0" in origin for origin in list_origins("https", "0.0.0.0", 1, ""))


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False)],
)
def test_only_the_loopback_needs_no_encryption(address: str, loopback: bool) -> None:
    assert is_loopback(address) is loopback


def test_the_entry_token_can_be_used_once_and_expires() -> None:
    entry = EntryToken("secret", NOW)
    assert [entry.use(token, NOW + 1) for token in ("", "other", "secret", "secret", "")] == [
        *(False, False, True, False, False)
    ]
    assert not EntryToken("secret", NOW).use("secret", NOW + ENTRY_S)


def test_a_cookie_expires_and_is_of_this_server() -> None:
    cookie = make_session(SITE, NOW)
    assert is_session(SITE, cookie, NOW + SESSION_S - 1)
    assert not is_session(SITE, cookie, NOW + SESSION_S)
    assert not is_session(replace(SITE, key=b"j" * 32), cookie, NOW)
    expires, _, signature = cookie.partition(".")
    forged = ("", ".", "x", "9999999999.", "9999999999.00", "\N{SNOWMAN}.\N{SNOWMAN}", "1.\udc80")
    for other in (*forged, f"{int(expires) + 1}.{signature}"):
        assert not is_session(SITE, other, NOW)


def test_a_form_belongs_to_its_cookie() -> None:
    mine, other = make_session(SITE, NOW), make_session(SITE, NOW + 1)
    assert is_same(make_form_token(SITE, mine), make_form_token(SITE, mine))
    assert not is_same(make_form_token(SITE, mine), make_form_token(SITE, other))
    assert not is_same(make_form_token(SITE, mine), mine.partition(".")[2])
    assert not is_same(make_form_token(SITE, mine), "")


def test_the_cookie_of_a_secure_site_is_sent_by_https_only() -> None:
    assert (SITE.cookie, replace(SITE, is_secure=True).cookie) == ("runplan-8642", "__Host-runplan-8642")
