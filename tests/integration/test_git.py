"""Git is run through one door, and what can be asked of a kept process costs no new one."""

from pathlib import Path

import pytest

from runplan.adapters.git.command import Git
from runplan.domain.errors import GitFailed
from tests.support.repos import Repo, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "r", **{"a.txt": "a\n"})


# --- refs -------------------------------------------------------------------------------------------------


def test_an_update_happens_whole_or_not_at_all_and_the_next_one_is_served(repo: Repo) -> None:
    head = repo.head()
    with repo.adapter() as git:
        with pytest.raises(GitFailed, match=r"git update-ref failed in .*refs/heads/main"):
            git.update_refs(f"update refs/runplan/new {head}", f"update refs/heads/main {head} {'1' * 40}")
        assert git.tip("refs/runplan/new") is None
        git.update_refs(f"update refs/runplan/new {head}")
        assert git.tip("refs/runplan/new") == head


def test_a_ref_is_updated_also_after_the_kept_process_was_killed(repo: Repo) -> None:
    head = repo.head()
    with repo.adapter() as git:
        git.update_refs(f"update refs/runplan/1 {head}")
        (kept,) = git._processes.values()
        kept.kill()
        kept.wait()
        git.update_refs(f"update refs/runplan/2 {head}")
        for pipe in (kept.stdin, kept.stdout, kept.stderr):
            assert pipe is not None
            pipe.close()
    assert {"refs/runplan/1", "refs/runplan/2"} <= repo.refs().keys()


def test_an_update_sees_what_others_did_to_the_refs_meanwhile(repo: Repo) -> None:
    first = repo.head()
    with repo.adapter() as git:
        git.update_refs(f"update refs/runplan/a {first}")
        second = repo.commit("More", **{"b.txt": "b\n"})
        repo.git("update-ref", "refs/runplan/a", second)
        repo.git("pack-refs", "--all")
        with pytest.raises(GitFailed, match="refs/runplan/a"):
            git.update_refs(f"delete refs/runplan/a {first}")
        git.update_refs(f"delete refs/runplan/a {second}")
    assert "refs/runplan/a" not in repo.refs()


# --- objects ----------------------------------------------------------------------------------------------


def test_refs_and_missing_objects_are_looked_up_again_and_ids_are_cached(repo: Repo) -> None:
    first = repo.head()
    with repo.adapter() as git:
        coming = repo.git("hash-object", "--stdin", stdin="new\n")
        assert git.known(coming) is None
        repo.git("hash-object", "-w", "--stdin", stdin="new\n")
        assert git.known(coming) is not None
        assert git.tip("refs/heads/main") == first
        assert git.blob(first, "a.txt") == b"a\n"
        second = repo.commit("More", **{"a.txt": "b\n"})
        assert git.tip("refs/heads/main") == second
        assert git.blob("refs/heads/main", "a.txt") == b"b\n"
        assert git.blob(first, "a.txt") == b"a\n"
        repo.commit("Still more", **{"a.txt": "c\n"})
        assert git.blob("refs/heads/main", "a.txt") == b"c\n"
        kept = git.known(f"{first}:a.txt")
        assert kept is git.known(f"{first}:a.txt")
    with Git(repo.path / ".git", env=repo.env) as git:  # outside of a worktree, where such a path ends git
        assert [git.known(f"{first}:{path}") for path in ("../a.txt", "./a.txt")] == [None, None]
        assert git.blob(first, "a.txt") == b"a\n"


# --- commands ---------------------------------------------------------------------------------------------


def test_an_object_that_a_partial_clone_lacks_is_told_with_the_way_to_get_it(repo: Repo, tmp_path: Path) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("clone", "-q", "--no-checkout", "--filter=tree:0", repo.path.as_uri(), str(tmp_path / "partial"))
    with Repo(path=tmp_path / "partial", env=repo.env).adapter() as git:
        for ask in (lambda: git.object("HEAD:a.txt"), lambda: git.run("ls-tree", "HEAD")):
            with pytest.raises(GitFailed, match=r"partial clone, .*; fetch them first: git fetch --refetch"):
                ask()


def test_a_command_gets_its_input_and_gives_both_outputs_whole(repo: Repo) -> None:
    much = b"x" * 300_000
    with repo.adapter() as git:
        oid = git.run("hash-object", "-w", "--stdin", stdin=much).text
        assert git.run("cat-file", "blob", oid).out == much
        repo.git("config", "alias.both", "!head -c 200000 /dev/zero >&2; echo out; exit 3")
        ran = git.run("both", ok=(3,))
        assert (ran.code, ran.text, len(ran.err)) == (3, "out", 200_000)
        repo.git("config", "alias.named", "!echo one >/dev/stderr; echo two >&2")
        assert git.run("named").err == "one\ntwo"
