"""Landing by a direct push: the remote's branch is the target, and the local one follows where that is safe."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_project, ended, set_up, with_remote, work
from tests.support.repos import Repo


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1", "2")


@pytest.fixture
def remote(project: Project, tmp_path: Path) -> Repo:
    return with_remote(project, tmp_path / "origin.git")


def refusing(remote: Repo, printed: str) -> None:
    """Let the server refuse every push, in these words."""
    hook = remote.path / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho '{printed}' >&2\nexit 1\n")
    hook.chmod(0o755)


@pytest.mark.promise
def test_a_plan_lands_on_the_remote_and_the_local_branch_follows(project: Project, remote: Repo) -> None:
    ran = project.start("finish", "auto", "direct")
    assert ran.code == 0, ran.err
    assert remote.head("main") == project.repo.head("main") == project.repo.head("refs/remotes/origin/main")
    assert project.landed() == ["1", "2"]
    assert "✅ Done" in project.show("origin/main:plans/X.md")
    assert project.repo.status() == ""
    assert project.leftovers() == []


def test_an_included_configuration_that_a_phase_lands_has_no_effect(
    project: Project, remote: Repo, tmp_path: Path
) -> None:
    """The user's configuration includes a tracked file; `start` and `doctor` name it."""
    program = f"'touch {tmp_path}/ran; git-upload-pack'"
    edit = f'run = "git config -f team.gitconfig remote.origin.uploadpack {program}"'
    project.commit_file("team.gitconfig", "[alias]\n\tst = status\n")
    project.agent(work(edit) + work(phase="2"))
    project.repo.git("push", "-q", "origin", "main")
    project.repo.git("config", "include.path", "../team.gitconfig")
    ran = project.start("finish", "auto", "direct")
    assert ran.code == 0, ran.err
    assert remote.git("show", "main:2.txt") == "2"
    assert remote.head("main") == project.repo.head("main")
    left_out = f"git's configuration includes {project.path}/team.gitconfig ({{}}), which a landing can change"
    assert left_out.format("alias.st") in ran.err
    examined = project.runplan("doctor")
    assert "WARN  git         version" in examined.out
    assert left_out.format("alias.st, remote.origin.uploadpack") in examined.out
    assert not (tmp_path / "ran").exists()


@pytest.mark.promise
def test_a_commit_pushed_during_a_phase_is_built_upon(project: Project, remote: Repo, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(*meanwhile.pause("working")))
    project.repo.git("push", "-q", "origin", "main")
    running = project.popen("start", "X", "1", "auto", "direct", "--foreground")
    meanwhile.reached("working")
    pushed = push_elsewhere(remote, tmp_path, "theirs.txt")
    meanwhile.let_on("working")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert remote.git("merge-base", "--is-ancestor", pushed, "main") == ""
    assert remote.git("show", "main:1.txt") == "1"


@pytest.mark.promise
def test_a_refused_push_fails_as_protected_and_keeps_the_work(project: Project, remote: Repo) -> None:
    before = remote.head("main")
    refusing(remote, "GH006: Protected branch update failed for refs/heads/main.")
    ran = project.start("1", "auto", "direct")
    assert (ran.code, ran.last) == (1, "runplan: failed: protected")
    assert "GH006: Protected branch update failed" in ran.err
    assert "or have the rule lifted" in ran.err
    assert remote.head("main") == before
    assert project.repo.git("show", "runplan/x/1:1.txt") == "1"
    (remote.path / "hooks/pre-receive").unlink()
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert remote.git("show", "main:1.txt") == "1"


@pytest.mark.promise
def test_main_protected_refuses_a_direct_landing_before_any_work(project: Project, remote: Repo) -> None:
    project.settings("[run]\nmain_protected = true\n")
    ran = project.start("1", "auto", "direct")
    assert ran.code == 2
    assert ran.last.startswith("runplan: protected: main does not accept pushes (run.main_protected)")
    assert remote.head("main") != project.repo.head("main")
    assert project.dispatched() == [] if (project.path / ".git/runplan/journal.db").exists() else True


