"""Where a run lands, under which names, and in which states of the user's checkout."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cli import Project, a_plan, a_project, steps
from tests.support.landings import Snapshot, snapshot
from tests.support.repos import Repo


def on(repo: Repo, branch: str) -> int:
    """How often phase 1 landed there."""
    return repo.git("log", "--format=%s", branch).split("\n").count("Write 1")


@pytest.mark.promise
def test_an_approved_change_lands_on_the_target_of_its_run_which_status_report_and_undo_use(project: Project) -> None:
    project.repo.git("branch", "dev")
    assert project.start("1", RUNPLAN_RUN_TARGET="dev").code == 4
    project.runplan("approve", "X").exits(0)
    assert (on(project.repo, "main"), on(project.repo, "dev")) == (0, 1)
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "done"
    assert "## Phase — 1 Step 1" in project.runplan("report", "X").out
    project.runplan("undo", "X", "1").exits(0)
    assert "1.txt" not in project.repo.git("ls-tree", "--name-only", "dev")
    assert project.leftovers() == []


def test_a_plan_keeps_its_report_when_a_namesake_appears(project: Project) -> None:
    assert project.start("1", "auto").code == 0
    project.plan(a_plan("1"), "plans/other/X.md")
    assert project.runplan("start", "plans/X.md", "2", "auto", "--foreground").code == 0
    reports = project.repo.git("ls-tree", "--name-only", "main", "reports/").split()
    assert reports == ["reports/README.md", "reports/plan-x.md"]
    assert project.runplan("report", "plans/X.md").out.count("## Phase") == 2


@pytest.mark.parametrize("how", ["--foreground", "--wait"])
def test_a_run_ends_well_although_it_removes_the_directory_of_its_start(project: Project, how: str) -> None:
    project.commit_file("old/a.txt", "a")
    project.shell_agent("git rm -qr old; echo 1 >1.txt; git add -A; git commit -qm Work")
    words = ("start", "X", "1", "auto", how)
    ran = project.runplan_in(project.path / "old", *words)
    assert (ran.code, project.landed(), (project.path / "old").exists()) == (0, ["1"], False), ran.err
    (project.path / "old").mkdir()
    gone = project.runplan_from('rmdir ../old; exec "$@"', *words, cwd=project.path / "old")
    assert (gone.code, gone.err) == (2, "runplan: the current directory is gone; go to the repository first\n")


# --- the user's checkout ---------------------------------------------------------------------------------


#: Changes, adds and deletes, next to what the landing itself writes: the plan's row and the report.
AGENT = steps(
    *('write = "a.txt"\ntext = "landed\\n"', 'write = "new.txt"\ntext = "new\\n"', 'delete = "gone.txt"'),
    *('git = ["add", "--force", "new.txt"]', 'commit = "Do it"\nall = true'),
)
ARRIVES = {"a.txt": b"landed\n", "new.txt": b"new\n"}
WRITTEN = {*ARRIVES, "gone.txt", "plans/X.md", "reports/plan-x.md", "reports/README.md"}
#: Reflog words of commands that must never run in a user's checkout.
FORBIDDEN = ("checkout", "reset", "rebase", "pull", "merge", "WIP", "On ")


def theirs(repo: Repo) -> Snapshot:
    """Everything in a checkout that is the user's, but for what the landing writes."""
    seen = snapshot(repo)
    index = [line for line in seen.index.splitlines() if line.partition("\t")[2] not in WRITTEN]
    refs = {ref: oid for ref, oid in seen.refs.items() if "runplan/" not in ref and ref != "refs/heads/main"}
    files = {path: file for path, file in seen.files.items() if path not in WRITTEN}
    return replace(seen, files=files, index="\n".join(index), refs=refs, leftovers=())


def log_of(repo: Repo) -> list[str]:
    return repo.git("reflog", "HEAD", "--format=%gs").splitlines()


@pytest.mark.promise
def test_a_landing_waits_for_the_checkout_and_then_updates_it_and_keeps_every_edit(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    repo = project.repo
    repo.commit("More", **{"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n", "agent.toml": AGENT})
    repo.write("b.txt", "staged\n")
    repo.write("staged.txt", "new and staged\n")
    repo.git("add", "b.txt", "staged.txt")
    repo.write("b.txt", "staged, then edited\n")
    repo.write("a.txt", "my edit\n")
    before, log, tip = theirs(repo), log_of(repo), repo.head("main")

    ran = project.start("finish", "auto")

    said = f"a.txt is edited in {repo.path}; commit that change or undo it"
    assert (ran.code, said in ran.err) == (4, True), ran.err
    assert ran.last == "runplan: Explain: runplan explain plans/X.md 1; Continue: runplan retry plans/X.md"
    status = project.runplan("status").out
    assert said in status
    assert "Continue: runplan retry plans/X.md" in status
    approved = project.runplan("approve", "X")
    landing = f"its landing waits: {said}; then: runplan retry plans/X.md"
    needless = f"runplan: phase 1 of plans/X.md needs no further approval; {landing}"
    assert (approved.code, approved.last) == (4, needless)
    assert (theirs(repo), log_of(repo), repo.head("main")) == (before, log, tip)
    assert (repo.path / "a.txt").read_text() == "my edit\n"

    repo.write("a.txt", "a\n")
    project.go_on(ran).exits(0)
    assert theirs(repo) == before
    fresh = log_of(repo)[: -len(log)]
    assert log_of(repo) == [*fresh, *log]
    assert not [entry for entry in fresh if entry.startswith(FORBIDDEN)], fresh
    assert {path: (repo.path / path).read_bytes() for path in ARRIVES} == ARRIVES
    assert not (repo.path / "gone.txt").exists()
    assert not WRITTEN & {line[3:] for line in repo.status().splitlines()}
    assert project.landed() == ["1"]
    assert repo.git("log", "--format=%s", "main").count("record phase 1 as done") == 1
    assert "| 1 — Step 1 | ✅ Done |" in project.show("main:plans/X.md")
    assert project.leftovers() == []
    assert project.dispatched() == ["implement", "verify"]
