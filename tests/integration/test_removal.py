"""Removal: nothing goes whose content is not elsewhere; what goes leaves no trace."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.containment import on_target
from runplan.adapters.parking import Parking
from runplan.adapters.removal import Removal
from runplan.adapters.trash import Trash
from runplan.adapters.worktrees import Worktrees
from runplan.core.gitfacts import Kept, Removed
from runplan.core.guard import AGENT
from runplan.core.removal import OnTarget
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
PARKED = "refs/runplan/parked/plan/1/1"
ODD = ("with space.txt", "new\nline.txt", "ünïcode/日本.txt")


@dataclass(kw_only=True)
class Place:
    repo: Repo
    trees: Worktrees
    removal: Removal
    base: str

    def lease(self, branch: str = BRANCH, name: str = "run") -> Repo:
        return self.repo.at(self.trees.lease(name, branch=branch, base=self.base))

    def gone(self, tree: Repo) -> bool:
        """L1, L2: neither the directory nor git's entry is left."""
        self.removal.close()
        listed = self.repo.git("worktree", "list", "--porcelain")
        return not tree.path.exists() and str(tree.path) not in listed and not (self.trees.root / ".trash").exists()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    repo = make_repo(tmp_path / "repo", **{"a.txt": "a\n", "b.txt": "b\n", ".gitignore": "*.o\n"})
    git, common = repo.adapter(), repo.path / ".git"
    root, locks = tmp_path / "trees", common / "runplan/locks"
    yield Place(
        repo=repo,
        trees=Worktrees(git, root=root, common_dir=common, lock_dir=locks),
        removal=Removal(
            git, root=root, common_dir=common, lock_dir=locks, targets=("refs/heads/main", "refs/remotes/origin/main")
        ),
        base=repo.head(),
    )
    git.close()


# --- worktrees ----------------------------------------------------------------------------------------


def test_a_clean_worktree_goes_and_its_branch_stays(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    tree.write("build.o", "ignored")
    assert place.removal.worktree("run") == Removed(what=str(tree.path))
    assert place.gone(tree)
    assert place.repo.refs() == {"refs/heads/main": place.base, BRANCH: tip}


def test_a_dirty_worktree_is_parked_whole_before_it_goes(place: Place) -> None:
    """J5: staged, unstaged, untracked, deleted, all in the parked commit; nothing else is changed."""
    tree = place.lease()
    tree.write("a.txt", "staged\n")
    tree.git("add", "a.txt")
    tree.write("a.txt", "unstaged on top\n")
    (tree.path / "b.txt").unlink()
    for name in ODD:
        tree.write(name, "odd\n")
    place.repo.write("users.txt", "mine")
    before = (place.repo.status(), place.repo.git("stash", "list"))
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=PARKED)
    assert place.gone(tree)
    assert place.repo.show(f"{PARKED}:a.txt") == "unstaged on top"
    assert place.repo.show(f"{PARKED}^2:a.txt") == "staged"
    assert [place.repo.show(f"{PARKED}:{name}") for name in ODD] == ["odd"] * 3
    assert place.repo.git("ls-tree", "--name-only", PARKED, "b.txt") == ""
    assert place.repo.head(f"{PARKED}^1") == place.base
    assert (place.repo.status(), place.repo.git("stash", "list")) == before


def test_an_unmerged_worktree_is_parked_too(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "-b", "theirs")
    tree.commit("theirs", **{"a.txt": "theirs\n"})
    tree.git("checkout", "-q", "runplan/plan/1")
    tree.commit("ours", **{"a.txt": "ours\n"})
    tree.git("merge", "theirs", ok=False)
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=PARKED)
    assert "<<<<<<<" in place.repo.show(f"{PARKED}:a.txt")


def test_commits_on_no_branch_are_parked(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "--detach")
    tip = tree.commit("floating", **{"c.txt": "c"})
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.repo.head(parked) == tip