@pytest.mark.promise
def test_an_unreachable_remote_is_exit_5_and_retry_continues(project: Project, remote: Repo, tmp_path: Path) -> None:
    away = tmp_path / "away.git"
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(*meanwhile.pause("working")))
    project.repo.git("push", "-q", "origin", "main")
    running = project.popen("start", "X", "1", "auto", "direct", "--foreground")
    meanwhile.reached("working")
    remote.path.rename(away)
    meanwhile.let_on("working")
    _, err = running.communicate(timeout=60)
    assert running.returncode == 5, err
    assert err.decode().rstrip().endswith("the work is kept. Continue with: runplan retry plans/X.md")
    assert project.runplan("retry", "X").code == 5
    away.rename(remote.path)
    again = project.runplan("retry", "X")
    assert again.code == 0, again.err
    assert remote.git("show", "main:1.txt") == "1"
    assert project.dispatched().count("implement") == 1
    assert project.leftovers() == []


@pytest.mark.promise
@pytest.mark.parametrize(("landing", "answer"), [("cherry-pick", "kept"), ("direct", "removed")])
def test_gc_trusts_the_remote_tracking_ref_only_for_direct_landing(
    project: Project, remote: Repo, landing: str, answer: str
) -> None:
    """The branch was pushed there, seen, and is gone there since: what is left here may be the last copy."""
    assert remote.head("main") == project.repo.head("main")
    project.settings(f'[run]\nlanding = "{landing}"\n')
    project.repo.git("switch", "-qc", "runplan/x/1")
    project.commit_file("work.txt", "work\n")
    project.repo.git("commit", "-q", "--amend", "--no-edit", "--author=runplan agent <agent@runplan.invalid>")
    project.repo.git("switch", "-q", "main")
    project.repo.git("update-ref", "refs/remotes/origin/main", "runplan/x/1")
    found = project.runplan("gc", "--json").json
    assert [one["answer"] for one in found if one["what"].endswith("runplan/x/1")] == [answer]


@pytest.mark.promise
def test_an_undo_is_pushed_where_the_phase_was(project: Project, remote: Repo) -> None:
    assert project.start("finish", "auto", "direct").code == 0
    undone = project.runplan("undo", "X", "1")
    assert undone.code == 0, undone.err
    assert "1.txt" not in remote.git("ls-tree", "--name-only", "main").split()
    assert project.repo.head("main") == remote.head("main")


def push_elsewhere(remote: Repo, place: Path, name: str) -> str:
    """Push a foreign commit from another clone."""
    remote.git("clone", "-q", ".", str(place / "theirs"))
    theirs = type(remote)(path=place / "theirs", env=dict(remote.env))
    theirs.git("config", "user.name", "Tom")
    theirs.git("config", "user.email", "tom@example.org")
    theirs.write(name, "theirs\n")
    theirs.commit("Theirs")
    theirs.git("push", "-q", "origin", "main")
    return theirs.head("main")


@pytest.mark.parametrize("landing", ["cherry-pick", "direct"])
def test_a_target_deleted_in_mid_run_is_named_and_the_printed_command_continues_the_run(
    project: Project, remote: Repo, tmp_path: Path, landing: str
) -> None:
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work() + work(*meanwhile.pause("working"), phase="2"))
    project.repo.git("push", "-q", "origin", "main")
    with project.running("start", "X", "finish", "auto", landing, "--foreground") as running:
        meanwhile.reached("working")
        if landing == "direct":
            remote.git("update-ref", "-d", "refs/heads/main")
        else:
            project.repo.git("switch", "-qc", "mine")
            project.repo.git("branch", "-qD", "main")
        meanwhile.let_on("working")
        ran = ended(running)
    assert (ran.code, "the branch main is gone" in ran.last) == (5, True), ran.err
    again = ran.last.partition("create it again: ")[2].partition(";")[0]
    subprocess.run(shlex.split(again), cwd=project.path, env=project.repo.env, check=True, capture_output=True)
    ran = project.start("finish", "auto", landing)
    assert ran.code == 0, ran.err
    assert project.landed() == ["1", "2"]
    assert [body["phase"] for kind, body in project.events() if kind == "Leased"] == ["1", "2"], "no phase began anew"
