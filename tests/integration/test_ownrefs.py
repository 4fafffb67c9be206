"""A ref of ours that somebody made to stand for another one: never followed, and only itself taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.adapters.candidate import Candidates
from runplan.adapters.guard import Guard
from runplan.adapters.ownrefs import is_symbolic, own_tip, read_refs
from runplan.adapters.parking import Parking
from runplan.adapters.removal import Removal
from runplan.adapters.worktrees import Worktrees
from runplan.core.dispatch import ToolUsed
from runplan.core.errors import RefusedEarly
from runplan.core.gitfacts import Absent, Removed
from runplan.core.names import candidate_ref
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from runplan.adapters.git import Git

MAIN = "refs/heads/main"
BRANCH = "refs/heads/runplan/plan/1"
CANDIDATE = candidate_ref("r1")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = make_repo(tmp_path / "repo", **{"a.txt": "a\n"})
    made.commit("More", **{"b.txt": "b\n"})
    return made


@pytest.fixture
def git(repo: Repo) -> Iterator[Git]:
    with repo.adapter() as adapter:
        yield adapter


@pytest.fixture
def common(repo: Repo) -> Path:
    return repo.path / ".git"


@pytest.fixture
def trees(repo: Repo, git: Git, common: Path) -> Iterator[Worktrees]:
    made = Worktrees(git, root=repo.path.parent / "trees", common_dir=common, lock_dir=common / "runplan/locks")
    yield made
    made.close()


@pytest.fixture
def removal(repo: Repo, git: Git, common: Path) -> Iterator[Removal]:
    root, locks = repo.path.parent / "trees", common / "runplan/locks"
    made = Removal(git, root=root, common_dir=common, lock_dir=locks, targets=(MAIN,))
    yield made
    made.close()


def test_a_symbolic_ref_holds_no_commit_of_its_own(repo: Repo, git: Git, common: Path) -> None:
    repo.git("symbolic-ref", BRANCH, MAIN)
    assert is_symbolic(common, git, BRANCH)
    assert own_tip(common, git, BRANCH) is None
    assert own_tip(common, git, MAIN) == repo.head()
    assert read_refs(common, git).symbolic == {BRANCH: MAIN}
    assert read_refs(common, git).plain == {MAIN: repo.head()}


def test_a_link_in_the_file_system_is_a_symbolic_ref_as_well(repo: Repo, git: Git, common: Path) -> None:
    (common / BRANCH).parent.mkdir(parents=True)
    (common / BRANCH).symlink_to(MAIN)
    assert repo.git("rev-parse", BRANCH) == repo.head(), "git follows it"
    assert own_tip(common, git, BRANCH) is None
    assert read_refs(common, git).symbolic == {BRANCH: MAIN}


@pytest.mark.parametrize("target", [MAIN, "refs/heads/nowhere"])
@pytest.mark.parametrize("ref", [BRANCH, CANDIDATE, "refs/runplan/parked/plan/1/1"])
def test_removing_it_leaves_what_it_stands_for(repo: Repo, removal: Removal, ref: str, target: str) -> None:
    main, log = repo.head(), repo.git("reflog", "show", MAIN)
    repo.git("symbolic-ref", ref, target)
    assert removal.ref(ref) == Removed(what=ref)
    assert repo.refs() == {MAIN: main}
    assert not (repo.path / ".git" / ref).exists()
    assert repo.git("reflog", "show", MAIN) == log


def test_gc_takes_it_away_and_not_the_branch_of_the_user(repo: Repo, removal: Removal) -> None:
    main = repo.head()
    repo.git("symbolic-ref", CANDIDATE, MAIN)
    repo.git("symbolic-ref", BRANCH, MAIN)
    told = removal.gc(dry_run=False, prefix="runplan/", active=(), known=(BRANCH,))
    assert [one.what for one in told] == [BRANCH, CANDIDATE]
    assert repo.refs() == {MAIN: main}


def test_a_landed_branch_that_became_symbolic_goes_alone(repo: Repo, trees: Worktrees, removal: Removal) -> None:
    main = repo.head()
    path = trees.lease("run", branch=BRANCH, base=main)
    repo.git("symbolic-ref", BRANCH, MAIN)
    repo.git("symbolic-ref", CANDIDATE, MAIN)
    removal.landed({BRANCH: main, CANDIDATE: main}, worktree=path, onto=main)
    assert repo.refs() == {MAIN: main}


def test_a_candidate_is_anchored_and_dropped_beside_the_branch_it_stood_for(repo: Repo, git: Git, common: Path) -> None:
    main, before = repo.head(), repo.git("rev-parse", "main~1")
    candidates = Candidates(git, common_dir=common)
    repo.git("symbolic-ref", CANDIDATE, MAIN)
    candidates.anchor("r1", before)
    assert repo.refs() == {MAIN: main, CANDIDATE: before}
    repo.git("symbolic-ref", CANDIDATE, MAIN)
    candidates.drop("r1")
    assert repo.refs() == {MAIN: main}


@pytest.mark.parametrize("target", [MAIN, "refs/heads/nowhere"])
def test_what_is_parked_is_never_found_behind_a_symbolic_ref(repo: Repo, git: Git, common: Path, target: str) -> None:
    repo.git("symbolic-ref", "refs/runplan/parked/plan/1/1", target)
    assert Parking(git, common).park(repo.head(), slug="plan", phase="1") == "refs/runplan/parked/plan/1/2"
    assert repo.git("rev-parse", MAIN) == repo.head()


def test_a_branch_is_leased_in_place_of_a_symbolic_one(repo: Repo, trees: Worktrees) -> None:
    main, before = repo.head(), repo.git("rev-parse", "main~1")
    repo.git("symbolic-ref", BRANCH, MAIN)
    assert trees.standing(BRANCH, before) == Absent()
    trees.lease("run", branch=BRANCH, base=before)
    assert repo.refs() == {MAIN: main, BRANCH: before}


def test_a_worktree_is_not_attached_to_a_symbolic_branch(repo: Repo, trees: Worktrees) -> None:
    trees.lease("run", branch=BRANCH, base=repo.head())
    repo.git("symbolic-ref", BRANCH, MAIN)
    with pytest.raises(RefusedEarly, match="is gone"):
        trees.attach("run", branch=BRANCH)


# --- the guard ----------------------------------------------------------------------------------------


def test_a_branch_of_ours_is_put_back_with_what_the_agent_had_committed(
    repo: Repo, git: Git, common: Path, trees: Worktrees
) -> None:
    guard = Guard(git, root=repo.path, common_dir=common)
    tree = repo.at(trees.lease("run", branch=BRANCH, base=repo.head()))
    before, main = guard.stamp(), repo.head()
    work = tree.commit("Work", **{"w.txt": "w"})
    repo.git("symbolic-ref", BRANCH, MAIN)
    found = guard.compare(before, own=(BRANCH,), tools=())
    assert [(one.kind, one.name, one.by_agent) for one in found] == [("symref", BRANCH, True)]
    assert [one.restored for one in guard.restore(found)] == [True]
    assert repo.refs() == {MAIN: main, BRANCH: work}
    assert read_refs(common, git).symbolic == {}
    assert guard.compare(before, own=(BRANCH,), tools=()) == ()


def test_a_symbolic_ref_of_the_users_is_told_of_and_only_an_agents_is_put_back(
    repo: Repo, git: Git, common: Path
) -> None:
    guard = Guard(git, root=repo.path, common_dir=common)
    repo.git("branch", "other")
    repo.git("symbolic-ref", "refs/heads/alias", MAIN)
    before = guard.stamp()
    assert guard.compare(before, own=(), tools=()) == (), "it was one before"
    repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/other")
    by_user = guard.restore(guard.compare(before, own=(), tools=()))
    assert [(one.name, one.by_agent, one.restored) for one in by_user] == [("refs/heads/alias", False, False)]
    repo.git("symbolic-ref", "refs/heads/alias", BRANCH)
    assert [one.by_agent for one in guard.compare(before, own=(), tools=())] == [True], "nobody needs such a one"
    repo.git("symbolic-ref", "refs/heads/alias", "refs/heads/other")
    told = (ToolUsed(tool="bash", path="git symbolic-ref refs/heads/alias refs/heads/other"),)
    by_agent = guard.restore(guard.compare(before, own=(), tools=told))
    assert [(one.name, one.by_agent, one.restored) for one in by_agent] == [("refs/heads/alias", True, True)]
    assert repo.git("symbolic-ref", "refs/heads/alias") == MAIN


def test_what_a_ref_held_that_somebody_made_symbolic_is_kept(repo: Repo, git: Git, common: Path) -> None:
    guard = Guard(git, root=repo.path, common_dir=common)
    repo.git("branch", "topic")
    repo.git("branch", "old", "main~1")
    before = guard.stamp()
    repo.git("symbolic-ref", "refs/heads/topic", "refs/heads/old")
    (found,) = guard.restore(guard.compare(before, own=(), tools=()))
    assert (found.by_agent, found.restored) == (False, False)
    assert repo.git("rev-parse", found.parked) == repo.head()