def test_a_shown_worktree_goes_without_a_look(place: Place) -> None:
    tree = place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    tree.write("coverage.xml", "left by a gate")
    assert place.removal.worktree("run") == Removed(what=str(tree.path))
    assert place.gone(tree)


def _directory_gone(tree: Repo, common: Path) -> None:
    shutil.rmtree(tree.path)


def _entry_gone(tree: Repo, common: Path) -> None:
    shutil.rmtree(common / "worktrees/run")


def _half_made(tree: Repo, common: Path) -> None:
    (common / "worktrees/run/locked").write_text("initializing\n")


@pytest.mark.parametrize("crash", [_directory_gone, _entry_gone, _half_made])
def test_half_a_worktree_goes_as_well_and_twice_is_once(place: Place, crash: Callable[[Repo, Path], None]) -> None:
    """J11, L1, L2"""
    tree = place.lease()
    crash(tree, place.repo.path / ".git")
    for _ in range(2):
        assert place.removal.worktree("run") == Removed(what=str(tree.path))
        assert place.gone(tree)


def test_work_in_a_directory_without_entry_is_parked(place: Place) -> None:
    tree = place.lease()
    tree.write("a.txt", "edited\n")
    _entry_gone(tree, place.repo.path / ".git")
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.repo.show(f"{parked}:a.txt") == "edited"


def test_a_worktree_a_process_works_in_is_kept(place: Place) -> None:
    tree = place.lease()
    tree.write("sub/x.txt", "x")
    process = subprocess.Popen(["sleep", "60"], cwd=tree.path / "sub")
    try:
        kept = place.removal.worktree("run")
    finally:
        process.kill()
        process.wait()
    assert kept == Kept(what=str(tree.path), why=f"process {process.pid} works in it")
    assert (tree.path / "sub/x.txt").exists()


def test_a_worktree_with_a_repository_inside_is_kept(place: Place) -> None:
    tree = place.lease()
    make_repo(tree.path / "inner")
    kept = Kept(what=str(tree.path), why="it holds another git repository: inner/")
    assert place.removal.worktree("run") == kept
    assert (tree.path / "inner/README.md").exists()


def test_what_is_not_ours_is_kept(place: Place) -> None:
    foreign = make_repo(place.trees.path("run"))
    kept = place.removal.worktree("run")
    assert isinstance(kept, Kept)
    assert "not a worktree of this repository" in kept.why
    assert (foreign.path / "README.md").exists()


def test_trash_of_dead_processes_is_swept_also_where_nobody_may_write(tmp_path: Path) -> None:
    locked = tmp_path / ".trash/old.123/deep/er"
    locked.mkdir(parents=True)
    (locked / "file").write_text("x")
    locked.chmod(0o500)
    locked.parent.chmod(0o500)
    trash = Trash(tmp_path)
    assert [path.name for path in trash.leftovers()] == ["old.123"]
    trash.sweep()
    trash.close()
    assert not (tmp_path / ".trash").exists()


# --- is it on the target? -----------------------------------------------------------------------------


def _merged(repo: Repo) -> None:
    repo.git("merge", "-q", "--no-edit", "--no-ff", "side")


def _picked(repo: Repo) -> None:
    repo.commit("between", z="z")
    repo.git("cherry-pick", "main..side")


def _squashed(repo: Repo) -> None:
    repo.commit("between", z="z")
    repo.git("merge", "-q", "--squash", "side")
    repo.git("commit", "-q", "-m", "squashed")
    repo.commit("after", y="y")


def _same_tree(repo: Repo) -> None:
    repo.git("checkout", "-q", "side", "--", ".")
    repo.commit("the same files, otherwise made")
    repo.commit("after", a="after")


def _partly(repo: Repo) -> None:
    repo.git("cherry-pick", "side~1")


def _nothing(repo: Repo) -> None:
    repo.commit("elsewhere", z="z")


