"""While an agent works, users go on working: they are never accused, and an agent that reaches out always is."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, Ran, a_project, copied, end_processes_of, ended, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.repos import Repo


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = a_project(tmp_path_factory.mktemp("model"), "1")
    repo = project.repo
    repo.commit("More", **{"a.txt": "a\n", "b.txt": "b\n"})
    repo.git("branch", "feature")
    repo.git("branch", "doomed")
    repo.git("tag", "v1")
    repo.write("b.txt", "in the first stash\n")
    repo.git("stash", "-q")
    return project


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    project = copied(model, tmp_path)
    yield project
    end_processes_of(project.home)


def steps(*told: str, role: str = "implement") -> str:
    return "".join(f'[[phase."1".{role}]]\n{one}\n' for one in told)


WORK = ('write = "1.txt"\ntext = "1\\n"', 'commit = "Write 1"')


# --- the user -----------------------------------------------------------------------------------------


def edits(user: Repo) -> None:
    user.write("a.txt", "edited\n")
    user.write("mine.txt", "new\n")
    user.git("add", "mine.txt")


def switches(user: Repo) -> None:
    user.git("switch", "-qc", "topic")


def makes_and_deletes_branches(user: Repo) -> None:
    user.git("branch", "fresh")
    user.git("branch", "-qD", "doomed")
    user.git("branch", "-m", "feature", "feature2")
    user.git("tag", "v2")


def stashes(user: Repo) -> None:
    user.write("a.txt", "in the second stash\n")
    user.git("stash", "-q")


def drops_a_stash(user: Repo) -> None:
    user.git("stash", "drop", "-q")


def sets_configuration(user: Repo) -> None:
    user.git("config", "core.editor", "vi")
    user.git("remote", "add", "origin", "https://example.org/x.git")


def adds_a_hook(user: Repo) -> None:
    user.write(".git/hooks/pre-commit", "#!/bin/sh\nexit 1\n").chmod(0o755)


def commits_on_another_branch(user: Repo) -> None:
    user.git("switch", "-q", "feature")
    user.commit("Mine", **{"mine.txt": "mine\n"})
    user.git("commit", "-q", "--amend", "-m", "Mine, better")


USER = {
    "edits and settings": (edits, sets_configuration, adds_a_hook),
    "branches and stashes": (makes_and_deletes_branches, stashes),
    "elsewhere": (drops_a_stash, commits_on_another_branch, switches),
}


def meanwhile(project: Project, place: Path, act: Callable[[Repo], object]) -> Ran:
    """A whole run, in which `act` happens in the user's checkout while the implementer works."""
    here, go = place / "here", place / "go"
    project.agent(steps(f'write = "{here}"', f'wait_for = "{go}"', *WORK))
    process = project.popen("start", "X", "finish", "auto", "--foreground")
    try:
        until(here.exists)
        act(project.repo)
    finally:
        go.touch()
        ran = ended(process)
    return ran


@pytest.mark.parametrize("what", USER)
def test_what_the_user_does_meanwhile_is_neither_undone_nor_laid_at_the_agents_door(
    project: Project, tmp_path: Path, what: str
) -> None:
    after: list[object] = []

    def played(user: Repo) -> None:
        for act in USER[what]:
            act(user)
        after.append(theirs(project))

    ran = meanwhile(project, tmp_path, played)
    assert ran.code == 0, ran.err
    assert "the agent changed" not in ran.err
    assert [theirs(project)] == after
    assert project.landed() == ["1"]


