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


LOST_RACES = [
    *("[rejected] (fetch first)", "[rejected] (non-fast-forward)", "[rejected] (stale info)"),
    *("[rejected] (remote ref updated since checkout)", "[remote rejected] (failed to update ref)"),
    f"[remote rejected] (cannot lock ref 'refs/heads/main': is at {OLD} but expected {NEW})",
    *("[remote rejected] (incorrect old value provided)", "[remote rejected] (reference already exists)"),
    *("[remote rejected] (unpacker error)", "[remote rejected] (missing necessary objects)"),
    *("[remote rejected] (Internal Server Error)", "[remote failure] (remote failed to report status)"),
]
DECLINED = [
    *("pre-receive hook declined", "protected branch hook declined", "permission denied"),
    *("push declined due to repository rule violations", "branch is currently checked out"),
]
BROKEN = [
    "fatal: the remote end hung up unexpectedly",
    "git@example.org: Permission denied (publickey).\nfatal: Could not read from remote repository.",
    "remote: fatal: write error: No space left on device\nerror: remote unpack failed: abnormal exit",
    "remote: fatal: cannot create directory: Read-only file system",
]
MAY_NOT_WRITE = [
    "remote: Permission to o/p.git denied to uma.\nfatal: unable to access 'https://example.org/o/p.git/': error: 403",
    "ERROR: Permission to o/p.git denied to uma.\nfatal: Could not read from remote repository.",
    "ERROR: The key you are authenticating with has been marked as read only.",
    "remote: You are not allowed to push code to this project.",
    "remote: This repository was archived so it is read-only.",
]


@pytest.mark.parametrize(
    ("out", "err", "code", "answer"),
    [
        *((status(flag, "a..b"), "", 0, Taken) for flag in (" ", "=", "*")),  # moved, was there, made
        *((out, "", 0, Uncertain) for out in ("", "Done\n", status("!", "[rejected] (fetch first)"))),
        (status(" ", "a..b", ref="refs/heads/other"), "", 0, Uncertain),
        (status(" ", "a..b"), "", 1, Uncertain),  # the push failed
        *((status("!", f"[remote rejected] ({reason})"), FAILED, 1, PushDeclined) for reason in DECLINED),
        *((status("!", summary), FAILED, 1, Uncertain) for summary in LOST_RACES),
        *(("", err, 128, Uncertain) for err in BROKEN),
        *(("", err, 128, PushDeclined) for err in MAY_NOT_WRITE),
    ],
)
def test_a_push_is_accepted_declined_or_unclear(out: str, err: str, code: int, answer: type) -> None:
    answered = read(out, err, code=code)
    assert isinstance(answered, answer)
    if "(" in out and not isinstance(answered, Taken) and code:
        assert answered.said == out.partition(" (")[2].partition(")\n")[0]


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
