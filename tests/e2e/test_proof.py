"""Nothing lands unproven: what is checked is the exact tree, by the checks that are asked for, every time."""

import signal
from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, a_project, fix, set_up, verify, work

PHASES = ("1",)
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
    project.start("1", "auto").ends(1, "runplan: failed: tests-failed")
    project.agent(work('write = "check.sh"\ntext = "touch added.o\\n"', 'commit = "Add"'))
    (tmp_path / "set-ups").unlink()
    project.runplan("retry", "X", "1", "--fresh").exits(0)
    proofs = [line for line in (tmp_path / "set-ups").read_text().splitlines() if line.endswith("-proof")]
    assert len(proofs) == 1, "once for all trees"


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
    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["implement", "fix", "verify"]
    commits = project.repo.git("rev-list", f"{before}..main").split()
    assert len(commits) == 2, "the net change and the bookkeeping"
    assert token not in project.repo.git("log", "-p", f"{before}..main")
    assert project.repo.git("log", "--format=%s", "--skip=1", f"{before}..main") == "Step 1"
    for finding in ("plans/X.md: belongs to runplan", "conf.txt: seems to contain a GitHub token"):
        assert f"a fixer was told: {finding}" in project.show("main:reports/plan-x.md")


def test_a_phase_reworded_during_its_run_is_not_marked_done(project: Project, tmp_path: Path) -> None:
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work() + verify(*meanwhile.pause("verify"), "pass_all = true"))
    running = meanwhile.begin(project, "verify", "start", "X", "1", "auto", "--foreground")
    project.plan(a_plan("1").replace("- [ ] Write 1.txt", "- [ ] Write 1.txt and more"))
    meanwhile.finish(running, "verify").exits(4, "phase 1 was reworded on main")
    assert project.runplan("reject", "X").code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "todo"
    assert project.leftovers() == ["refs/heads/runplan/x/1"]


def test_a_run_whose_landed_phase_was_reset_away_says_how_to_go_on(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    meanwhile = Meanwhile(tmp_path)
    project.plan(a_plan("1", "2", depends={"2": "Phase 1"}))
    project.agent(work() + work(*meanwhile.pause("work"), phase="2"))
    before = project.repo.head()
    running = meanwhile.begin(project, "work", "start", "X", "finish", "auto", "--foreground")
    project.repo.git("reset", "-q", "--hard", before)
    ran = meanwhile.finish(running, "work").exits(4)
    hold = next(line for line in ran.err.splitlines() if "main shows as not done" in line)
    project.runplan(*hold.partition(": runplan ")[2].split()).exits(0)
    project.start("finish", "auto").exits(0)
    assert project.landed() == ["1", "2"]


def test_a_phase_is_not_done_because_an_interrupted_run_named_it(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    killed = project.start("finish", "auto", TEST_KILL="after Landed")
    assert killed.code == -signal.SIGKILL
    project.start("3", "auto").exits(0)
    assert project.landed() == ["1", "3"]


def test_a_closed_terminal_does_not_end_a_run(project: Project) -> None:
    running = project.popen("start", "X", "1", "auto", "--foreground")
    assert running.stderr is not None
    running.stderr.close()
    assert running.wait(60) == 0
    assert project.landed() == ["1"]


@pytest.mark.promise
def test_output_to_a_full_disk_is_exit_5(project: Project) -> None:
    ran = project.runplan_from('exec "$@" >/dev/full', "status", "X")
    assert (ran.code, ran.err) == (5, "runplan: cannot write the output: No space left on device\n")
