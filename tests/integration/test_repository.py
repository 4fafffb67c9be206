"""Finding a repository, and refusing early what cannot be worked in."""

import shutil
from pathlib import Path

import pytest

from runplan.adapters.git.repository import Checkouts, open_repository, require_git, signing
from runplan.domain.errors import GitFailed, RefusedEarly
from runplan.domain.names import worktree_name
from runplan.domain.settings.schema import Settings
from runplan.engine.loop.context import context_at
from runplan.engine.loop.repository import open_repository as open_for_work
from tests.support.repos import Repo, init_repo, install_signer, isolated_env, make_repo


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


def test_a_bare_repository_is_refused_and_a_worktree_of_one_is_its_own_root(tmp_path: Path) -> None:
    make_repo(tmp_path / "a").git("clone", "-q", "--bare", ".", str(tmp_path / "store.git"))
    bare = Repo(path=tmp_path / "store.git")
    with pytest.raises(RefusedEarly, match="bare repository"):
        open_repository(bare.path, env=bare.env)
    bare.git("worktree", "add", "-q", str(tmp_path / "tree"))
    found = open_repository(tmp_path / "tree", env=bare.env)
    assert (found.root, found.common_dir) == (tmp_path / "tree", bare.path)


def test_a_repository_git_cannot_read_is_named_with_what_git_says(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    (repo.path / ".git/config").write_text("[core\n", encoding="utf-8")
    with pytest.raises(GitFailed, match=r"fatal: bad config line 1 in file"):
        open_repository(repo.path, env=repo.env)


def test_without_git_the_message_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match=r"git is not installed or not on PATH; install git 2\.38 or newer"):
        open_repository(tmp_path, env=isolated_env(PATH=str(tmp_path)))


def test_no_git_is_taken_from_a_place_that_an_agent_or_a_landing_can_change(tmp_path: Path) -> None:
    """One that only a link in the checkout names is taken by its own path."""
    repo = make_repo(tmp_path / "app", **{"bin/git": "#!/bin/sh\n", "tools/x": ""})
    (repo.path / "bin/git").chmod(0o755)
    real = shutil.which("git", path=repo.env["PATH"])
    assert real
    for places in (f"{repo.path}/bin", "bin:."):
        found = open_repository(repo.path, env=repo.env | {"PATH": f"{places}:{repo.env['PATH']}"})
        assert found.git.program == real
    (repo.path / "tools/git").symlink_to(real)
    linked = open_repository(repo.path, env=repo.env | {"PATH": f"{repo.path}/tools"})
    assert linked.git.program == str(Path(real).resolve())

    worktree = tmp_path / "app.runplan" / worktree_name(str(repo.path), "x")
    worktree.mkdir(parents=True)
    (worktree / "git").symlink_to(real)
    env = repo.env | {"PATH": f"{worktree}:{repo.env['PATH']}", "HOME": str(tmp_path)}
    with (
        context_at(repo.path, env, lambda _root, _env: Settings()) as context,
        pytest.raises(RefusedEarly, match=f"{worktree}/git is in {worktree}, where agents write"),
        open_for_work(context),
    ):
        pass


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


STORES = (
    "--object-format=sha1",
    "--object-format=sha256",
    pytest.param("--ref-format=reftable", marks=pytest.mark.newer_git(2, 45)),
)


@pytest.fixture(params=STORES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Repo:
    """A repository with one commit, in each way in which git stores refs and ids."""
    repo = init_repo(tmp_path / "r", request.param)
    repo.commit("Start", a="1")
    return repo


def test_refs_are_those_that_git_lists_after_each_change(stored: Repo) -> None:
    """Packed, loose, both, symbolic, tags, odd names, deleted ones."""
    changes = [
        ["branch", "feat/ünï"],
        ["tag", "-a", "-m", "t", "v1"],
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"],
        ["pack-refs", "--all"],
        ["commit", "-q", "--allow-empty", "-m", "newer than the packed ref"],
        ["branch", "-f", "feat/ünï", "HEAD"],
        ["branch", "-f", "feat/ünï", "HEAD~1"],
        ["branch", "-D", "feat/ünï"],
    ]
    with stored.adapter() as git:
        for words in changes:
            stored.git(*words)
            assert git.list_refs(stored.path / ".git") == stored.refs()


def test_a_head_is_read_after_each_change(stored: Repo, tmp_path: Path) -> None:
    stored.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    with stored.adapter() as git:
        for repo, git_dir in ((stored, ".git"), (stored.at(tmp_path / "side"), ".git/worktrees/side")):
            for words in (
                ["switch", "-qc", f"new-{git_dir[-4:]}"],
                ["switch", "-q", "--detach"],
                ["switch", "-q", "-"],
            ):
                repo.git(*words)
                branch = repo.git("symbolic-ref", "-q", "HEAD", ok=False)
                assert git.read_head(stored.path / git_dir) == (f"ref: {branch}" if branch else repo.head())


def test_checkouts_name_branch_detachment_and_missing_directories(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "r")
    gone, detached = tmp_path / "gone", tmp_path / "new\nline"
    repo.git("worktree", "add", "-q", "-b", "side", str(gone))
    repo.git("worktree", "add", "-q", "--detach", str(detached))
    repo.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    shutil.rmtree(gone)
    with repo.adapter() as git:
        checkouts = Checkouts(git, repo.path / ".git")
        assert {(checkout.root, checkouts.branch_of(checkout)) for checkout in checkouts.all()} == {
            (repo.path, "refs/heads/main"),
            (gone, "refs/heads/side"),
            (detached, ""),
            (tmp_path / "other", "refs/heads/other"),
        }
        assert [checkout.root for checkout in checkouts.with_branch("refs/heads/other")] == [tmp_path / "other"]
        assert checkouts.with_branch("refs/heads/side") == []