def theirs(project: Project) -> dict[str, object]:
    """What the user's work is kept in, without what the landing moves."""
    repo = project.repo
    ours = ("refs/heads/main", "refs/heads/runplan/", "refs/runplan/")
    written = {"1.txt", "plans/X.md", "reports/plan-x.md"}
    return {
        "refs": {ref: oid for ref, oid in repo.refs().items() if not ref.startswith(ours)},
        "head": (repo.path / ".git/HEAD").read_text(),
        "stash": repo.git("stash", "list", "--format=%H"),
        "config": (repo.path / ".git/config").read_text(),
        "hooks": {path.name: path.read_bytes() for path in (repo.path / ".git/hooks").iterdir()},
        "status": [line for line in repo.status().splitlines() if line[3:] not in written],
        "files": {
            name: (repo.path / name).read_bytes() for name in ("a.txt", "mine.txt") if (repo.path / name).exists()
        },
    }


def test_a_commit_of_the_users_on_the_target_is_landed_upon_and_the_verdict_carried_over(
    project: Project, tmp_path: Path
) -> None:
    here, go = tmp_path / "here2", tmp_path / "go2"
    project.agent(steps(*WORK) + steps(f'write = "{here}"', f'wait_for = "{go}"', "pass_all = true", role="verify"))
    process = project.popen("start", "X", "finish", "auto", "--foreground")
    try:
        until(here.exists)
        mine = project.repo.commit("Mine", **{"mine.txt": "mine\n"})
    finally:
        go.touch()
        ran = ended(process)
    assert ran.code == 0, ran.err
    assert project.repo.git("log", "--format=%s", "--reverse", f"{mine}..main").splitlines() == [
        "Write 1",
        "x: record phase 1 as done",
    ]
    assert project.dispatched() == ["implement", "verify"]
    assert "carried over to tree" in project.show("main:reports/plan-x.md")
    assert project.repo.status() == ""
    assert (project.path / "mine.txt").read_text() == "mine\n"


def test_a_target_that_is_gone_is_named_and_the_run_goes_on_when_it_is_back(project: Project, tmp_path: Path) -> None:
    ran = meanwhile(project, tmp_path, lambda user: user.git("branch", "-m", "main", "trunk"))
    helps = "make it again; what was made is kept, go on with: runplan retry plans/X.md"
    assert (ran.code, ran.last) == (5, f"runplan: the branch main is gone; {helps}")
    project.repo.git("branch", "-m", "trunk", "main")
    again = project.start("finish", "auto")
    assert again.code == 0, again.err
    assert project.dispatched() == ["implement", "verify"]


# --- the agent ----------------------------------------------------------------------------------------

#: By what the agent tells of itself: a tool event names the thing.
TOLD = {
    'move_ref = {ref = "refs/heads/main", to = "HEAD"}': "the ref refs/heads/main",
    'move_ref = {ref = "refs/heads/doomed", to = ""}': "the ref refs/heads/doomed",
    'config = {key = "core.editor", value = "vi"}': "the config config",
    'hook = {name = "pre-commit", text = "#!/bin/sh\\nexit 1\\n"}': "the hook hooks/pre-commit",
}
#: By what git itself writes down: reflogs, taggers and its trace.
UNTOLD = {
    'git = ["branch", "-f", "feature", "HEAD"]': "the ref refs/heads/feature",
    'git = ["branch", "-D", "doomed"]': "the ref refs/heads/doomed",
    'git = ["branch", "fresh"]': "the ref refs/heads/fresh",
    'git = ["tag", "v2"]': "the ref refs/tags/v2",
    'git = ["tag", "-a", "-m", "x", "v3"]': "the ref refs/tags/v3",
    'git = ["config", "core.hooksPath", "/nowhere"]': "the config config",
    'git = ["stash", "drop"]': "the stash refs/stash",
    'git = ["switch", "-qc", "also-fresh"]\nin_main = true': "the head HEAD",
}


@pytest.mark.parametrize("misdeeds", [TOLD, UNTOLD], ids=["told", "untold"])
def test_what_an_agent_changes_in_the_main_repository_is_named_and_put_back(
    project: Project, misdeeds: dict[str, str]
) -> None:
    project.agent(steps(*WORK, *misdeeds))
    before, tip = theirs(project), project.repo.head("main")
    ran = project.start("finish", "auto")
    violated(project, ran, *misdeeds.values())
    assert theirs(project) == before
    assert project.repo.head("main") == tip
    assert project.repo.status() == ""
    assert project.repo.git("log", "-1", "--format=%s", "runplan/x/1") == "Write 1"