@pytest.mark.parametrize(
    ("land", "held"),
    [
        (_merged, OnTarget.REACHABLE),
        (_picked, OnTarget.PATCH),
        (_squashed, OnTarget.PATCH),
        (_same_tree, OnTarget.TREE),
        (_partly, OnTarget.NO),
        (_nothing, OnTarget.NO),
    ],
)
def test_content_is_found_on_the_target_however_it_got_there(
    tmp_path: Path, land: Callable[[Repo], None], held: OnTarget
) -> None:
    repo = make_repo(tmp_path / "r", a="1\n")
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("one", a="2\n")
    tip = repo.commit("two", b="b\n")
    repo.git("checkout", "-q", "main")
    land(repo)
    with repo.adapter() as git:
        assert on_target(git, tip, "refs/heads/main") is held
        assert on_target(git, tip, "refs/heads/none") is OnTarget.NO


# --- branches -----------------------------------------------------------------------------------------


def test_a_branch_on_the_target_goes_without_parking(place: Place) -> None:
    place.repo.git("branch", "runplan/plan/1")
    assert place.removal.ref(BRANCH) == Removed(what=BRANCH)
    assert place.removal.ref(BRANCH) == Removed(what=BRANCH)
    assert place.repo.refs() == {"refs/heads/main": place.base}


def test_a_branch_with_work_is_parked_before_it_goes(place: Place) -> None:
    """J4: not landed, so kept aside; the worktree that stood on it keeps its files."""
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    tree.write("a.txt", "uncommitted")
    assert place.removal.ref(BRANCH) == Removed(what=BRANCH, parked=PARKED)
    assert place.repo.refs() == {"refs/heads/main": place.base, PARKED: tip}
    assert (tree.path / "a.txt").read_text() == "uncommitted"
    assert place.removal.worktree("run").what == str(tree.path)


def test_a_landed_branch_goes_and_the_worktree_rests_on_the_target(place: Place) -> None:
    """One git process; files stay, so that the next lease writes only what differs."""
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    place.repo.git("update-ref", "refs/runplan/candidate/r1", tip)
    landed = place.repo.commit("landed", **{"c.txt": "c"})
    tree.write("coverage.xml", "left by a gate")
    place.removal.landed({BRANCH: tip, "refs/runplan/candidate/r1": tip}, worktree=tree.path, onto=landed)
    assert place.repo.refs() == {"refs/heads/main": landed}
    assert (tree.head(), tree.git("symbolic-ref", "-q", "HEAD", ok=False)) == (landed, "")
    assert place.trees.head(tree.path) == landed
    assert place.repo.head() == landed
    place.trees.lease("run", branch=BRANCH, base=landed)
    assert place.trees.state(tree.path).clean
    assert set(place.repo.refs()) == {"refs/heads/main", BRANCH}


def test_a_branch_the_user_stands_on_is_kept(place: Place) -> None:
    place.repo.git("checkout", "-q", "-b", "runplan/plan/1")
    assert place.removal.ref(BRANCH) == Kept(what=BRANCH, why=f"in use by {place.repo.path}")


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("whose", ["checkout", "worktree"])
def test_no_branch_that_a_head_names_is_deleted_also_after_its_landing(
    place: Place, tmp_path: Path, whose: str, gone: bool
) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"w.txt": "w"})
    place.repo.git("worktree", "add", "-q", "--detach", str(tmp_path / "mine"))
    head = place.repo.path / (".git/HEAD" if whose == "checkout" else ".git/worktrees/mine/HEAD")
    head.write_text(f"ref: {BRANCH}\n")
    if gone:
        shutil.rmtree(tmp_path / "mine")
    place.removal.landed({BRANCH: tip}, worktree=tree.path, onto=place.base)
    assert place.repo.head(BRANCH) == tip
    assert isinstance(place.removal.ref(BRANCH), Kept)
    assert place.repo.head(BRANCH) == tip


