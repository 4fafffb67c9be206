"""Objects that git writes in a long-lived process."""

from pathlib import Path

import pytest

from runplan.adapters.git.command import Stored
from runplan.adapters.git.objects import Candidates, Entry, entries
from runplan.domain.errors import GitFailed
from tests.support.foreign import read_blob, read_tree
from tests.support.repos import init_repo, make_repo


@pytest.mark.parametrize("hash", ["sha1", "sha256"])
def test_a_blob_and_a_tree_have_the_ids_that_git_gives_them(tmp_path: Path, hash: str) -> None:
    repo = init_repo(tmp_path / "r", f"--object-format={hash}")
    repo.commit("Start", **{"a.txt": "1", "a/x": "2", "a-b": "3", "a0": "4", "z/y/x.txt": "5"})
    with repo.adapter() as git:
        for content in (b"", bytes(range(256)) * 500, b"new\n"):
            blob = git.write_object("blob", content)
            assert (git.object(blob) or Stored("", "", b"")).content == content
        plain = Entry("100644", blob)
        files = {"a/new\n.txt": plain, "b/c/d.txt": Entry("100755", blob), "a.txt": plain, "z/y/x.txt": None}
        made = Candidates(git).tree_with(repo.tree(), files)
        assert sorted(entries(git, made)) == ["a", "a-b", "a.txt", "a0", "b"]
        assert Candidates(git).tree_with(made, dict.fromkeys(entries(git, made))) == repo.git("mktree", stdin="")
    for name in ("a/new\n.txt", "b/c/d.txt", "a.txt"):
        repo.write(name, "new\n")
    if hash == "sha1":  # foreign code reads the same
        assert read_blob(repo.path, blob) == b"new\n"
        assert list(read_tree(repo.path, made)) == ["a-b", "a.txt", "a/new\n.txt", "a/x", "a0", "b/c/d.txt"]
    (repo.path / "b/c/d.txt").chmod(0o755)
    (repo.path / "z/y/x.txt").unlink()
    repo.git("add", "-A")
    assert made == repo.git("write-tree")
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_an_object_that_cannot_be_written_is_an_error_and_the_next_one_is_written(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    oid = repo.git("hash-object", "--stdin", stdin="new\n")
    place = repo.path / ".git/objects" / oid[:2]
    place.symlink_to(tmp_path / "nowhere" / "at-all")
    with repo.adapter() as git:
        with pytest.raises(GitFailed, match="hash-object failed"):
            git.write_object("blob", b"new\n")
        place.unlink()
        assert git.write_object("blob", b"new\n") == oid


def test_the_beginning_of_an_object_is_read_and_the_rest_passed_over(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    with repo.adapter() as git:
        large = git.run("hash-object", "-w", "--stdin", stdin=b"begin" + b"x" * 300_000).text
        small = git.run("hash-object", "-w", "--stdin", stdin=b"small").text
        assert git.object(large, most=5) == Stored(large, "blob", b"begin", 300_005)
        assert git.object(small, most=100) == Stored(small, "blob", b"small", 5)
        assert git.object("0" * 40, most=100) is None
        assert git.tip("refs/heads/main") == repo.head(), "what comes next is answered by itself"
