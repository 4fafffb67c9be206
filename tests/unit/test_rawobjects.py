"""What no git would make is told from what one does, by the rules of `git fsck`."""

from __future__ import annotations

import pytest

from runplan.core.rawobjects import commit_flaw, is_refused, is_well_ordered, read_commit

ID = b"1" * 40
WHO = b"A B <a@b> 1700000000 +0130"


def commit(*lines: bytes, message: bytes = b"m\n") -> bytes:
    return b"\n".join(lines) + b"\n\n" + message


TREE, PARENT, AUTHOR, COMMITTER = b"tree " + ID, b"parent " + ID, b"author " + WHO, b"committer " + WHO


@pytest.mark.parametrize(
    "content",
    [
        commit(TREE, PARENT, AUTHOR, COMMITTER),
        commit(TREE, AUTHOR, COMMITTER),
        commit(TREE, PARENT, PARENT, AUTHOR, COMMITTER, b"gpgsig -----BEGIN", b" author me", b"encoding X"),
        commit(b"tree " + b"2" * 64, AUTHOR, COMMITTER),
        commit(TREE, b"author \xe9 <> 0 -0000", COMMITTER, message=b""),
        commit(TREE, b"author  <a@b> 99999999999999999 +9999", COMMITTER),
    ],
    ids=["one parent", "a root", "signed, a merge", "long ids", "odd but sound", "far away"],
)
def test_a_commit_as_git_makes_them_has_no_flaw(content: bytes) -> None:
    assert commit_flaw(content) == ""


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        (b"", "no tree"),
        (b"garbage", "no tree"),
        (commit(b"tree zz", AUTHOR, COMMITTER), "no tree"),
        (commit(TREE, PARENT), "no author"),
        (commit(TREE, PARENT, COMMITTER), "no author"),
        (commit(TREE, AUTHOR), "no committer"),
        (commit(TREE, b"author zz", COMMITTER), "no address of its author"),
        (commit(TREE, b"author A<a@b> 1 +0000", COMMITTER), "no address of its author"),
        (commit(TREE, b"author <a@b> 1 +0000", COMMITTER), "no address of its author"),
        (commit(TREE, b"author A <a@b>", COMMITTER), "no date of its author"),
        (commit(TREE, b"author A <a@b> 01 +0000", COMMITTER), "no date of its author"),
        (commit(TREE, b"author A <a@b> 1 +000", COMMITTER), "no date of its author"),
        (commit(TREE, b"author A <a@b> 9223372036854775808 +0000", COMMITTER), "no date of its author"),
        (commit(TREE, AUTHOR, b"committer A <a@b> soon", b""), "no date of its committer"),
        (commit(TREE, AUTHOR, AUTHOR, COMMITTER), "no committer"),
        (commit(TREE, AUTHOR, COMMITTER, AUTHOR), "a line too many"),
        (commit(TREE, AUTHOR, COMMITTER, message=b"m\0x"), "a zero byte"),
    ],
)
def test_a_commit_that_no_git_would_make_is_told_by_what_it_lacks(content: bytes, flaw: str) -> None:
    assert commit_flaw(content) == flaw
    read_commit("2" * 40, content)  # whoever only looks is not stopped by it


@pytest.mark.parametrize(
    "name",
    [
        *(b"", b".", b"..", b"a/b"),
        *(b".git", b".GIT", b".gIt", b"git~1", b"GIT~1", b".git.", b".git ", b".git. .", b".git::$INDEX_ALLOCATION"),
        *(b".git\\config", b"a\\.git", b"a\\git~1\\b"),
        *(".g\u200cit".encode(), "\ufeff.GiT".encode(), ".git\u206f".encode(), b".git\xff"),
    ],
)
def test_a_name_that_leads_elsewhere_or_into_a_repository_is_refused(name: bytes) -> None:
    assert is_refused(name)


@pytest.mark.parametrize(
    "name",
    [b"...", b".gitignore", b".gitx", b"git", b"git~2", b"x.git", b"a.git b", b".git-hooks", "ü.git".encode(), b"\xff"],
)
def test_any_other_name_is_taken(name: bytes) -> None:
    assert not is_refused(name)


def entry(name: bytes, mode: bytes = b"100644") -> bytes:
    return mode + b" " + name + b"\0" + b"\1" * 20


@pytest.mark.parametrize(
    ("content", "sound"),
    [
        (b"", True),
        (entry(b"a") + entry(b"b", b"40000") + entry(b"c"), True),
        (entry(b"a.b") + entry(b"a", b"40000") + entry(b"a0"), True),
        (entry(b"a", b"40000") + entry(b"a.b"), False),
        (entry(b"b") + entry(b"a"), False),
        (entry(b"a") + entry(b"a"), False),
        (entry(b"a") + entry(b"a.b") + entry(b"a", b"40000"), False),
        (entry(b"a")[:-1], False),
        (b"garbage", False),
        (entry(b"a", b"x"), False),
    ],
    ids=["empty", "sound", "by slash", "not by slash", "unsorted", "twice", "both", "cut off", "garbage", "no mode"],
)
def test_a_tree_holds_each_name_once_and_in_order(content: bytes, sound: bool) -> None:
    assert is_well_ordered(content, 20) is sound