def test_parking_takes_the_next_number_and_the_same_thing_once(place: Place) -> None:
    one, two = place.repo.commit("one"), place.repo.commit("two")
    with place.repo.adapter() as git:
        parking = Parking(git, place.repo.path / ".git")
        names = [parking.park(oid, slug="plan", phase="P 1.A..x") for oid in (one, two, one)]
        told = [(kept.ref, kept.oid, kept.subject) for kept in parking.parked()]
    home = "refs/runplan/parked/plan/P-1-A-x/"
    assert names == [f"{home}1", f"{home}2", f"{home}1"]
    assert told == [(f"{home}1", one, "one"), (f"{home}2", two, "two")]


# --- gc -----------------------------------------------------------------------------------------------


def test_gc_lists_first_and_then_does_what_it_listed(place: Place) -> None:
    repo = place.repo
    live, stale = place.lease(name="live"), place.lease("refs/heads/runplan/plan/2", "stale")
    gone = place.lease("refs/heads/runplan/plan/3", "gone")
    shutil.rmtree(gone.path)
    stale.write("a.txt", "unsaved\n")
    for name in ("runplan/plan/landed", "runplan/readme", "mine/plan/x"):
        repo.git("branch", name)
    blob = repo.git("hash-object", "-w", "--stdin", stdin="new")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\tnew.txt\n")
    open_tip = repo.git("commit-tree", "-p", "HEAD", "-m", "unlanded work", tree)
    repo.git("update-ref", "refs/heads/runplan/plan/open", open_tip)
    repo.git("update-ref", "refs/runplan/candidate/r1", "HEAD")
    repo.git("update-ref", "refs/runplan/candidate/r2", "HEAD")
    repo.git("update-ref", "refs/runplan/parked/plan/7/1", open_tip)
    repo.git("update-ref", "refs/runplan/parked/plan/8/1", "HEAD")
    (place.trees.root / ".trash/dead.1").mkdir(parents=True)
    active = {"live", BRANCH, "refs/runplan/candidate/r1"}
    known = {f"refs/heads/runplan/plan/{phase}" for phase in ("2", "3", "landed", "open")}
    before = repo.refs()

    listed = place.removal.gc(dry_run=True, prefix="runplan/", active=active, known=known)
    assert repo.refs() == before
    assert (place.trees.root / ".trash/dead.1").exists()
    assert (stale.path / "a.txt").read_text() == "unsaved\n"

    done = place.removal.gc(dry_run=False, prefix="runplan/", active=active, known=known)
    assert {one.what for one in done if isinstance(one, Removed)} < {one.what for one in listed}
    removed = {one.what for one in listed if isinstance(one, Removed)}
    assert removed == {
        str(stale.path),
        str(gone.path),
        str(place.trees.root / ".trash/dead.1"),
        "refs/heads/runplan/plan/2",
        "refs/heads/runplan/plan/3",
        "refs/heads/runplan/plan/landed",
        "refs/runplan/candidate/r2",
        "refs/runplan/parked/plan/8/1",
    }
    kept = {one.what: one.why for one in done if isinstance(one, Kept)}
    assert set(kept) == {"refs/heads/runplan/plan/open", "refs/runplan/parked/plan/7/1", "refs/runplan/parked/plan/2/1"}
    assert "main does not hold it" in kept["refs/runplan/parked/plan/7/1"]
    assert kept["refs/runplan/parked/plan/7/1"].endswith("unlanded work")
    assert live.path.exists()
    assert place.gone(stale)
    assert repo.show("refs/runplan/parked/plan/2/1:a.txt") == "unsaved"
    assert set(repo.refs()) == (set(before) - removed) | {"refs/runplan/parked/plan/2/1"}