def violated(project: Project, ran: Ran, *told: str) -> None:
    assert ran.code == 1, ran.err
    assert ran.last == "runplan: failed: guard-violated"
    report = project.runplan("report", "X").out
    assert "**Reason:** `guard-violated`" in report
    for one in told:
        assert f"the agent changed {one}" in ran.err
        assert f"the agent changed {one}" in report
    assert project.landed() == []


def test_the_value_an_agent_gave_is_kept_aside(project: Project) -> None:
    project.agent(steps(*WORK, *TOLD))
    assert project.start("finish", "auto").code == 1
    parked = {ref: oid for ref, oid in project.repo.refs().items() if ref.startswith("refs/runplan/parked/guard/")}
    assert list(parked.values()) == [project.repo.head("runplan/x/1")]
    assert "editor = vi" in (project.path / ".git/runplan/parked-files/config.1").read_text()
    assert next(iter(parked)) in project.runplan("gc", "--dry-run").out


def test_a_runner_killed_before_it_puts_things_back_does_so_when_started_again(project: Project) -> None:
    project.agent(steps(*WORK, *TOLD))
    before, tip = theirs(project), project.repo.head("main")
    assert project.start("finish", "auto", RUNPLAN_TEST_KILL="Await.restore").code == -signal.SIGKILL
    assert theirs(project) != before
    violated(project, project.start("finish", "auto"), "the ref refs/heads/main")
    assert theirs(project) == before
    assert project.repo.head("main") == tip
    assert project.dispatched() == ["implement"]


def test_an_agent_that_stashes_the_users_edit_loses_nothing_of_it(project: Project) -> None:
    project.agent(steps(*WORK, 'git = ["stash"]\nin_main = true'))
    project.repo.write("a.txt", "my edit\n")
    ran = project.start("finish", "auto")
    violated(project, ran, "the stash refs/stash")
    parked = [ref for ref in project.repo.refs() if ref.startswith("refs/runplan/parked/guard/")]
    assert [project.show(f"{ref}:a.txt") for ref in parked] == ["my edit"]
    assert project.repo.git("stash", "list", "--format=%H").count("\n") == 0


def test_an_agent_that_checks_out_another_commit_for_the_user_is_accused_and_the_way_back_is_told(
    project: Project,
) -> None:
    project.agent(steps(*WORK, 'git = ["switch", "-q", "feature"]\nin_main = true'))
    ran = project.start("finish", "auto")
    violated(project, ran, "the head HEAD")
    assert "it was left as it is; to go back: git switch main" in project.runplan("report", "X").out
    assert project.repo.git("symbolic-ref", "HEAD") == "refs/heads/feature"


def test_a_file_of_the_checkout_that_an_agent_says_it_wrote_is_named_and_left_as_it_is(project: Project) -> None:
    project.agent(steps(*WORK, 'write = "main:a.txt"\ntext = "by the agent\\n"'))
    ran = project.start("finish", "auto")
    violated(project, ran, "the file a.txt")
    assert (project.path / "a.txt").read_text() == "by the agent\n"


def test_an_agent_that_commits_in_the_main_checkout_is_accused_and_its_commit_is_kept(project: Project) -> None:
    project.agent(
        steps(*WORK, 'write = "main:a.txt"\ntext = "x\\n"', 'git = ["commit", "-qam", "Sneaky"]\nin_main = true')
    )
    tip = project.repo.head("main")
    ran = project.start("finish", "auto")
    violated(project, ran, "the ref refs/heads/main")
    assert project.repo.head("main") == tip
    parked = [ref for ref in project.repo.refs() if ref.startswith("refs/runplan/parked/guard/")]
    assert [project.repo.git("log", "-1", "--format=%s", ref) for ref in parked] == ["Sneaky"]


