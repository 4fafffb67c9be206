"""A file that git cannot store is distinguished from an error of git."""

from __future__ import annotations

import pytest

from runplan.git.lane import unstored

UNABLE = "fatal: Unable to process path {}"


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("fatal: failed to encode 'a b.txt' from UTF-16LE to UTF-8", "a b.txt"),
        ("hint: no mark\nfatal: BOM is required in 'a.txt' if encoded as UTF-16", "a.txt"),
        ("fatal: encoding 'a.txt' from SHIFT-JIS to UTF-8 and back is not the same", "a.txt"),
        ("fatal: true/false are no valid working-tree-encodings", "a file"),
        ("fatal: CRLF would be replaced by LF in mix.txt", "mix.txt"),
        ("fatal: LF would be replaced by CRLF in mix.txt", "mix.txt"),
        ("fatal: ../pwn: '../pwn' is outside repository at '/r'", "../pwn"),
        (f"error: p: unsupported file type\n{UNABLE.format('p')}", "p"),
        (f'error: open("d/x"): Permission denied\nerror: unable to index file\n{UNABLE.format("d/x")}', "d/x"),
    ],
    ids=[
        "encoding",
        "no mark",
        "there and back",
        "no name of an encoding",
        "crlf",
        "lf",
        "outside",
        "a pipe",
        "unreadable",
    ],
)
def test_a_file_that_git_cannot_store_is_named(said: str, path: str) -> None:
    found = unstored(said)
    assert found is not None
    assert found.path == path
    assert "\n" not in found.why
    assert "fatal" not in found.why
    assert "hint" not in found.why
    assert not found.filtered


def test_a_failed_required_filter_is_distinguished() -> None:
    found = unstored("error: external filter 'lfs' failed 1\nfatal: a b.bin: clean filter 'lfs' failed")
    assert found is not None
    assert (found.path, found.filtered) == ("a b.bin", True)


@pytest.mark.parametrize(
    "said",
    [
        "fatal: Unable to create '/r/.git/worktrees/x/index.lock': File exists.",
        f"error: unable to write file objects/ab/cd: No space left on device\n{UNABLE.format('a')}",
        "error: insufficient permission for adding an object to repository database .git/objects\n"
        f"error: a: failed to insert into database\n{UNABLE.format('a')}",
        f"error: unable to write loose object file: Read-only file system\n{UNABLE.format('a')}",
        "",
    ],
    ids=["a lock", "a full disk", "no right", "read-only", "nothing"],
)
def test_an_error_of_git_itself_names_no_file(said: str) -> None:
    assert unstored(said) is None
