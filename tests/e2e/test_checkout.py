"""A phase lands in every state of the user's checkout, and no edit of the user is changed or lost."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, copied
from tests.support.landings import files_of
from tests.support.repos import Repo

pytestmark = pytest.mark.promise

#: Changes, adds and deletes, next to what the landing itself writes: the plan's row and the report.
AGENT = """\
[[phase."1".implement]]
write = "a.txt"
text = "landed\\n"
[[phase."1".implement]]
write = "new.txt"
text = "new\\n"
[[phase."1".implement]]
delete = "gone.txt"
[[phase."1".implement]]
git = ["add", "--force", "new.txt"]
[[phase."1".implement]]
commit = "Do it"
all = true
"""
ARRIVES = {"a.txt": b"landed\n", "new.txt": b"new\n"}
WRITTEN = {*ARRIVES, "gone.txt", "plans/X.md", "reports/plan-x.md", "reports/README.md"}
#: Reflog words of commands that must never run in a user's checkout.
FORBIDDEN = ("checkout", "reset", "rebase", "pull", "merge", "WIP", "On ")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = a_project(tmp_path_factory.mktemp("model"), "1")
    project.repo.commit("More", **{"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n", "agent.toml": AGENT})
    return project


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Project:
    return copied(model, tmp_path)


@dataclass(frozen=True, kw_only=True)
class Theirs:
    """Everything in a checkout that is the user's."""

    files: dict[str, tuple[str, bytes]]
    index: list[str]
    stash: str
    head: str
    branches: dict[str, str]
    log: list[str]


def theirs(repo: Repo) -> Theirs:
    return Theirs(
        files=files_of(repo.path),
        index=repo.git("ls-files", "--stage", "-t").splitlines(),
        stash=repo.git("stash", "list", "--format=%H %gs"),
        head=repo.git("symbolic-ref", "-q", "HEAD", ok=False) or repo.head(),
        branches={
            ref: oid for ref, oid in repo.refs().items() if not ref.startswith(("refs/runplan/", "refs/bisect/"))
        },
        log=repo.git("reflog", "HEAD", "--format=%gs").splitlines(),
    )


def nothing_was_run_in(before: Theirs, after: Theirs) -> None:
    """The reflogs show no stash, reset or checkout."""
    assert after.stash == before.stash
    fresh = after.log[: len(after.log) - len(before.log)]
    assert after.log[len(fresh) :] == before.log
    assert not [entry for entry in fresh if entry.startswith(FORBIDDEN)], fresh


def without(paths: set[str], found: dict[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
    return {path: file for path, file in found.items() if path not in paths}


def unrelated(index: list[str]) -> list[str]:
    return [line for line in index if line.partition("\t")[2] not in WRITTEN]


def landed_once(project: Project) -> None:
    assert project.landed() == ["1"]
    assert project.repo.git("log", "--format=%s", "main").count("record phase 1 as done") == 1
    assert project.show("main:a.txt") == "landed"
    assert "| 1 — Step 1 | ✅ Done |" in project.show("main:plans/X.md")
    assert project.leftovers() == []
    assert project.dispatched() == ["implement", "verify"]


# --- it lands, and the checkout follows ---------------------------------------------------------------


def test_a_landing_updates_the_checkout_and_keeps_every_edit(project: Project) -> None:
    project.repo.write("b.txt", "staged\n")
    project.repo.write("staged.txt", "new and staged\n")
    project.repo.git("add", "b.txt", "staged.txt")
    project.repo.write("b.txt", "staged, then edited\n")
    before = theirs(project.repo)
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    after = theirs(project.repo)
    assert without(WRITTEN, after.files) == without(WRITTEN, before.files)
    assert {path: after.files[path][1] for path in ARRIVES} == ARRIVES
    assert "gone.txt" not in after.files
    assert unrelated(after.index) == unrelated(before.index)
    assert after.head == before.head
    assert after.branches == before.branches | {"refs/heads/main": project.repo.head("main")} | stashes(project.repo)
    assert not WRITTEN & {line[3:] for line in project.repo.status().splitlines()}
    nothing_was_run_in(before, after)
    landed_once(project)


def stashes(repo: Repo) -> dict[str, str]:
    return {ref: oid for ref, oid in repo.refs().items() if ref == "refs/stash"}


# --- it waits, says for what, and goes on when asked ----------------------------------------------------


def test_a_landing_waits_for_the_checkout_and_lands_once_on_retry(project: Project) -> None:
    repo = project.repo
    repo.write("a.txt", "my edit\n")
    before, tip = theirs(repo), repo.head("main")
    said = f"a.txt is edited in {repo.path}; commit that change or undo it"
    ran = project.start("finish", "auto")
    assert ran.code == 4, ran.err
    assert said in ran.err
    assert ran.last == "runplan: Explain: runplan explain plans/X.md 1; Continue: runplan retry plans/X.md"
    status = project.runplan("status").out
    assert said in status
    assert "Continue: runplan retry plans/X.md" in status
    assert without_ours(theirs(repo)) == before
    assert repo.head("main") == tip
    repo.git("stash", "-q")
    settled = theirs(repo)
    again = project.go_on(ran)
    assert again.code == 0, again.err
    after = theirs(repo)
    assert without(WRITTEN, after.files) == without(WRITTEN, settled.files)
    nothing_was_run_in(settled, after)
    landed_once(project)


def without_ours(found: Theirs) -> Theirs:
    """The branch of the phase that waits is runplan's own."""
    branches = {ref: oid for ref, oid in found.branches.items() if not ref.startswith("refs/heads/runplan/")}
    return Theirs(**{**{slot: getattr(found, slot) for slot in found.__dataclass_fields__}, "branches": branches})


# --- the target is not what the main checkout shows -----------------------------------------------------


def test_a_landing_updates_the_worktree_that_has_the_target_checked_out(project: Project, tmp_path: Path) -> None:
    project.repo.git("switch", "-qc", "topic")
    project.repo.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    other = project.repo.at(tmp_path / "other")
    other.write("b.txt", "edited there\n")
    before = theirs(project.repo)
    ran = project.start("finish", "auto")
    assert ran.code == 0, ran.err
    assert (other.path / "a.txt").read_text() == "landed\n"
    after = theirs(project.repo)
    assert (after.files, after.index, after.head, after.log) == (before.files, before.index, before.head, before.log)
    assert other.status() == " M b.txt"
    project.repo.git("worktree", "remove", "--force", str(other.path))
    landed_once(project)
