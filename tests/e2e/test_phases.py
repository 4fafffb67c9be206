"""Phases that land: what stands on the target afterwards, and how it got there."""

import re
from pathlib import Path

import pytest

from tests.support.cli import (
    SETTINGS,
    Meanwhile,
    Project,
    a_plan,
    assert_nothing_runs,
    fix,
    set_up,
    steps,
    verify,
    work,
    writes,
)
from tests.support.daemons import until_runs_are
from tests.support.foreign import read_commit


def subjects(project: Project, since: str) -> list[str]:
    return project.repo.git("log", "--reverse", "--format=%s", f"{since}..main").splitlines()


@pytest.mark.promise
def test_a_phase_lands_with_trailers_tracker_row_and_report(project: Project, tmp_path: Path) -> None:
    """The second agent commits nothing: what it leaves is committed for it, by name."""
    set_up(project, agent=writes("1") + writes("2", commit=False) + steps('write = ".runplan/note"', phase="2"))
    before = project.repo.head("main")

    project.start("auto").ends(0, "runplan: Done: 1 phase landed (1). Report: runplan report plans/X.md")
    assert subjects(project, before) == ["Write 1", "x: record phase 1 as done"]
    run = project.runplan("status", "X", "--json").json["run"]["id"]
    assert read_commit(project.path, "main~1").trailers == [
        ("Runplan-Plan", "plans/X.md"),
        ("Runplan-Phase", "1"),
        ("Runplan-Run", run),
        ("Runplan-Landing", f"{run}.1"),
    ]
    code = project.repo.head("main~1")
    assert project.show("main:plans/X.md") == a_plan("1", "2").replace(
        "| 1 — Step 1 | ⬚ | | |", f"| 1 — Step 1 | ✅ Done | `{code[:7]}` | |"
    ).rstrip("\n")

    assert "| X (`plans/X.md`) | active | 20" in project.show("main:reports/README.md")

    project.start("2", "auto").exits(0)
    assert "| X (`plans/X.md`) | done | 20" in project.show("main:reports/README.md")
    assert subjects(project, before)[2:] == ["Step 2", "x: record phase 2 as done"]
    assert project.repo.git("show", "--name-only", "--format=", "main~1") == "2.txt"
    assert project.repo.git("log", "-4", "--format=%an %cn", "main").splitlines() == ["Uma User Uma User"] * 4
    assert "status: complete\ncompleted: 2" in project.show("main:plans/X.md")
    report = project.show("main:reports/plan-x.md")
    assert report.index("## Phase — 2 Step 2") < report.index("## Phase — 1 Step 1")
    assert (project.path / "2.txt").read_text() == "2\n"
    assert project.repo.status() == ""
    assert project.leftovers() == []
    assert assert_nothing_runs(project)["run"]["outcome"] == "done"
    project.runplan("retry", "X").ends(0, "runplan: the last run of plans/X.md succeeded; nothing to retry")


@pytest.mark.promise
def test_a_failed_gate_is_fixed_and_the_baseline_is_reused(project: Project, tmp_path: Path) -> None:
    """The checks run once on the base, twice while red, once when mended; phase 2 starts from a known base."""
    count = tmp_path / "count"
    set_up(
        project,
        settings=f'[tests]\ncommand = "echo run >> {count}; ! grep -q wrong 1.txt"\nallow_red_baseline = true\n',
        agent=steps('write = "1.txt"\ntext = "wrong\\n"') + fix('write = "1.txt"\ntext = "right\\n"') + writes("2"),
    )

    ran = project.start("finish", "auto").ends(
        0, "runplan: Done: 2 phases landed (1, 2). Report: runplan report plans/X.md"
    )
    assert "gate       failed: exit code 1" in ran.err
    assert project.show("main:1.txt") == "right"
    assert project.landed() == ["1", "1", "2"]  # the fixer's commit lands after the implementer's
    assert len(count.read_text().splitlines()) == 1 + 2 + 1 + 1
    assert all("Before your work the test command says: " in one for one in project.prompts("implement"))
    (fixer,) = project.prompts("fix")
    assert "Run this first: the test command\n" in fixer


