"""Commits are read, also those with missing lines."""

import pytest

from runplan.domain.gitfacts import Commit, Identity

ID = "1" * 40


def test_a_signed_merge_is_read_whole() -> None:
    who = b"A B <a@b> 1700000000 +0130"
    head = [b"tree " + ID.encode(), *[b"parent " + ID.encode()] * 2, b"author " + who, b"committer " + who]
    content = b"\n".join([*head, b"gpgsig -----BEGIN", b" author me"]) + b"\n\nm\n\nmore\n"
    commit = Commit.parse("2" * 40, content)
    assert (commit.tree, commit.parents, commit.message) == (ID, (ID, ID), "m\n\nmore\n")
    assert (commit.author, commit.authored) == (Identity(name="A B", email="a@b"), "1700000000 +0130")


@pytest.mark.parametrize("content", [b"", b"garbage", b"tree zz\n\nm", b"author A <a@b>\n\n"])
def test_a_commit_with_missing_lines_is_read_as_far_as_possible(content: bytes) -> None:
    assert Commit.parse("2" * 40, content).parents == ()
