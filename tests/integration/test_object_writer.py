"""Objects written in this process are the objects git would have written."""

from pathlib import Path

import pytest

from runplan.errors import Unreachable
from runplan.git.command import Stored
from runplan.git.objects import Candidates, Entry
from tests.support.foreign import read_blob, read_tree
from tests.support.repos import Repo, make_repo


def write(repo: Repo, content: bytes) -> str:
    with repo.adapter() as git:
        return Candidates(git, common_dir=repo.path / ".git").write("blob", content, repo.head())


@pytest.mark.parametrize(
    "content", [b"", b"hello\n", bytes(range(256)) * 500, "ünï\n".encode()], ids=["empty", "plain", "binary", "utf8"]
)
def test_a_blob_has_the_id_and_the_content_git_gives_it(tmp_path: Path, content: bytes) -> None:
    repo = make_repo(tmp_path / "r")
    oid = write(repo, content)
    (tmp_path / "content").write_bytes(content)
    assert oid == repo.git("hash-object", str(tmp_path / "content"))
    assert read_blob(repo.path, oid) == content
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_a_damaged_object_is_written_again(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    oid = write(repo, b"new\n")
    place = repo.path / ".git/objects" / oid[:2] / oid[2:]
    place.chmod(0o644)
    place.write_bytes(b"damaged")
    assert write(repo, b"new\n") == oid
    assert repo.git("cat-file", "-p", oid) == "new"


def test_trees_are_sorted_as_git_sorts_them(tmp_path: Path) -> None:
    """A directory sorts as if its name ended in a slash: between `a.txt`-like names that is not the plain order."""
    files = {"a.txt": "1", "a/x": "2", "a-b": "3", "a0": "4", "z/y/x.txt": "5"}
    repo = make_repo(tmp_path / "r", **files)
    with repo.adapter() as git:
        writer = Candidates(git, common_dir=repo.path / ".git")
        blob = writer.write("blob", b"new\n", repo.head())
        plain, executable = Entry("100644", blob), Entry("100755", blob)
        made = writer.tree_with(repo.tree(), {"a/new.txt": plain, "b/c/d.txt": executable, "a.txt": plain})
    assert list(read_tree(repo.path, made)) == [
        *("a-b", "a.txt", "a/new.txt", "a/x", "a0", "b/c/d.txt", "z/y/x.txt"),
    ]
    for name in ("a/new.txt", "b/c/d.txt", "a.txt"):
        repo.write(name, "new\n")
    (repo.path / "b/c/d.txt").chmod(0o755)
    repo.git("add", "-A")
    assert made == repo.git("write-tree")
    assert repo.git("fsck", "--strict", "--no-dangling") == ""


def test_an_object_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    oid = repo.git("hash-object", "--stdin", stdin="new\n")
    (repo.path / ".git/objects" / oid[:2]).symlink_to(tmp_path / "nowhere" / "at-all")
    with pytest.raises(Unreachable, match="nothing was landed"):
        write(repo, b"new\n")


def test_the_beginning_of_an_object_is_read_and_the_rest_passed_over(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    with repo.adapter() as git:
        large = git.run("hash-object", "-w", "--stdin", stdin=b"begin" + b"x" * 300_000).text
        small = git.run("hash-object", "-w", "--stdin", stdin=b"small").text
        assert git.object(large, most=5) == Stored(large, "blob", b"begin", 300_005)
        assert git.object(small, most=100) == Stored(small, "blob", b"small", 5)
        assert git.object("0" * 40, most=100) is None
        assert git.tip("refs/heads/main") == repo.head(), "what comes next is answered by itself"
