"""The first minutes with runplan, and the last one: `runplan` alone, and `uninstall`."""

import json
from pathlib import Path

import pytest

from runplan.adapters.store.files import file_lock
from tests.support.cli import Project, a_plan, a_project, until, work
from tests.support.daemons import daemon_of

pytestmark = pytest.mark.promise


def test_runplan_alone_says_what_to_do_next_here(project: Project, tmp_path: Path) -> None:
    project.agent(work())
    assert "  runplan start plans/X.md finish auto\n" in project.runplan().out
    (project.path / "plans/X.md").write_text(a_plan("1", "2", "3"))
    changed = project.runplan().out
    assert "  git add plans/X.md && git commit -m 'Plan x' -- plans/X.md\n" in changed
    assert "runplan start" not in changed
    project.repo.git("checkout", "-q", "plans/X.md")
    assert project.start("1").code == 4
    assert project.runplan("report", "X").last.endswith(" yet; see: runplan status plans/X.md")
    steps = [line.strip() for line in project.runplan().out.splitlines() if line.startswith("  runplan ")]
    assert steps == ["runplan diff plans/X.md 1", 'runplan plan "GOAL"', "runplan status", "runplan help"]
    missing = project.runplan(RUNPLAN_AGENTS_IMPLEMENTER="claude").out
    assert "  runplan doctor\n" in missing
    assert 'runplan plan "GOAL"' not in missing
    new = tmp_path / "new"
    new.mkdir()
    outside = project.runplan_in(new)
    assert (outside.code, "  cd REPOSITORY\n" in outside.out, "  runplan demo\n" in outside.out) == (0, True, True)
    project.repo.git("init", "--quiet", str(new))
    assert "  runplan init\n" in project.runplan_in(new).out


def test_start_needs_no_name_where_one_plan_is_open(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.agent(work())
    project.commit_file("plans/Y.md", a_plan("1"))
    project.runplan("start", "finish", "auto").ends(3, "runplan: 2 plans are open, name one: plans/X.md, plans/Y.md")
    project.commit_file("plans/Y.md", a_plan("1", front="status: draft"))
    assert "plans/Y.md" not in project.runplan().out
    assert "plan        plans/X.md (X)" in project.runplan("start", "--dry-run").out
    assert project.runplan("start", "Finish", "auto", "--foreground").code == 0
    assert project.landed() == ["1"]
    done = project.runplan("start")
    put_off = "open; to have a plan worked, write status: active into it: plans/Y.md (draft)"
    assert (done.code, done.last) == (3, f"runplan: no plan under plans/ is {put_off}")
    assert project.runplan("queue").out == f"No plan is {put_off}\n"
    assert project.runplan("status").out.startswith("Plans: 1 done, 1 draft\n")


@pytest.mark.rest
def test_uninstall_keeps_work_that_did_not_land(project: Project, tmp_path: Path) -> None:
    project.agent(work())
    assert project.runplan("start", "X", "1", "--wait").code == 4  # it waits for a person
    state = project.path / ".git/runplan"
    home = tmp_path / "home/.local/state/runplan"
    refused = project.runplan("uninstall")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.endswith("plans/X.md: a run or a schedule is not ended; end it first: runplan stop\n")
    shown = project.runplan("uninstall", "--dry-run")
    assert (shown.code, f"remove  {state}\n" in shown.out) == (0, True), shown.err
    assert "uninstall would be refused: plans/X.md: a run or a schedule is not ended" in shown.err
    assert state.is_dir()
    assert project.runplan("stop").code == 0
    until(lambda: "would be refused" not in project.runplan("uninstall", "--dry-run").err)  # the run has ended

    listed = project.runplan("uninstall", "--dry-run")
    assert f"remove  {state}\n" in listed.out
    assert state.is_dir()
    assert daemon_of(project)
    answers = project.runplan("uninstall", "--json").json
    assert {"answer": "removed", "what": str(state), "parked": ""} in answers
    assert {"answer": "removed", "what": str(home), "parked": ""} in answers
    (kept,) = [answer for answer in answers if answer["answer"] == "kept" and answer["tip"]]
    assert project.repo.refs()[kept["what"]] == kept["tip"]
    project.repo.git("fsck", "--connectivity-only")
    assert (state.exists(), home.exists(), project.worktrees.exists()) == (False, False, False)
    assert project.repo.status() == ""
    assert "plans" in [answer["what"] for answer in answers if answer["answer"] == "kept"]

    assert project.runplan("uninstall", "--delete-work").code == 0
    assert [ref for ref in project.repo.refs() if "runplan" in ref] == []
    project.repo.git("rm", "-rq", "plans", "runplan.toml")
    assert project.runplan("uninstall", "--dry-run").out == "Nothing of runplan is left here\n"


def test_uninstall_refuses_where_something_would_be_lost(project: Project, tmp_path: Path) -> None:
    assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
    state = project.path / ".git/runplan"
    home = tmp_path / "home/.local/state/runplan"

    dispatch = next((state / "dispatch").glob("*/lock"))
    with file_lock(dispatch):
        refused = project.runplan("uninstall")
    assert (refused.code, str(dispatch) in refused.err) == (2, True)

    # A ref that only runplan's own repository has, and that it cannot give to the user.
    tree = project.repo.git("rev-parse", "HEAD^{tree}").strip()
    project.repo.git(f"--git-dir={state / 'tool.git'}", "update-ref", "refs/runplan/parked/tree", tree)
    project.runplan("uninstall").exits(2, "refs/runplan/parked/tree in ")
    assert (state.is_dir(), home.is_dir()) == (True, True)
    assert daemon_of(project)

    absent = json.dumps({"common": str(tmp_path / "disk/.git"), "root": str(tmp_path / "disk")})
    (home / "repositories/absent.json").write_text(absent)
    answers = project.runplan("uninstall", "--delete-work", "--json").json
    (kept,) = [answer["why"] for answer in answers if answer["what"] == str(home)]
    assert kept.startswith(f"{tmp_path / 'disk'} is not there; make it reachable, or delete ")
    assert (state.exists(), home.is_dir()) == (False, True)

    (home / "repositories/absent.json").unlink()
    (home / "fleet").mkdir()
    assert f"keep    {home / 'fleet'}: " in project.runplan("uninstall").out
    assert home.is_dir()
