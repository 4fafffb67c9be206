"""A phase lands in every state of the user's checkout, and no edit of the user is changed or lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cli import a_project
from tests.support.landings import Snapshot, snapshot
from tests.support.repos import Repo

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
