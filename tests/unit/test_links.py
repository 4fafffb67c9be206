"""Links in notifications: signed, bound to a change, expiring, of one use."""

import json
import resource
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from msgspec.structs import replace

from runplan.adapters.notify.links import Link, LinkMaker, Unusable, load_key, read_link, sign_link
from runplan.domain.errors import Unreachable

KEY = b"k" * 32
LINK = Link(repo="0" * 16, plan="plans/ü \udcff.md", phase="2", run="r1", tree="a" * 40, expires=1000, nonce="1a2b")


def test_a_signed_link_is_read_as_it_was_until_it_expires() -> None:
    text = sign_link(KEY, LINK)
    assert read_link(KEY, text, 999.9) == LINK
    assert read_link(KEY, text, 1000.0) == Unusable.EXPIRED
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def changed(text: str, **values: object) -> str:
    """The token with other content and the same signature."""
    content, _, signature = text.partition(".")
    fields = dict(zip(Link.__struct_fields__, json.loads(urlsafe_b64decode(content + "==")), strict=True))
    new = urlsafe_b64encode(json.dumps(list((fields | values).values())).encode()).decode().rstrip("=")
    return f"{new}.{signature}"


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "x", "x.y", "ü.ü", "\udcff.\udcff", sign_link(KEY, LINK)[:-1], sign_link(KEY, LINK) + "A"),
        *(sign_link(b"o" * 32, LINK), sign_link(KEY, LINK) + "=", f".{sign_link(KEY, LINK).partition('.')[2]}"),
        *(changed(sign_link(KEY, LINK), **{name: "b"}) for name in ("repo", "plan", "phase", "run", "tree", "nonce")),
        changed(sign_link(KEY, LINK), expires=10**10),
    ],
)
def test_a_changed_link_or_one_of_another_key_is_forged(text: str) -> None:
    assert read_link(KEY, text, 0.0) == Unusable.FORGED


def test_the_key_is_made_once_for_this_user_only(tmp_path: Path) -> None:
    key = load_key(tmp_path / "state/keys")
    (file,) = (tmp_path / "state/keys").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert load_key(tmp_path / "state/keys") == key
    assert load_key(tmp_path / "other") != key
    file.write_bytes(b"")
    with pytest.raises(Unreachable, match="is damaged; remove it"):
        load_key(tmp_path / "state/keys")


def test_a_full_disk_leaves_no_part_of_a_key(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(Unreachable, match="cannot be used: File too large"):
            load_key(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [*tmp_path.iterdir()] == []
    assert load_key(tmp_path)


def test_links_lead_to_the_answer_and_to_the_page_of_the_plan(tmp_path: Path) -> None:
    maker = LinkMaker("https://pc.example/runplan/", tmp_path)
    page = urlsplit(maker.link_to_page("0a", "plans/ü \udcff.md"))
    assert page.path == "/runplan/plan"
    assert parse_qs(page.query, errors="surrogateescape") == {"repo": ["0a"], "plan": ["plans/ü \udcff.md"]}
    assert maker.link_to_page() == "https://pc.example/runplan/"
    base, _, token = maker.link_to_answer("0a", "plans/x.md", "2", "r1", "aa").rpartition("/")
    assert base == "https://pc.example/runplan/a"
    link = read_link(load_key(tmp_path), token, 0.0)
    assert isinstance(link, Link)
    assert replace(link, expires=0, nonce="") == Link(
        repo="0a", plan="plans/x.md", phase="2", run="r1", tree="aa", expires=0, nonce=""
    )
    nothing = LinkMaker("", tmp_path / "none")
    assert nothing.link_to_page("0a", "x") == nothing.link_to_answer("0a", "x", "2", "r1", "aa") == ""
    assert not (tmp_path / "none").exists(), "no key without an address"
