"""The answer to a push is read as accepted, declined or unknown."""

import pytest

from runplan.adapters.git.remote import PushDeclined, Taken, Uncertain, read_push, words

MAIN = "refs/heads/main"
OLD, NEW = "a" * 40, "b" * 40
FAILED = "error: failed to push some refs to 'ssh://example.org/p.git'\n"


def status(flag: str, summary: str, *, ref: str = MAIN) -> str:
    return f"To ssh://example.org/p.git\n{flag}\t{NEW}:{ref}\t{summary}\nDone\n"


def read(out: str, err: str = "", *, code: int = 1) -> Taken | PushDeclined | Uncertain:
    return read_push(ref=MAIN, code=code, out=out, err=err)


@pytest.mark.parametrize(
    ("flag", "summary"),
    [(" ", "aaaaaaa..bbbbbbb"), ("=", "[up to date]"), ("*", "[new branch]")],
    ids=["moved", "was there", "made"],
)
def test_an_accepted_push_is_taken(flag: str, summary: str) -> None:
    assert read(status(flag, summary), code=0) == Taken()


@pytest.mark.parametrize(
    "out", ["", "Done\n", status("!", "[rejected] (fetch first)"), status(" ", "a..b", ref="refs/heads/other")]
)
def test_exit_code_0_alone_does_not_mean_accepted(out: str) -> None:
    assert isinstance(read(out, code=0), Uncertain)


def test_an_accepted_ref_of_a_failed_push_does_not_count() -> None:
    assert isinstance(read(status(" ", "aaaaaaa..bbbbbbb"), code=1), Uncertain)


@pytest.mark.parametrize(
    "reason",
    [
        *("pre-receive hook declined", "protected branch hook declined"),
        *("push declined due to repository rule violations", "branch is currently checked out", "permission denied"),
    ],
)
def test_a_rejection_by_the_server_is_declined(reason: str) -> None:
    assert read(status("!", f"[remote rejected] ({reason})"), FAILED) == PushDeclined(said=reason)


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
def test_a_lost_race_and_a_server_error_are_not_declined(summary: str) -> None:
    answer = read(status("!", summary), FAILED)
    assert isinstance(answer, Uncertain)
    assert answer.said == summary.partition(" (")[2].removesuffix(")")


@pytest.mark.parametrize(
    "err",
    [
        "fatal: the remote end hung up unexpectedly",
        "git@example.org: Permission denied (publickey).\nfatal: Could not read from remote repository.",
        "remote: fatal: write error: No space left on device\nerror: remote unpack failed: abnormal exit",
        "remote: fatal: cannot create directory: Read-only file system",
    ],
)
def test_a_broken_connection_is_unclear(err: str) -> None:
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
    assert isinstance(read("", err, code=128), PushDeclined)


def test_a_refusal_keeps_the_servers_own_words() -> None:
    err = (
        "remote: error: GH006: Protected branch update failed for refs/heads/main.        \n"
        "remote: \n"
        "remote: - Changes must be made through a pull request.        \n" + FAILED
    )
    assert read(status("!", "[remote rejected] (protected branch hook declined)"), err) == PushDeclined(
        said="GH006: Protected branch update failed for refs/heads/main. / "
        "- Changes must be made through a pull request. (protected branch hook declined)"
    )


def test_a_refusal_without_a_message_says_so() -> None:
    assert read(status("!", "[remote rejected]"), FAILED) == PushDeclined(said="the server gave no reason")


def test_a_push_without_output_is_described_by_its_exit_code() -> None:
    assert read("", "", code=-9) == Uncertain(said="git push ended with code -9")


def test_a_push_message_has_no_decoration_no_colours_and_a_bounded_length() -> None:
    err = "remote: \x1b[31mNo.\x1b[0m\r\nremote: ==========\nremote: No.\nhint: try again\n" + FAILED
    assert words(err) == "No."
    long = words("\n".join(f"remote: reason {number}" for number in range(500)))
    assert len(long) <= 400
    assert long.endswith(" […]")
