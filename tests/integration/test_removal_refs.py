"""Removal of branches, candidates and logs: work on the target is removed, the rest is parked and named."""

import fcntl
import shutil
from pathlib import Path

import pytest

from runplan.adapters.git.removal import is_on_target, remove_log
from runplan.domain.gitfacts import AGENT, Kept, Removed
from tests.support.repos import BRANCH, PARKED, Place, make_repo

# --- is it on the target? -----------------------------------------------------------------------------


BETWEEN = "echo z >z; git add z; git commit -qm between"
#: How the two commits of `side` came to main, and whether main holds their content.
WAYS = {
    "merged": ("git merge -q --no-edit --no-ff side", True),
    "picked": (f"{BETWEEN}; git cherry-pick main..side", True),
    "squashed": (f"{BETWEEN}; git merge -q --squash side; git commit -qm squashed; echo y >z; git commit -qam y", True),
    "the same tree": ("git checkout -q side -- .; git commit -qm same; echo after >a; git commit -qam after", True),
    "partly": ("git cherry-pick side~1", False),
    "not at all": (BETWEEN, False),
}


@pytest.mark.parametrize(("land", "held"), WAYS.values(), ids=list(WAYS))
def test_content_is_found_on_the_target_however_it_got_there(tmp_path: Path, land: str, held: bool) -> None:
    repo = make_repo(tmp_path / "r", a="1\n")
    repo.git("checkout", "-q", "-b", "side")
    repo.commit("one", a="2\n")
    tip = repo.commit("two", b="b\n")
    repo.git("checkout", "-q", "main")
    repo.sh(land)
    with repo.adapter() as git:
        assert is_on_target(git, tip, "refs/heads/main") is held
        assert not is_on_target(git, tip, "refs/heads/none")


# --- branches -----------------------------------------------------------------------------------------


def test_a_branch_with_work_is_parked_before_it_goes(place: Place) -> None:
    """J4: not landed, so parked; its worktree keeps its files."""
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    tree.write("a.txt", "uncommitted")
    place.take()
    assert place.removal.remove_ref(BRANCH) == Removed(what=BRANCH, parked=PARKED)
    assert place.refs() == {"refs/heads/main": place.base, PARKED: tip}
    assert place.workspace.git.tip(BRANCH) is None
    assert (tree.path / "a.txt").read_text() == "uncommitted"
    assert place.removal.remove_worktree("run").what == str(tree.path)


def test_a_commit_that_a_person_adds_to_a_landed_branch_is_parked(place: Place) -> None:
    landed = place.repo.git("commit-tree", "-p", "main", "-m", "work", "main^{tree}")
    place.repo.write("c.txt", "c")
    place.repo.git("add", "c.txt")
    newer = place.repo.git("commit-tree", "-p", landed, "-m", "by hand", place.repo.git("write-tree"))
    place.repo.git("update-ref", BRANCH, newer)
    assert place.removal.remove_ref(BRANCH, landed=landed) == Removed(what=BRANCH, parked=PARKED)
    place.repo.git("update-ref", BRANCH, newer)
    assert place.removal.remove_ref(BRANCH, landed=newer) == Removed(what=BRANCH)


def test_a_branch_the_user_stands_on_is_kept(place: Place) -> None:
    place.repo.git("checkout", "-q", "-b", "runplan/domain/plan/1")
    assert place.removal.remove_ref(BRANCH) == Kept(what=BRANCH, why=f"in use by {place.repo.path}")


def test_a_branch_that_cannot_be_deleted_is_kept_with_the_words_of_git(place: Place) -> None:
    place.repo.git("branch", "runplan/domain/plan/1")
    lock = place.repo.path / f".git/{BRANCH}.lock"
    lock.touch()
    why = f"git cannot delete it: another git command is running; if there is none, remove {lock}"
    assert place.removal.remove_ref(BRANCH) == Kept(what=BRANCH, why=why)


def test_parking_takes_the_next_number_and_the_same_thing_once(place: Place) -> None:
    one, two = place.repo.commit("one"), place.repo.commit("two")
    names = [place.workspace.park(oid, under="refs/heads/x/plan/P 1.A..x") for oid in (one, two, one)]
    home = "refs/runplan/parked/plan/P-1-A-x/"
    assert names == [f"{home}1", f"{home}2", f"{home}1"]
    assert (place.repo.head(names[0]), place.repo.head(names[1])) == (one, two)


# --- gc -----------------------------------------------------------------------------------------------


