"""The place of a repository in a fleet: one name for all spellings of its remote, and no password in a message."""

import subprocess
import sys

import pytest

from runplan.adapters.store.location import FleetLocation, hide_password, normalize_url, strip_secrets
from runplan.adapters.store.protocol import open_store
from runplan.domain.errors import RefusedEarly, UsageError


@pytest.mark.parametrize(
    "url",
    [
        *("https://github.com/acme/app", "https://github.com/acme/app.git", "https://github.com/acme/app/"),
        *("https://uma:t0ken@GitHub.com:443/acme/app.git", "http://github.com/acme/app"),
        *("git://github.com/acme/app.git", "git@github.com:acme/app.git", "github.com:acme/app"),
        "github.com:/acme/app.git",
        *("ssh://git@github.com/acme/app.git", "ssh://git@github.com:22/acme//app"),
    ],
)
def test_all_spellings_of_a_remote_are_one_repository(url: str) -> None:
    assert normalize_url(url) == "github.com/acme/app"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("/srv/git/app.git", "/srv/git/app"),
        ("/srv/git/app/.git", "/srv/git/app"),
        ("file:///srv/git/my app.git", "/srv/git/my app"),
        ("/srv/x/../git/app", "/srv/git/app"),
        ("ssh://git@example.com:2222/~uma/app", "example.com:2222/~uma/app"),
        ("[::1]:acme/app", "::1/acme/app"),
        ("https://example.com/Acme/App", "example.com/Acme/App"),
    ],
)
def test_other_repositories_have_other_names(url: str, name: str) -> None:
    assert normalize_url(url) == name


@pytest.mark.parametrize("url", ["https://", "https://u:s3cret@example.com", "https://u:s3cret@example.com:x/a/b"])
def test_an_address_of_no_repository_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="is not the URL of a repository") as error:
        normalize_url(url)
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://uma:s3cret@db:5432/fleet?password=s3cret", "postgresql://uma@db:5432/fleet"),
        ("postgresql://uma:s3/c@ret@db/fleet", "postgresql://uma@db/fleet"),
        ("host=db user=uma password=s3cret dbname=fleet", "host=db user=uma dbname=fleet"),
        ("host=db sslpassword = 's3 \\' cret'  user=uma", "host=db user=uma"),
        ("host=db password=hun s3cret", "host=db"),
        ("host=db password='hun host=s3cret'", "host=db"),
        ("postgresql://uma:s3?cret@db/fleet", "postgresql://..."),
        ("postgresql://uma@db/fleet?password=c@s3", "postgresql://..."),
        ("https://example.com/acme/app", "https://example.com/acme/app"),
    ],
)
def test_an_address_is_shown_without_its_password(dsn: str, shown: str) -> None:
    assert hide_password(dsn) == shown
    assert "s3" not in repr(FleetLocation(dsn, "x"))


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://t0ken@github.com/acme/app.git", "https://github.com/acme/app.git"),
        ("https://uma:t0ken@example.com:8443/app?t0ken", "https://example.com:8443/app"),
        ("ssh://git:t0ken@example.com:2222/app", "ssh://git@example.com:2222/app"),
        ("git@github.com:acme/app.git", "git@github.com:acme/app.git"),
        ("/srv/a=b?.git", "/srv/a=b?.git"),
    ],
)
def test_a_remote_is_kept_without_tokens(url: str, kept: str) -> None:
    assert strip_secrets(url) == kept


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "runplan.adapters.store.postgres", raising=False)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(RefusedEarly, match=r"needs the module psycopg; install it: pip install 'runplan\[fleet\]'$"):
        open_store(FleetLocation("postgresql://db/fleet", "github.com/acme/app"))


def test_local_verbs_load_no_library_of_a_fleet() -> None:
    verbs = ("control", "show.status", "show.watch")
    names = [*(f"runplan.interfaces.cli.{verb}" for verb in verbs), "runplan.hosts.daemon.process"]
    loaded = f"import sys, {', '.join(names)}; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.split()
    assert {"psycopg", "procrastinate", "runplan.adapters.store.postgres"}.isdisjoint(modules)
