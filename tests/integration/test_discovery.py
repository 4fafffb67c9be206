"""Looking around real repositories."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runplan.cli.inspection import Facts, look_around
from runplan.errors import GitFailed
from runplan.gitfacts import Identity
from tests.support.repos import USER_EMAIL, USER_NAME, Repo, init_repo, isolated_env, make_repo


def seen(path: Path, **env: str) -> Facts:
    return look_around(path, env=isolated_env(**env))


def program(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_repository_is_seen_whole_from_any_directory_in_it(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app", **{"Makefile": "test:\n\ttrue\n", "src/deep/x.py": ""})
    repo.git("remote", "add", "upstream", "https://example.org/x.git")
    facts = seen(tmp_path / "app" / "src" / "deep")
    assert facts.root == str(repo.path)
    assert facts.default_branch == "main"
    assert facts.identity == Identity(name=USER_NAME, email=USER_EMAIL)
    assert facts.toolchain.tests == "make test"
    assert facts.remotes == ("upstream",)


def test_a_repository_with_sha256_ids_is_seen_whole(tmp_path: Path) -> None:
    repo = init_repo(tmp_path / "app", "--object-format=sha256")
    repo.commit("Start", Makefile="test:\n\ttrue\n")
    facts = seen(repo.path)
    assert (facts.root, facts.default_branch) == (str(repo.path), "main")
    assert facts.identity == Identity(name=USER_NAME, email=USER_EMAIL)
    assert facts.toolchain.tests == "make test"


def test_a_linked_worktree_belongs_to_its_main_checkout(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert seen(tmp_path / "side").root == str(repo.path)


@pytest.mark.parametrize(
    ("branches", "remote_head", "expected"),
    [
        (("work", "main"), "", "main"),
        (("work", "master"), "", "master"),
        (("work", "main", "dev"), "dev", "dev"),
        (("work", "main"), "gone", "main"),
        (("work",), "", "work"),
    ],
)
def test_the_default_branch_is_the_remotes_else_the_usual_else_the_current(
    tmp_path: Path, branches: tuple[str, ...], remote_head: str, expected: str
) -> None:
    repo = make_repo(tmp_path / "app")
    repo.git("branch", "-m", branches[0])
    for name in branches[1:]:
        repo.git("branch", name)
    if remote_head:
        repo.git("symbolic-ref", "refs/remotes/origin/HEAD", f"refs/remotes/origin/{remote_head}")
    assert seen(repo.path).default_branch == expected


def test_a_detached_head_has_a_default_branch_all_the_same(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    repo.git("branch", "-m", "odd")
    repo.git("checkout", "-q", "--detach")
    assert seen(repo.path).default_branch == "odd"


def test_an_identity_that_git_would_only_guess_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMAIL", "guess@example.org")
    repo = make_repo(tmp_path / "app")
    repo.git("config", "--remove-section", "user")
    assert seen(repo.path).identity is None
    monkeypatch.setenv("GIT_COMMITTER_NAME", "Env")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "env@example.org")
    assert seen(repo.path).identity == Identity(name="Env", email="env@example.org")


def test_a_repository_git_cannot_read_is_named_with_what_git_says(tmp_path: Path) -> None:
    repo = make_repo(tmp_path / "app")
    (repo.path / ".git/config").write_text("[core\n", encoding="utf-8")
    with pytest.raises(GitFailed, match=r"app: git ls-files failed: fatal: bad config line 1 in file"):
        seen(repo.path)


def test_without_git_the_message_says_what_to_install(tmp_path: Path) -> None:
    """GitPython looks for git when it is imported, so this needs a process of its own."""
    asked = "import sys; from pathlib import Path; from runplan.cli.inspection import look_around as look"
    ran = subprocess.run(
        [sys.executable, "-c", f"{asked}; look(Path.cwd(), env={{}})"],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stderr.splitlines()[-1].endswith("Unreachable: git was not found on PATH; install git 2.38 or newer")


def test_agents_on_the_path_are_found_in_the_order_they_are_suggested(tmp_path: Path) -> None:
    make_repo(tmp_path / "app")
    for name in ("aider", "claude", "git-not"):
        program(tmp_path / "bin", name)
    assert seen(tmp_path / "app", PATH=str(tmp_path / "bin")).installed == ("claude", "aider")
    assert seen(tmp_path / "app", PATH="").installed == ()


def test_files_not_yet_committed_count_and_ignored_ones_do_not(tmp_path: Path) -> None:
    repo: Repo = make_repo(tmp_path / "app", **{".gitignore": "tests/ignored.py\n"})
    repo.write("tests/ignored.py", "")
    assert not seen(repo.path).toolchain.shown_by
    repo.write("tests/new.py", "")
    assert seen(repo.path).toolchain.shown_by == "tests/new.py"