def test_gc_keeps_and_names_a_branch_of_somebodys_own_below_the_prefix(place: Place) -> None:
    """Merged or not: only what a run or an agent made is ours to take away."""
    place.repo.git("branch", "runplan/mine/own")
    agent = {"GIT_AUTHOR_NAME": AGENT.name, "GIT_AUTHOR_EMAIL": "agent+r.1@runplan.invalid"}
    place.repo.git("switch", "-qc", "runplan/plan/forgotten")
    place.repo.git("commit", "-q", "--allow-empty", "-m", "Work", env=agent)
    place.repo.git("switch", "-q", "main")
    place.repo.git("merge", "-q", "--ff-only", "runplan/plan/forgotten")
    place.repo.git("commit", "-q", "--allow-empty", "-m", "Later")
    own = Kept(what="refs/heads/runplan/mine/own", why="no run here has made it, so it may be somebody's own")
    found = place.removal.gc(dry_run=False, prefix="runplan/", active=())
    assert found == [own, Removed(what="refs/heads/runplan/plan/forgotten")]
    assert "refs/heads/runplan/mine/own" in place.repo.refs()


def test_gc_without_a_prefix_touches_no_branch(place: Place) -> None:
    place.repo.git("branch", "any/thing")
    assert place.removal.gc(dry_run=False, prefix="", active=()) == []
    assert "refs/heads/any/thing" in place.repo.refs()


# --- logs ---------------------------------------------------------------------------------------------


def a_log(place: Place) -> Path:
    directory = place.repo.path / ".git/runplan/dispatch/r1.1"
    directory.mkdir(parents=True)
    (directory / "out.log").write_text("said\n")
    return directory


@pytest.mark.parametrize(
    ("used_by", "landed", "why"),
    [
        pytest.param("the run r1", True, "in use by the run r1", id="its run goes on"),
        pytest.param("", False, "what it tells of has not landed", id="its phase has not landed"),
    ],
)
def test_a_log_that_tells_of_unfinished_things_is_kept(place: Place, used_by: str, landed: bool, why: str) -> None:
    log = a_log(place)
    assert place.removal.log(log, used_by=used_by, landed=landed, dry_run=False) == Kept(what=str(log), why=why)
    assert (log / "out.log").exists()


def test_a_log_goes_when_its_phase_has_landed_and_its_run_is_over(place: Place) -> None:
    log = a_log(place)
    assert place.removal.log(log, used_by="", landed=True, dry_run=True) == Removed(what=str(log))
    assert log.exists()
    assert place.removal.log(log, used_by="", landed=True, dry_run=False) == Removed(what=str(log))
    assert not log.exists()


def test_a_log_that_is_still_written_is_kept(place: Place) -> None:
    log = a_log(place)
    with (log / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = place.removal.log(log, used_by="", landed=True, dry_run=False)
    assert kept == Kept(what=str(log), why="in use by a process that still writes it")


def test_content_on_the_remotes_branch_is_held_as_well(place: Place) -> None:
    """A direct landing may be on the remote before the local branch has followed."""
    tree = place.lease()
    work = tree.commit("Work", **{"new.txt": "new\n"})
    place.repo.git("update-ref", "refs/remotes/origin/main", work)
    assert place.removal.ref(BRANCH) == Removed(what=BRANCH)
    assert PARKED not in place.repo.refs()


def test_a_candidate_is_judged_by_its_work_and_not_by_our_bookkeeping(place: Place) -> None:
    """The report and the row of a landing that never happened are nobody's work."""
    tree = place.lease()
    tree.commit("Work", **{"new.txt": "new\n"})
    told = "record\n\nRunplan-Plan: plans/plan.md\nRunplan-Phase: 1\nRunplan-Run: r1\nRunplan-Landing: r1.1"
    books = tree.commit(told, **{"plans/plan.md": "done\n", "reports/plan-plan.md": "report\n"})
    candidate = "refs/runplan/candidate/r1"
    place.repo.git("update-ref", candidate, books)
    assert isinstance(place.removal.gc(dry_run=True, prefix="", active=("run",))[-1], Kept)
    place.repo.commit("The same work, landed by another run", **{"new.txt": "new\n"})
    assert place.removal.gc(dry_run=False, prefix="", active=("run",)) == [Removed(what=candidate)]
