"""The part of the user's git configuration that runplan's own repositories take over."""

from pathlib import Path

import pytest

from runplan.adapters.git.config import (
    config_text,
    filter_allowed,
    hide_secrets,
    is_partial_clone,
    read_listing,
    resolve_includes,
)


def test_a_listing_is_read_with_values_of_several_lines_and_keys_without_one() -> None:
    listed = "user.name\nUma\0filter.x.clean\na\nb\0core.autocrlf\0"
    assert read_listing(listed) == (("user.name", "Uma"), ("filter.x.clean", "a\nb"), ("core.autocrlf", None))


@pytest.mark.parametrize(
    ("key", "taken"),
    [
        *((key, True) for key in ("user.email", "filter.lfs.clean", "core.autocrlf", "gpg.format", "submodule.a.url")),
        *((key, False) for key in ("commit.gpgsign", "core.worktree", "remote.origin.url", "include.path")),
        *((key, False) for key in ("credential.helper", "url.ssh://git@h/.insteadof", "http.https://h/.extraheader")),
    ],
)
def test_only_settings_that_convert_or_sign_are_copied(key: str, taken: bool) -> None:
    assert bool(filter_allowed([(key, "x")])) is taken


def test_no_token_of_an_address_is_copied() -> None:
    pairs = [("submodule.a.url", "https://u:p@ss@host/x.git"), ("lfs.https://token@host/.access", None)]
    assert filter_allowed(pairs) == (("submodule.a.url", "https://host/x.git"), ("lfs.https://host/.access", None))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('[remote "o"]\n\turl = https://token@host/x.git\n', '[remote "o"]\n\turl = https://host/x.git\n'),
        ('[remote "o"]\n\tpushurl = "http://u:p@host:80/x"\n', '[remote "o"]\n\tpushurl = "http://host:80/x"\n'),
        ('[remote "o"]\n\turl = ssh://git@host/x\n', '[remote "o"]\n\turl = ssh://git@host/x\n'),
        ('[core]\n\tbare = false\n[http "https://host/"]\n\textraheader = token\n', "[core]\n\tbare = false\n"),
        ('[HTTP "https://host/"] extraHeader = token\n[Branch "a"]\n\tmerge = b\n', '[Branch "a"]\n\tmerge = b\n'),
        ("[credential]\n\thelper = !echo token\n[gitlab]\n\ttoken = token\n", ""),
    ],
)
def test_a_file_is_shown_without_tokens(written: str, shown: str) -> None:
    assert hide_secrets(written) == shown


@pytest.mark.parametrize(
    ("pairs", "partial"),
    [
        *((pairs, True) for pairs in ([("remote.origin.promisor", "true")], [("remote.origin.promisor", None)])),
        ([("extensions.partialclone", "origin")], True),
        *((pairs, False) for pairs in ([("remote.origin.promisor", "false")], [("remote.origin.url", "x")])),
    ],
)
def test_a_partial_clone_is_known_by_its_configuration(pairs: list[tuple[str, str | None]], partial: bool) -> None:
    assert is_partial_clone(pairs) is partial


def test_a_file_is_written_as_git_reads_it() -> None:
    text = config_text([("user.name", 'a "b"'), ("filter.a.b.clean", "x\\y\n\tz"), ("core.bare", None)])
    assert text == ('[user]\n\tname = "a \\"b\\""\n[filter "a.b"]\n\tclean = "x\\\\y\\n\\tz"\n[core]\n\tbare\n')


def test_includes_are_resolved_without_files_that_a_landing_can_change() -> None:
    """With what such a file includes; a file that is not there yet is one of them."""
    lines = (
        ("global", "file:/home/u/.gitconfig", "include.path\n~/work.inc"),
        ("global", "file:/home/u/work.inc", "user.email\nu@example.org"),
        ("local", "file:.git/config", "core.bare\nfalse"),
        ("local", "file:.git/config", "include.path\n../team.inc"),
        ("local", "file:.git/../team.inc", "include.path\n/elsewhere/more.inc"),
        ("local", "file:/elsewhere/more.inc", "filter.x.clean\nevil"),
        ("local", "file:.git/../team.inc", "core.sshcommand\nevil"),
        ("local", "file:.git/config", "includeif.onbranch:a.b.path\n/repo/later.inc"),
        ("local", "file:.git/config", "remote.origin.url\nu"),
        ("command", "command line:", "core.bare"),
    )
    output = "".join(f"{field}\0" for line in lines for field in line)
    repo = Path("/repo")
    pairs, left = resolve_includes(
        output, cwd=repo, home=Path("/home/u"), is_changeable=lambda file: repo in file.parents
    )
    assert pairs == {
        "global": [("user.email", "u@example.org")],
        "local": [("core.bare", "false"), ("remote.origin.url", "u")],
        "command": [("core.bare", None)],
    }
    more = Path("/elsewhere/more.inc")
    assert left == {repo / "team.inc": ["core.sshcommand"], more: ["filter.x.clean"], repo / "later.inc": []}
