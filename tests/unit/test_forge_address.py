"""Remote URLs and tokens."""

from pathlib import Path

import pytest

from runplan.adapters.forge.access import parse_remote
from runplan.adapters.forge.github_access import find_token, open_forge
from runplan.adapters.forge.protocol import Address, open_conflicts
from runplan.adapters.git.command import Git

OF_GITHUB = (
    *("https://github.com/o/r", "https://github.com/o/r.git/", "https://x-access-token:T@github.com/o/r.git"),
    *("git@github.com:o/r.git", "org-123@github.com:o/r.git", "ssh://git@github.com:22/o/r.git"),
    *("ssh://git@ssh.github.com:443/o/r.git", "git@work:o/r.git"),
)
REMOTES = {
    **dict.fromkeys(OF_GITHUB, ("github.com", "o", "r", "https://api.github.com")),
    "https://github.com/o/r.js.git": ("github.com", "o", "r.js", "https://api.github.com"),
    "https://ghe.corp/o/r": ("ghe.corp", "o", "r", "https://ghe.corp/api/v3"),
    "git@GHE.corp:o/r": ("ghe.corp", "o", "r", "https://ghe.corp/api/v3"),
    "https://acme.ghe.com/o/r": ("acme.ghe.com", "o", "r", "https://api.acme.ghe.com"),
}


@pytest.mark.parametrize("url", REMOTES)
def test_a_remote_names_host_owner_and_repository(url: str, tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\n[ "$*" = "-G work" ] && echo "hostname github.com"\n')
    ssh.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GH_TOKEN": "t", "GH_ENTERPRISE_TOKEN": "t"}
    found = parse_remote(url, env)
    assert found is not None
    api = open_forge(Git(Path(), env), found, env)._client.requester.base_url
    assert (found.host, found.owner, found.repository, api) == REMOTES[url]


@pytest.mark.parametrize(
    "url", ["/srv/r.git", "file:///srv/o/r.git", "../r.git", "C:\\r.git", "https://github.com/o", ""]
)
def test_a_path_is_no_remote_of_a_forge(url: str) -> None:
    assert parse_remote(url, {}) is None


CLOUD = Address(host="github.com", owner="o", repository="r")
SERVER = Address(host="ghe.corp", owner="o", repository="r", password="from-url")
APP = {"GITHUB_APP_ID": "7", "GITHUB_APP_PRIVATE_KEY_FILE": "/k.pem"}


@pytest.mark.parametrize(
    ("address", "env", "answers", "expected"),
    [
        (CLOUD, {"GH_TOKEN": "a", "GITHUB_TOKEN": "b"}, {}, ("a", "$GH_TOKEN")),
        (CLOUD, {"GITHUB_TOKEN": "b", "GH_ENTERPRISE_TOKEN": "c"}, {}, ("b", "$GITHUB_TOKEN")),
        (SERVER, {"GH_TOKEN": "a", "GITHUB_ENTERPRISE_TOKEN": "d"}, {}, ("d", "$GITHUB_ENTERPRISE_TOKEN")),
        (SERVER, {"GITHUB_TOKEN": "b", "GITHUB_SERVER_URL": "https://ghe.corp"}, {}, ("b", "$GITHUB_TOKEN")),
        (CLOUD, {"GITHUB_TOKEN": "b", **APP}, {}, ("b", "$GITHUB_TOKEN")),
        (SERVER, APP, {"gh": "e\n"}, ("/k.pem", "the GitHub App 7")),
        (CLOUD, {}, {"gh": "e\n", "git": "password=f\n"}, ("e", "gh auth token")),
        (SERVER, {"GH_TOKEN": "a"}, {"git": "password=f\n"}, ("from-url", "the remote's URL")),
        (CLOUD, {}, {"git": "username=u\npassword=f\n"}, ("f", "git credential")),
    ],
)
def test_tokens_are_found_in_the_order_of_gh(
    address: Address, env: dict[str, str], answers: dict[str, str], expected: tuple[str, str]
) -> None:
    token = find_token(address, env, lambda argv, _: answers.get(argv[0], ""))
    assert token is not None
    assert (token.value, token.source) == expected


def test_without_any_source_there_is_no_token() -> None:
    assert find_token(CLOUD, {}, lambda *_: "") is None


@pytest.mark.parametrize(
    ("files", "prefixes", "own", "expected"),
    [
        ({}, ("a",), 0, []),
        ({200: ("a/x/f",), 175: ("a/x/g",)}, ("a/x/",), 175, [200]),
        ({200: ("a/x/f",), 175: ("a/x/g",)}, ("a/x/",), 0, [175, 200]),
        ({200: ("a/x/f",)}, ("a/x-other/",), 0, []),
        ({200: ("z", "a/x/f")}, ("a/x/f",), 0, [200]),
        ({200: ("a/x/f.py",)}, ("a/**/*.py",), 0, [200]),
    ],
    ids=["none", "O8 own excluded", "O10 own listed", "O11 no match", "not only the first file", "pattern"],
)
def test_open_pull_requests_that_change_the_same_paths(
    files: dict[int, tuple[str, ...]], prefixes: tuple[str, ...], own: int, expected: list[int]
) -> None:
    assert list(open_conflicts(files, prefixes, ours=(own,))) == expected
