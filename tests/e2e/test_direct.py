"""Landing by a direct push: the remote's branch is the target, and the local one follows where that is safe."""

from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, set_up, with_remote, work
from tests.support.repos import Repo


@pytest.fixture
def remote(project: Project, tmp_path: Path) -> Repo:
    return with_remote(project, tmp_path / "origin.git")


@pytest.mark.promise
def test_a_plan_and_its_undo_land_on_the_remote_the_local_branch_follows(project: Project, remote: Repo) -> None:
    project.start("finish", "auto", "direct").exits(0)
    assert remote.head("main") == project.repo.head("main") == project.repo.head("refs/remotes/origin/main")
    assert project.landed() == ["1", "2"]
    assert "✅ Done" in project.show("origin/main:plans/X.md")
    project.runplan("undo", "X", "1").exits(0)
    assert "1.txt" not in remote.git("ls-tree", "--name-only", "main").split()
    assert project.repo.head("main") == remote.head("main")
    assert project.repo.status() == ""
    assert project.leftovers() == []


def test_an_included_configuration_that_lands_has_no_effect(project: Project, remote: Repo, tmp_path: Path) -> None:
    """The user's configuration includes a tracked file; `start` and `doctor` name it."""
    program = f"'touch {tmp_path}/ran; git-upload-pack'"
    edit = f'run = "git config -f team.gitconfig remote.origin.uploadpack {program}"'
    project.commit_file("team.gitconfig", "[alias]\n\tst = status\n")
    project.agent(work(edit) + work(phase="2"))
    project.repo.git("push", "-q", "origin", "main")
    project.repo.git("config", "include.path", "../team.gitconfig")
    ran = project.start("finish", "auto", "direct").exits(0)
    assert remote.git("show", "main:2.txt") == "2"
    assert remote.head("main") == project.repo.head("main")
    left_out = f"git's configuration includes {project.path}/team.gitconfig ({{}}), which a landing can change"
    assert left_out.format("alias.st") in ran.err
    examined = project.runplan("doctor")
    assert "WARN  git         version" in examined.out
    assert left_out.format("alias.st, remote.origin.uploadpack") in examined.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.promise
def test_an_unreachable_remote_is_exit_5_and_retry_continues(project: Project, remote: Repo, tmp_path: Path) -> None:
    away = tmp_path / "away.git"
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(*meanwhile.pause("working")))
    project.repo.git("push", "-q", "origin", "main")
    running = meanwhile.begin(project, "working", "start", "X", "1", "auto", "direct", "--foreground")
    remote.path.rename(away)
    meanwhile.let_on("working")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 5, err
    assert err.decode().rstrip().endswith("the work is kept. Continue with: runplan retry plans/X.md")
    assert project.runplan("retry", "X").code == 5
    away.rename(remote.path)
    project.runplan("retry", "X").exits(0)
    assert remote.git("show", "main:1.txt") == "1"
    assert project.dispatched().count("implement") == 1
    assert project.leftovers() == []