def test_a_branch_with_a_merge_lands_as_one_commit_of_its_author(project: Project) -> None:
    """A branch that is no line lands as one commit of its net change, by the agent where the settings say so."""
    set_up(
        project,
        settings='[run]\nsetup = "cp local.cfg made.log"\ncopy = ["local.cfg"]\nauthor = "agent"\nsignoff = true\n'
        'co_author = "Robot <robot@example.com>"\nbookkeeping_subject = "chore({plan}): {what}"\n',
        agent=steps(
            'run = "test -e made.log"',
            'git = ["checkout", "-q", "--detach"]',
            'write = "side.txt"',
            'commit = "Aside"',
            'git = ["checkout", "-q", "runplan/x/1"]',
            'write = "1.txt"',
            'commit = "Straight on"',
            'git = ["merge", "-q", "--no-edit", "HEAD@{2}"]',
        ),
    )
    project.repo.commit("Ignore", **{".gitignore": "local.cfg\nmade.log\n"})
    project.repo.write("local.cfg", "secret\n")
    before = project.repo.head("main")

    project.start("auto").exits(0)
    assert len(subjects(project, before)) == 2
    assert project.repo.git("log", "-1", "--format=%s", "main") == "chore(x): record phase 1 as done"
    keys = project.repo.git("log", "-2", "--format=%(trailers:key=Co-authored-by)%(trailers:key=Signed-off-by)", "main")
    signed = "Signed-off-by: Uma User <uma@example.org>"
    assert keys.split("\n\n") == [signed, f"Co-authored-by: Robot <robot@example.com>\n{signed}"]
    landed = project.repo.git("show", "--name-only", "--format=%an, %cn", "main~1").split("\n\n")
    assert landed == ["runplan agent, Uma User", "1.txt\nside.txt"]
    assert project.leftovers() == []


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        ({"1.txt": "1\n"}, "already-on-target: the target already holds every change"),
        (
            {"plans/X.md": a_plan("1", "2").replace("Step 1 | ⬚", "Step 1 | ✅ Done")},
            "phase 1 was marked done on the target meanwhile",
        ),
    ],
)
def test_work_that_is_on_the_target_already_is_not_landed_again(
    project: Project, meanwhile: Meanwhile, theirs: dict[str, str], says: str
) -> None:
    set_up(project, agent=work(*meanwhile.pause("implement")))
    running = meanwhile.begin(project, "implement", "start", "X", "1", "auto", "--foreground")
    project.repo.commit("The same", **theirs)
    tip = project.repo.head("main")
    meanwhile.finish(running, "implement").ends(1, "runplan: failed: already-on-target", says)
    assert project.repo.head("main") == tip


@pytest.mark.promise
def test_a_plan_with_all_rows_done_is_marked_complete(project: Project) -> None:
    set_up(project, plan=a_plan("1").replace("⬚", "✅ Done"), agent="")
    before = project.repo.head("main")
    project.start("finish", "auto").ends(
        0, "runplan: Done: the plan is marked complete. Report: runplan report plans/X.md"
    )
    assert subjects(project, before) == ["x: mark the plan complete"]
    assert project.repo.git("diff", "--name-only", before, "main") == "plans/X.md"
    again = project.start("finish", "auto")
    assert (again.code, again.err) == (0, "runplan: plans/X.md: the plan is already complete; nothing to do\n")


@pytest.mark.promise
def test_finish_works_what_does_not_depend_on_a_blocked_phase_and_then_fails(project: Project) -> None:
    plan = a_plan("1", "2", "3", "4", depends={"3": "Phase 1."}).replace("Step 1 | ⬚", "Step 1 | 🔴 Blocked")
    plan = plan.replace("Step 4 | ⬚", "Step 4 | 🔴 Blocked")
    set_up(project, plan=f"{plan}\n> **Landing mode: PR**\n", agent=writes("2"))
    dry = project.runplan("start", "X", "finish", "auto", "--dry-run").out
    assert [line[:25] for line in dry.splitlines() if line.startswith("phase ")] == [
        *("phase 2     Step 2", "phase 1     is not worked", "phase 3     is not worked", "phase 4     is not worked")
    ]
    project.start("finish", "auto").ends(
        1,
        "runplan: failed: blocked",
        "to use it, add the word: runplan start plans/X.md pr\n",
        "runplan: phase 1 is marked blocked; ",
        "; phase 3 waits for 1; phase 4 is marked blocked",
    )
    assert project.landed() == ["2"]
    shown = project.runplan("status", "X")
    assert "  4  Blocked         Step 4\n     It is marked blocked; " in shown.out
    assert project.runplan("status", "X", "--json").json["next"] is None
    again = project.start("finish", "auto")
    assert (again.code, project.landed()) == (2, ["2"])
    assert (asked := project.start("3")).code == 2
    assert asked.err.count("\n") == 1


