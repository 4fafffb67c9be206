"""Nothing lands unproven: what is checked is the exact tree, by the checks that are asked for, every time."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import (
    RUNPLAN,
    Meanwhile,
    Project,
    a_plan,
    a_project,
    ended,
    fix,
    set_up,
    steps,
    verify,
    work,
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return a_project(tmp_path, "1")


def test_a_file_marked_skip_worktree_is_committed_and_judged(project: Project) -> None:
    """The files that made the gate green are in the commits, where the verifier and the user see them."""
    project.repo.commit("A check", **{"check.sh": "test ! -e broken.txt\n"})
    project.settings('[tests]\ncommand = "sh check.sh"\n')
    project.plan(a_plan("1").replace("### Work Items", "Allows: check.sh\n\n### Work Items"))
    project.agent(
        steps(
            'git = ["update-index", "--skip-worktree", "check.sh"]',
            'write = "check.sh"\ntext = "exit 0\\n"',
            'write = "broken.txt"\ntext = "x\\n"',
            'git = ["add", "broken.txt"]',
            'git = ["commit", "-qm", "Break it"]',
        )
    )
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert "work       2 commits, 2 files" in ran.err
    assert project.show("main:check.sh") == "exit 0"


RUNNER = "test ! -e check.sh || sh check.sh"


def test_a_check_that_rewrites_its_runner_does_not_pass_later(project: Project, tmp_path: Path) -> None:
    """The products of run.setup are made again where a check has changed one, and kept where none has."""
    project.repo.commit("Ignore", **{".gitignore": "*.o\n", "runner": RUNNER})
    setup = f"cp runner run.o; pwd >>{tmp_path}/set-ups"
    project.settings(
        f'[run]\nsetup = "{setup}"\nmax_fix_cycles = 0\n[tests]\ncommand = "sh run.o"\n'
        '[gates.later]\ncommand = "grep -q check run.o; touch later.o"\n'
    )
    project.agent(work('write = "check.sh"\ntext = "echo true >run.o; exit 1\\n"', 'commit = "Rewrite"'))
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: tests-failed"), ran.err
    project.agent(work('write = "check.sh"\ntext = "touch added.o\\n"', 'commit = "Add"'))
    (tmp_path / "set-ups").unlink()
    ran = project.runplan("retry", "X", "1", "--fresh")
    assert ran.code == 0, ran.err
    proofs = [line for line in (tmp_path / "set-ups").read_text().splitlines() if line.endswith("-proof")]
    assert len(proofs) == 1, "once for all trees"


def test_changing_the_test_command_is_tampering_unless_allowed(project: Project) -> None:
    project.repo.commit("A check", Makefile="test:\n\ttest ! -e 1.txt\n")
    project.settings('[tests]\ncommand = "make -s test"\n')
    project.agent(work('write = "Makefile"\ntext = "test:\\n\\ttrue\\n"', 'commit = "Mend the check"'))
    project.plan(a_plan("1").replace("Write 1.txt", "Mend the `Makefile`"))
    foreseen = "warning: phase 1 names Makefile, which agents may not change; if the plan means it, add to the phase: "
    assert f"plans/X.md:13: {foreseen}Allows: Makefile\n" in project.runplan("check", "X").out
    ran = project.start("1", "auto")
    assert f"runplan: {foreseen.replace('phase', 'plans/X.md:13: phase', 1)}Allows: Makefile\n" in ran.err
    assert (ran.code, ran.last) == (1, "runplan: failed: tampered"), ran.err
    assert "Makefile: a check runs make, which reads it, and it was changed" in ran.err
    assert "add to the phase: Allows: Makefile" in ran.err
    project.plan(a_plan("1").replace("### Work Items", "Allows: Makefile\n\n### Work Items"))
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err


@pytest.mark.promise
def test_a_fixer_takes_back_what_the_phase_does_not_permit(project: Project) -> None:
    """No commit that lands contains the secret or the edit of the plan."""
    token = "ghp_" + 36 * "a"
    project.agent(
        work('append = "plans/X.md"\ntext = "x"', f'write = "conf.txt"\ntext = "{token}"', 'commit = "Meddle"')
        + fix(
            """run = 'grep -q "conf.txt: seems to contain a GitHub token" $RUNPLAN_PROMPT'""",
            f'run = "! grep -q {token} $RUNPLAN_PROMPT .runplan.diff"',
            'git = ["checkout", "main", "plans/X.md"]',
            'git = ["rm", "-q", "conf.txt"]',
            'commit = "Take it back"',
        )
    )
    before = project.repo.head("main")
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.dispatched() == ["implement", "fix", "verify"]
    commits = project.repo.git("rev-list", f"{before}..main").split()
    assert len(commits) == 2, "the net change and the bookkeeping"
    assert token not in project.repo.git("log", "-p", f"{before}..main")
    assert project.repo.git("log", "--format=%s", "--skip=1", f"{before}..main") == "Step 1"
    for finding in ("plans/X.md: belongs to runplan", "conf.txt: seems to contain a GitHub token"):
        assert f"a fixer was told: {finding}" in project.show("main:reports/plan-x.md")


def test_a_fixer_works_on_the_tree_that_failed(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    project.settings('[tests]\ncommand = "test ! -e theirs.txt || test ! -e 1.txt || test -e both.txt"\n')
    project.agent(
        work(*meanwhile.pause("implement"))
        + fix('git = ["cat-file", "-e", "HEAD:theirs.txt"]', 'write = "both.txt"\ntext = "x\\n"', 'commit = "Both"')
    )
    running = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("implement")
    project.repo.commit("Theirs", **{"theirs.txt": "x\n"})
    meanwhile.let_on("implement")
    ran = ended(running)
    assert ran.code == 0, ran.err
    assert project.show("main:both.txt") == "x"


def test_a_phase_reworded_during_its_run_is_not_marked_done(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work() + verify(*meanwhile.pause("verify"), "pass_all = true"))
    running = project.popen("start", "X", "1", "auto", "--foreground")
    meanwhile.reached("verify")
    project.plan(a_plan("1").replace("- [ ] Write 1.txt", "- [ ] Write 1.txt and more"))
    meanwhile.let_on("verify")
    ran = ended(running)
    assert ran.code == 4
    assert "phase 1 was reworded on main" in ran.err
    assert project.runplan("reject", "X").code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "todo"
    assert project.leftovers() == ["refs/heads/runplan/x/1"]


def test_a_phase_is_not_done_because_an_interrupted_run_named_it(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    killed = project.start("finish", "auto", TEST_KILL="after Landed")
    assert killed.code == -signal.SIGKILL
    ran = project.start("3", "auto")
    assert ran.code == 0, ran.err
    assert project.landed() == ["1", "3"]


def test_a_closed_terminal_does_not_end_a_run(project: Project) -> None:
    running = project.popen("start", "X", "1", "auto", "--foreground")
    assert running.stderr is not None
    running.stderr.close()
    assert running.wait(60) == 0
    assert project.landed() == ["1"]


@pytest.mark.promise
def test_output_to_a_full_disk_is_exit_5(project: Project) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [RUNPLAN, "status", "X"], cwd=project.path, env=project.env, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (ran.returncode, ran.stderr) == (
        5,
        "runplan: cannot write the output: No space left on device\n",
    )


def test_a_branch_checked_out_elsewhere_fails_the_phase_as_blocked(project: Project, tmp_path: Path) -> None:
    project.agent(work() + verify("fail = ['W1']") + fix('append = "1.txt"\ntext = "x"'))
    assert project.start("1", "auto").code == 1
    project.repo.git("worktree", "add", "-q", str(tmp_path / "look"), "runplan/x/1")
    ran = project.runplan("retry", "X", "--fresh")
    assert ran.last == "runplan: failed: blocked", ran.err
    assert str(tmp_path / "look") in ran.err
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "failed"


@pytest.mark.promise
def test_logs_follow_ends_when_the_run_waits(project: Project) -> None:
    assert project.start("1").code == 4
    assert project.runplan("logs", "X", "-f").code == 0