def test_an_agent_that_leaves_its_branch_is_accused_and_its_work_is_kept(project: Project) -> None:
    project.agent(steps(*WORK, 'git = ["switch", "-qc", "elsewhere"]', 'write = "2.txt"', 'commit = "Write 2"'))
    ran = project.start("finish", "auto")
    violated(project, ran, "the ref refs/heads/elsewhere")
    assert "elsewhere" not in project.repo.git("branch", "--list")
    parked = [ref for ref in project.repo.refs() if ref.startswith("refs/runplan/parked/")]
    assert "Write 2" in [project.repo.git("log", "-1", "--format=%s", ref) for ref in parked]


def test_an_agent_that_detaches_its_worktree_is_accused(project: Project) -> None:
    project.agent(steps(*WORK, 'git = ["checkout", "-q", "--detach"]', 'write = "2.txt"', 'commit = "Write 2"'))
    ran = project.start("finish", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated")
    assert "the agent left its worktree on the detached commit" in project.runplan("report", "X").out
    parked = [ref for ref in project.repo.refs() if ref.startswith("refs/runplan/parked/")]
    assert "Write 2" in [project.repo.git("log", "-1", "--format=%s", ref) for ref in parked]


@pytest.mark.parametrize(
    "apart",
    ['delete = ".git"', 'delete = ".git"\n[[phase."1".implement]]\ngit = ["init", "-q"]'],
    ids=["its link is gone", "made a repository of its own"],
)
def test_an_agent_that_takes_its_worktree_apart_is_accused_and_its_commits_are_kept(
    project: Project, apart: str
) -> None:
    project.agent(steps(*WORK, apart))
    ran = project.start("finish", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert "the agent's worktree was taken apart" in project.runplan("report", "X").out
    assert project.repo.git("log", "-1", "--format=%s", "runplan/x/1") == "Write 1"
    project.agent(steps(*WORK))
    again = project.start("finish", "auto")
    if "init" in apart:  # what lies in there is in no ref of ours, so a person has to look
        assert (again.code, again.last) == (1, "runplan: failed: blocked"), again.err
        assert "is not a worktree of this repository; move it away" in again.err
        (place,) = (one for one in (project.home / ".cache/runplan/worktrees").iterdir() if one.name != ".trash")
        place.rename(project.home / "looked-at")
        again = project.start("finish", "auto")
    assert again.code == 0, again.err
    assert project.landed() == ["1"]


# --- the verifier -------------------------------------------------------------------------------------

TOUCHES = {
    "writes a file": ('write = "2.txt"', "2.txt"),
    "edits a file": ('write = "1.txt"\ntext = "better\\n"', "1.txt"),
    "commits": ('git = ["commit", "-q", "--allow-empty", "-m", "Mine"]', "the branch"),
    "moves the branch back": ('git = ["reset", "-q", "--hard", "HEAD~1"]', "the branch"),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_a_verifier_that_changes_what_it_judges_is_refused(project: Project, name: str) -> None:
    step, told = TOUCHES[name]
    project.agent(steps(*WORK) + steps(step, "pass_all = true", role="verify"))
    ran = project.start("finish", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: readonly-violated"), ran.err
    assert f"the verifier changed {told}" in project.runplan("report", "X").out
    assert project.landed() == []
    assert project.repo.git("log", "-1", "--format=%s", "runplan/x/1") == "Write 1"


def test_a_verifier_that_commits_beside_the_branch_is_refused(project: Project) -> None:
    """What the implementer left behind is cleared away first, so the verifier sees a detached commit."""
    project.repo.write(".git/info/exclude", "*.ignored\n")
    project.agent(
        steps(*WORK, 'write = "cache.ignored"')
        + steps('git = ["commit", "-q", "--allow-empty", "-m", "Mine"]', "pass_all = true", role="verify")
    )
    ran = project.start("finish", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: readonly-violated"), ran.err
    assert project.landed() == []
