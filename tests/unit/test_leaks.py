"""Secrets in what would land: found wherever they are new, named by place and kind, never shown."""

from __future__ import annotations

import pytest

from runplan.checks.secrets import secrets_in
from runplan.checks.tamper import Permit, Written, leaks

TOKEN = "ghp_" + 36 * "a"
OTHER = "ghp_" + 36 * "b"
PLAIN = Permit(text="Write the thing.")


def found(*files: Written, messages: tuple[str, ...] = (), permit: Permit = PLAIN) -> list[str]:
    return [str(one) for one in leaks(files, messages, permit)]


def wrote(after: str, before: str = "", path: str = "a.txt", *, added: bool = False) -> Written:
    return Written(path=path, before=before, after=after, added=added)


def test_added_text_is_looked_at() -> None:
    assert found(wrote(f"x\ntoken = {TOKEN}\n", "x\n")) == ["a.txt: seems to contain a GitHub token"]
    assert found(wrote("x\n", f"{TOKEN}\n")) == []


def test_a_secret_that_was_there_before_is_not_the_agents() -> None:
    """Also when its file was moved; another one beside it is."""
    assert found(wrote(f"{TOKEN}\nmore\n", f"{TOKEN}\n")) == []
    assert found(wrote("", TOKEN, "old.txt"), wrote(TOKEN, path="new.txt", added=True)) == []
    assert found(wrote(f"{TOKEN} {OTHER}", TOKEN)) == ["a.txt: seems to contain a GitHub token"]


def test_each_place_and_kind_is_told_once() -> None:
    twice = wrote(f"{TOKEN} {OTHER} AKIA{'A1' * 8}")
    assert found(twice, twice) == [
        "a.txt: seems to contain an AWS key",
        "a.txt: seems to contain a GitHub token",
    ]


def test_messages_and_new_names_are_looked_at_and_the_secret_is_not_told() -> None:
    told = found(
        wrote("x", path=f"{TOKEN}.txt", added=True),
        wrote("y", path=f"{OTHER}.txt"),
        messages=(f"Use {TOKEN}\n", "Fine\n"),
    )
    assert told == [
        "[redacted].txt: its name contains a GitHub token",
        "a commit message: seems to contain a GitHub token",
    ]


def test_a_file_the_phase_names_may_hold_one() -> None:
    permit = Permit(text="Add the example key to docs/example.md.")
    assert found(wrote(TOKEN, path="docs/example.md", added=True), permit=permit) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        (":_authToken=abcdef", "an npm token"),
        ("ASIA" + "A1" * 8, "an AWS key"),
        ("ghr_" + 36 * "a", "a GitHub token"),
        ("github_pat_" + 40 * "a", "a GitHub token"),
        ("xoxb-" + 20 * "1", "a Slack token"),
        ("sk-" + 32 * "a", "an API key"),
    ],
)
def test_each_form_has_a_name(text: str, kind: str) -> None:
    assert secrets_in(f"so: {text}\n") == {text: kind}