@pytest.mark.promise
def test_a_moved_target_is_gated_again_and_landed_on(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    """Checked again, judged once: the report names both trees. The plan's new text stays."""
    count = tmp_path / "count"
    set_up(
        project,
        settings=f'[tests]\ncommand = "echo run >> {count}"\n',
        agent=work() + verify(*meanwhile.pause("verify"), "pass_all = true"),
    )
    running = meanwhile.begin(project, "verify", "start", "X", "1", "auto", "--foreground")
    edited = a_plan("1", "2").replace("- [ ] Write 2.txt", "- [ ] Write 2.txt and more")
    project.repo.commit("Meanwhile", **{"plans/X.md": edited, "other.txt": "other\n"})
    theirs = project.repo.head("main")
    ran = meanwhile.finish(running, "verify").exits(0, f"the target moved to {theirs[:12]}; building again")
    assert project.repo.git("rev-parse", "main~2") == theirs
    assert ran.err.count("  verify ") == 1
    # The base and the candidate on it; the target as it is now, and the candidate on that.
    assert len(count.read_text().splitlines()) == 4
    assert "Write 2.txt and more" in project.show("main:plans/X.md")
    report = project.show("main:reports/plan-x.md")
    assert "| W1 | Write 1.txt | pass |" in report
    assert f"carried over to tree `{project.repo.tree('main~1')}` (the same patch)" in report


@pytest.mark.promise
def test_a_conflict_gets_one_fix_on_the_new_tip(project: Project, meanwhile: Meanwhile) -> None:
    set_up(
        project,
        agent=work(*meanwhile.pause("implement")) + fix('append = "1.txt"\ntext = "and ours\\n"', 'commit = "Redo 1"'),
    )
    running = meanwhile.begin(project, "implement", "start", "X", "1", "auto", "--foreground")
    project.repo.commit("Theirs", **{"1.txt": "theirs\n"})
    meanwhile.finish(running, "implement").exits(0, "conflicts in 1.txt")
    assert project.show("main:1.txt") == "theirs\nand ours"
    assert project.leftovers() == ["refs/runplan/parked/x/1/1"]
    assert project.show("refs/runplan/parked/x/1/1:1.txt") == "1"


def test_an_unsolved_conflict_names_its_files_and_the_kept_work(project: Project, meanwhile: Meanwhile) -> None:
    """The fixer commits the markers of an attempt to bring the kept work over, which stops at the conflict."""
    tries = 'git = ["-c", "alias.try=!git cherry-pick refs/runplan/parked/x/1/1 || true", "try"]'
    set_up(project, agent=work(*meanwhile.pause("implement")) + fix(tries, 'commit = "Redo 1"\nall = true'))
    running = meanwhile.begin(project, "implement", "start", "X", "1", "auto", "--foreground")
    tip = project.repo.commit("Theirs", **{"1.txt": "theirs\n"})
    ran = meanwhile.finish(running, "implement").ends(1, "runplan: failed: conflict")
    report = project.runplan("report", "X").out
    for printed in (ran.err, report):
        assert "the fixer did not solve the conflict in 1.txt" in printed
        assert "the work is kept at refs/runplan/parked/x/1/1" in printed
    assert "**Failed at:** fix" in report
    assert project.show("refs/runplan/parked/x/1/1:1.txt") == "1"
    assert project.repo.head("main") == tip
    assert_nothing_runs(project)


# --- several verifiers, and the end of a plan ------------------------------------------------------------


SECOND = """\
[agents.second]
kind = "script"
script = "second.toml"
"""


def two_verifiers(project: Project, second: str) -> None:
    both = SETTINGS.replace('verifier = "robot"', 'verifiers = ["robot", "second"]')
    project.repo.write("runplan.toml", both + SECOND)
    project.repo.write("second.toml", second)
    project.repo.commit("Two verifiers")


@pytest.mark.promise
def test_all_verifiers_have_to_pass_on_the_same_tree(project: Project) -> None:
    two_verifiers(project, steps("pass_all = true", role="verify"))
    project.start("1", "auto").exits(0)
    verdicts = project.bodies("VerdictGiven")
    assert [verdict["agent"] for verdict in verdicts] == ["robot", "second"]
    assert len({verdict["tree"] for verdict in verdicts}) == 1
    report = project.show("main:reports/plan-x.md")
    assert "Verdict: pass by `robot`" in report
    assert "Verdict: pass by `second`" in report


@pytest.mark.promise
def test_finish_verifies_all_phases_on_the_last_candidate(project: Project) -> None:
    project.start("finish", "auto").exits(0)
    *_, last = project.bodies("VerdictGiven")
    assert (last["scope"], [item[0] for item in last["items"]]) == ("final", ["F1", "F2"])
    *_, prompt = project.prompts("verify")
    assert prompt.startswith("# Verify the whole plan\n")
    assert "## Phase 1 — Step 1" in prompt
    assert re.findall(r"^diff --git a/(\S+) ", prompt, re.MULTILINE) == ["1.txt", "2.txt"], "no file of runplan's own"
    assert "Verdict on all phases: pass by `robot`" in project.show("main:reports/plan-x.md")


def test_a_parent_holds_the_end_of_a_plan_until_its_ref_is_gone(project: Project) -> None:
    """It is looked for after 10, 20, 40 and then every 60 minutes, and the last phase lands once."""
    ref = "refs/runplan/requires/x"
    project.repo.git("update-ref", ref, "main")
    assert project.runplan("start", "X", "finish", "auto").code == 0
    until_runs_are(project, "waiting")
    (pause,) = [body for body in project.bodies("Paused") if body["kind"] == "parent"]
    assert f"git update-ref -d {ref}" in pause["words"]
    assert project.landed() == ["1"]
    project.repo.git("update-ref", "-d", ref)
    assert project.runplan("retry", "X").code == 0
    until_runs_are(project, "done")
    assert project.landed() == ["1", "2"]
    assert len([body for body in project.bodies("DispatchStarted") if body["scope"]]) == 1


# --- numbers in a plan that do not fit -------------------------------------------------------------------


CRITERIA = """
### Acceptance Criteria

- No number here
- 1.txt has 340-380 lines
- At most 50 files
"""


def says(actual: str) -> str:
    return f"say = 'PLAN-TEXT-DRIFT: phase=1 bullet=1 field=lines plan=340-380 actual={actual}'"


@pytest.mark.promise
def test_a_small_difference_is_corrected_with_an_audit_comment_in_the_bookkeeping_commit(project: Project) -> None:
    project.plan(a_plan("1") + CRITERIA)
    project.agent(work() + verify(says(actual="343 lines"), "pass_all = true"))
    project.start("1", "auto").exits(0)
    plan = project.show("main:plans/X.md")
    assert "- 1.txt has 325-361 lines <!-- Auto-corrected 20" in plan
    assert ": was 340-380, arithmetic says 343 -->\n" in plan
    assert plan.endswith("- At most 50 files")
    assert project.show("main~1:plans/X.md") == project.show("main~2:plans/X.md"), "the code commit leaves it alone"
    assert "criterion 1: corrected from 340-380 to 325-361" in project.show("main:reports/plan-x.md")


@pytest.mark.promise
def test_a_large_difference_fails_the_phase(project: Project) -> None:
    project.plan(a_plan("1") + CRITERIA)
    project.agent(work(says(actual="277")))
    project.start("1", "auto").ends(1, "runplan: failed: drift")
    assert project.landed() == []
    assert "criterion" in project.runplan("report", "X").out
