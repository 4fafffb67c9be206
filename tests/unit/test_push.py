"""What a push answered is read for the one thing that matters: taken, declined, or go and look."""

from __future__ import annotations

import pytest

from runplan.git.remote import Declined, Taken, Uncertain, read_push, words

MAIN = "refs/heads/main"
OLD, NEW = "a" * 40, "b" * 40
FAILED = "error: failed to push some refs to 'ssh://example.org/p.git'\n"


def status(flag: str, summary: str, *, ref: str = MAIN) -> str:
    return f"To ssh://example.org/p.git\n{flag}\t{NEW}:{ref}\t{summary}\nDone\n"


def read(out: str, err: str = "", *, code: int = 1) -> Taken | Declined | Uncertain:
    return read_push(ref=MAIN, code=code, out=out, err=err)


@pytest.mark.parametrize(
    ("flag", "summary"),
    [(" ", "aaaaaaa..bbbbbbb"), ("=", "[up to date]"), ("*", "[new branch]")],
    ids=["moved", "was there", "made"],
)
def test_what_the_remote_has_is_taken(flag: str, summary: str) -> None:
    assert read(status(flag, summary), code=0) == Taken()


@pytest.mark.parametrize(
    "out",
    ["", "Done\n", status("!", "[rejected] (fetch first)"), status(" ", "a..b", ref="refs/heads/other")],
)
def test_a_code_of_zero_alone_is_no_yes(out: str) -> None:
    assert isinstance(read(out, code=0), Uncertain)


def test_a_yes_of_a_push_that_failed_is_no_yes() -> None:
    assert isinstance(read(status(" ", "aaaaaaa..bbbbbbb"), code=1), Uncertain)


@pytest.mark.parametrize(
    "reason",
    [
        "pre-receive hook declined",
        "hook declined",
        "update hook declined",
        "protected branch hook declined",
        "push declined due to repository rule violations",
        "branch is currently checked out",
        "deny updating a hidden ref",
        "shallow update not allowed",
        "permission denied",
    ],
)
def test_an_owner_who_says_no_declines(reason: str) -> None:
    assert read(status("!", f"[remote rejected] ({reason})"), FAILED) == Declined(said=reason)


@pytest.mark.parametrize(
    "summary",
    [
        "[rejected] (fetch first)",
        "[rejected] (non-fast-forward)",
        "[rejected] (stale info)",
        "[rejected] (remote ref updated since checkout)",
        f"[remote rejected] (cannot lock ref 'refs/heads/main': is at {OLD} but expected {NEW})",
        "[remote rejected] (failed to update ref)",
        "[remote rejected] (incorrect old value provided)",
        "[remote rejected] (reference already exists)",
        "[remote rejected] (unpacker error)",
        "[remote rejected] (missing necessary objects)",
        "[remote rejected] (Internal Server Error)",
        "[remote failure] (remote failed to report status)",
    ],
)
def test_a_lost_race_and_a_server_that_is_unwell_decline_nothing(summary: str) -> None:
    answer = read(status("!", summary), FAILED)
    assert isinstance(answer, Uncertain)
    assert answer.said == summary.partition(" (")[2].removesuffix(")")


@pytest.mark.parametrize(
    "err",
    [
        "fatal: the remote end hung up unexpectedly",
        "ssh: connect to host example.org port 22: Connection refused",
        "git@example.org: Permission denied (publickey).\nfatal: Could not read from remote repository.",
        "fatal: unable to access 'https://example.org/p.git/': The requested URL returned error: 500",
        "remote: fatal: write error: No space left on device\nerror: remote unpack failed: abnormal exit",
        "remote: fatal: cannot create directory: Read-only file system",
    ],
)
def test_a_connection_that_breaks_says_nothing_certain(err: str) -> None:
    assert isinstance(read("", err, code=128), Uncertain)


@pytest.mark.parametrize(
    "err",
    [
        "remote: Permission to o/p.git denied to uma.\n"
        "fatal: unable to access 'https://example.org/o/p.git/': The requested URL returned error: 403",
        "ERROR: Permission to o/p.git denied to uma.\nfatal: Could not read from remote repository.",
        "ERROR: The key you are authenticating with has been marked as read only.",
        "remote: You are not allowed to push code to this project.",
        "remote: This repository was archived so it is read-only.",
    ],
)
def test_an_account_that_may_not_write_is_declined(err: str) -> None:
    assert isinstance(read("", err, code=128), Declined)


def test_a_refusal_keeps_the_servers_own_words() -> None:
    err = (
        "remote: error: GH006: Protected branch update failed for refs/heads/main.        \n"
        "remote: \n"
        "remote: - Changes must be made through a pull request.        \n" + FAILED
    )
    assert read(status("!", "[remote rejected] (protected branch hook declined)"), err) == Declined(
        said="GH006: Protected branch update failed for refs/heads/main. / "
        "- Changes must be made through a pull request. (protected branch hook declined)"
    )


def test_a_server_that_refuses_without_a_word_is_told_as_that() -> None:
    assert read(status("!", "[remote rejected]"), FAILED) == Declined(said="the server gave no reason")


def test_a_push_that_ends_without_a_word_is_told_by_its_code() -> None:
    assert read("", "", code=-9) == Uncertain(said="git push ended with code -9")


def test_addresses_that_disagree_are_settled_by_a_look() -> None:
    declined = status("!", "[remote rejected] (hook declined)")
    assert isinstance(read(status(" ", "aaaaaaa..bbbbbbb") + declined), Uncertain)
    assert isinstance(read(declined + declined), Declined)
    assert isinstance(read(declined + status("!", "[rejected] (fetch first)")), Uncertain)


def test_words_for_people_have_no_progress_no_colours_and_an_end() -> None:
    err = (
        "Enumerating objects: 3, done.\nTotal 2 (delta 0), reused 0 (delta 0)\n"
        "remote: \x1b[31mNo.\x1b[0m\r\nremote: ==========\nremote: No.\nhint: try again\n" + FAILED
    )
    assert words(err) == "No."
    long = words("\n".join(f"remote: reason {number}" for number in range(500)))
    assert len(long) <= 400
    assert long.endswith(" ...")