def test_gc_lists_first_and_then_does_what_it_listed(place: Place) -> None:
    repo = place.repo
    live, stale = place.lease(name="live"), place.lease("refs/heads/runplan/domain/plan/2", "stale")
    gone = place.lease("refs/heads/runplan/domain/plan/3", "gone")
    shutil.rmtree(gone.path)
    stale.write("a.txt", "unsaved\n")
    for name in ("runplan/domain/plan/landed", "runplan/readme", "mine/plan/x"):
        repo.git("branch", name)
    blob = repo.git("hash-object", "-w", "--stdin", stdin="new")
    tree = repo.git("mktree", stdin=f"100644 blob {blob}\tnew.txt\n")
    open_tip = repo.git("commit-tree", "-p", "HEAD", "-m", "unlanded work", tree)
    repo.git("update-ref", "refs/heads/runplan/domain/plan/open", open_tip)
    repo.git("update-ref", "refs/runplan/parked/plan/7/1", open_tip)
    repo.git("update-ref", "refs/runplan/parked/plan/8/1", "HEAD")
    active = {"live", BRANCH, "refs/runplan/base/r1"}
    known = {f"refs/heads/runplan/domain/plan/{phase}" for phase in ("2", "3", "landed", "open")}
    before = repo.refs()

    listed = place.removal.remove_leftovers(dry_run=True, prefix="runplan/", active=active, known=known)
    assert repo.refs() == before
    assert (stale.path / "a.txt").read_text() == "unsaved\n"

    done = place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=active, known=known)
    assert {one.what for one in done if isinstance(one, Removed)} < {one.what for one in listed}
    removed = {one.what for one in listed if isinstance(one, Removed)}
    branches = {f"refs/heads/runplan/domain/plan/{phase}" for phase in ("2", "3", "landed")}
    assert removed == {str(stale.path), str(gone.path), "refs/runplan/parked/plan/8/1"} | branches
    kept = {one.what: one for one in done if isinstance(one, Kept)}
    parked = {"refs/runplan/parked/plan/7/1", "refs/runplan/parked/worktree/stale/1"}
    assert set(kept) == {"refs/heads/runplan/domain/plan/open"} | parked
    unlanded = kept["refs/runplan/parked/plan/7/1"]
    assert (unlanded.why, unlanded.tip) == ("main does not hold it", repo.head("refs/runplan/parked/plan/7/1"))
    assert live.path.exists()
    assert not stale.path.exists()
    assert repo.show("refs/runplan/parked/worktree/stale/1:a.txt") == "unsaved"
    assert set(repo.refs()) == (set(before) - removed) | {"refs/runplan/parked/worktree/stale/1"}


def test_gc_keeps_and_names_a_branch_of_the_user_below_the_prefix(place: Place) -> None:
    """Merged or not: only what a run or an agent made is ours to take away."""
    place.repo.git("branch", "runplan/mine/own")
    agent = {"GIT_AUTHOR_NAME": AGENT.name, "GIT_AUTHOR_EMAIL": "agent+r.1@runplan.invalid"}
    place.repo.git("switch", "-qc", "runplan/plan/forgotten")
    place.repo.git("commit", "-q", "--allow-empty", "-m", "Work", env=agent)
    place.repo.git("switch", "-q", "main")
    place.repo.git("merge", "-q", "--ff-only", "runplan/plan/forgotten")
    place.repo.git("commit", "-q", "--allow-empty", "-m", "Later")
    own = Kept(what="refs/heads/runplan/mine/own", why="no run here has made it, so it may be your own")
    found = place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=())
    assert found == [own, Removed(what="refs/heads/runplan/plan/forgotten")]
    assert "refs/heads/runplan/mine/own" in place.repo.refs()


def test_gc_without_a_prefix_touches_no_branch(place: Place) -> None:
    place.repo.git("branch", "any/thing")
    assert place.removal.remove_leftovers(dry_run=False, prefix="", active=()) == []
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
        pytest.param("", False, "its phase has not landed", id="its phase has not landed"),
    ],
)
def test_a_log_of_unfinished_work_is_kept(place: Place, used_by: str, landed: bool, why: str) -> None:
    log = a_log(place)
    assert remove_log(log, used_by=used_by, landed=landed, dry_run=False) == Kept(what=str(log), why=why)
    assert (log / "out.log").exists()


def test_a_log_goes_when_its_phase_has_landed_its_run_is_over_and_nobody_writes_it(place: Place) -> None:
    log = a_log(place)
    with (log / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = remove_log(log, used_by="", landed=True, dry_run=False)
    assert kept == Kept(what=str(log), why="in use by a process that still writes it")
    assert remove_log(log, used_by="", landed=True, dry_run=True) == Removed(what=str(log))
    assert log.exists()
    assert remove_log(log, used_by="", landed=True, dry_run=False) == Removed(what=str(log))
    assert not log.exists()


def test_content_on_the_remotes_branch_is_held_as_well(place: Place) -> None:
    """A direct landing may be on the remote before the local branch has followed."""
    tree = place.lease()
    work = tree.commit("Work", **{"new.txt": "new\n"})
    place.take()
    place.workspace.publish(BRANCH, base=place.base)
    place.repo.git("update-ref", "refs/remotes/origin/main", work)
    assert place.removal.remove_ref(BRANCH) == Removed(what=BRANCH)
    assert PARKED not in place.repo.refs()
