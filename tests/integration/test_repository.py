"""Finding a repository, and refusing early what cannot be worked in."""

import shutil
from pathlib import Path

import pytest

from runplan.errors import Exit, GitFailed, RefusedEarly
from runplan.git.repository import (
    Checkouts,
    identity,
    open_repository,
    refs_snapshot,
    require_git,
    require_workable,
    signing,
)
from runplan.gitfacts import Identity
from tests.support.repos import USER_EMAIL, USER_NAME, Repo, init_repo, install_signer, isolated_env, make_repo


def test_a_repository_is_found_from_a_subdirectory_and_from_a_linked_worktree(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "a b", **{"deep/er/file": "x"})
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    for start in (
        repo.path,
        repo.path / "deep/er",
        repo.path / "deep/er/file",
        tmp_path / "linked",
        tmp_path / "linked/deep",
        repo.path / ".git",
    ):
        found = open_repository(start, env=repo.env)
        assert (found.root, found.common_dir, found.git.cwd) == (repo.path, repo.path / ".git", repo.path)


def test_a_separate_git_directory_names_its_checkout(tmp_path: Path) -> None:
    repo = init_repo(tmp_path / "plain")
    repo.git("init", "-q", "--separate-git-dir", str(tmp_path / "store"))
    repo.commit("Start", a="1")
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    repo.git("config", "core.worktree", "../plain")
    assert open_repository(repo.path, env=repo.env).root == repo.path
    assert open_repository(tmp_path / "linked", env=repo.env).root == repo.path


def test_a_worktree_of_a_bare_repository_is_its_own_root(tmp_path: Path) -> None:
    make_repo(tmp_path / "a").git("clone", "-q", "--bare", ".", str(tmp_path / "store.git"))
    bare = Repo(path=tmp_path / "store.git")
    bare.git("worktree", "add", "-q", str(tmp_path / "tree"))
    found = open_repository(tmp_path / "tree", env=bare.env)
    assert (found.root, found.common_dir) == (tmp_path / "tree", bare.path)


def test_a_place_without_a_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedEarly, match="not in a git repository; run git init") as refused:
        open_repository(tmp_path, env=isolated_env())
    assert refused.value.exit is Exit.USAGE


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    repo = init_repo(tmp_path / "b.git", "--bare")
    with pytest.raises(RefusedEarly, match="bare repository"):
        open_repository(repo.path, env=repo.env)


@pytest.mark.parametrize("prefix", ["", "rp-", "other/deep/"])
def test_a_prefix_that_nothing_blocks_is_workable(tmp_path: Path, prefix: str) -> None:
    repo = make_repo(tmp_path / "r")
    repo.git("branch", "runplan")
    found = open_repository(repo.path, env=repo.env)
    me = Identity(name=USER_NAME, email=USER_EMAIL)
    assert require_workable(found, target="refs/heads/main", prefix=prefix) == me == identity(found.git)


def test_a_repository_git_cannot_read_is_named_with_what_git_says(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    (repo.path / ".git/config").write_text("[core\n", encoding="utf-8")
    with pytest.raises(GitFailed, match=r"fatal: bad config line 1 in file"):
        open_repository(repo.path, env=repo.env)


def test_without_git_the_message_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match=r"git is not installed or not on PATH; install git 2\.38 or newer"):
        open_repository(tmp_path, env=isolated_env(PATH=str(tmp_path)))


def test_an_old_git_is_refused() -> None:
    with pytest.raises(RefusedEarly, match=r"git version 2\.30\.2 is too old; install git 2\.38"):
        require_git("git version 2.30.2")


def test_signing_follows_the_users_setting_and_is_tried_before_any_work(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    with repo.adapter() as git:
        assert not signing(git)
        signer = install_signer(repo, tmp_path)
        repo.git("config", "commit.gpgsign", "yes")
        assert signing(git)
        signer.unlink()
        with pytest.raises(RefusedEarly, match=r"git config commit\.gpgsign false"):
            signing(git)


def test_the_snapshot_of_refs_is_what_git_lists(tmp_path: Path) -> None:
    """Packed, loose, both, symbolic, tags, odd names; nothing but files is read."""
    repo = make_repo(tmp_path / "r")
    repo.git("branch", "feat/ünï")
    repo.git("tag", "-a", "-m", "t", "v1")
    repo.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    repo.git("pack-refs", "--all")
    repo.commit("newer than the packed ref", b="2")
    repo.git("branch", "late")
    (repo.path / ".git/refs/heads/late.lock").write_text("x")
    found = open_repository(repo.path, env=repo.env)
    assert refs_snapshot(found.common_dir) == repo.refs()
    assert len(repo.refs()) == 6


def test_checkouts_name_branch_detachment_and_missing_directories(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    gone, detached = tmp_path / "gone", tmp_path / "new\nline"
    repo.git("worktree", "add", "-q", "-b", "side", str(gone))
    repo.git("worktree", "add", "-q", "--detach", str(detached))
    repo.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    shutil.rmtree(gone)
    checkouts = Checkouts(repo.path, repo.path / ".git")
    assert {(one.root, one.branch) for one in checkouts.all()} == {
        (repo.path, "refs/heads/main"),
        (gone, "refs/heads/side"),
        (detached, ""),
        (tmp_path / "other", "refs/heads/other"),
    }
    assert [one.root for one in checkouts.with_branch("refs/heads/other")] == [tmp_path / "other"]
    assert checkouts.with_branch("refs/heads/side") == []
