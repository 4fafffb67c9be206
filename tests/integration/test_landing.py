"""Landing by compare-and-swap: what is moved, what is answered, and what is seen afterwards."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from runplan.adapters.git.command import Git
from runplan.adapters.git.objects import Built, Candidates, Signature
from runplan.domain.gitfacts import Identity
from runplan.engine.landing.lander import Landed, Pending
from runplan.engine.landing.swap import CherryPick
from tests.support.landings import candidate, held, intent, land, lander, leftovers
from tests.support.repos import MAIN, Repo, make_repo
from tests.support.tools import write_script

USER = Identity(name="Uma User", email="uma@example.org")
WHEN = "1700000000 +0000"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo", **{"a.txt": "a\n", "b.txt": "b\n", "dir/c.txt": "c\n"})


# --- the swap -----------------------------------------------------------------------------------------


def test_the_reflogs_of_branch_and_head_say_who_moved_them(repo: Repo) -> None:
    land(repo, candidate(repo, {"a.txt": "a2\n"}))
    assert repo.git("reflog", "-1", "--format=%gs", "main") == "runplan: land L1"
    assert repo.git("reflog", "-1", "--format=%gs", "HEAD") == "runplan: land L1"


def test_a_failing_git_is_not_taken_for_a_detached_head(repo: Repo, tmp_path: Path) -> None:
    new = candidate(repo, {"a.txt": "a2\n"})
    program = shutil.which("git")
    failing = write_script(tmp_path / "bin/git", f'case "$*" in *symbolic-ref*) exit 128 ;; esac\nexec {program} "$@"')
    env = {**repo.env, "PATH": f"{failing.parent}:{os.environ['PATH']}"}
    assert land(Repo(path=repo.path, env=env), new) == Landed(tip=new)
    assert (repo.head(), repo.status(), (repo.path / "a.txt").read_text()) == (new, "", "a2\n")


@pytest.mark.parametrize(("file", "content"), [("HEAD", ""), ("commondir", ""), ("commondir", "../nowhere\n")])
def test_a_broken_worktree_of_the_user_stops_no_landing(repo: Repo, tmp_path: Path, file: str, content: str) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    (repo.path / f".git/worktrees/side/{file}").write_text(content)
    new = candidate(repo, {"a.txt": "a2\n"})
    assert land(repo, new) == Landed(tip=new)


def test_a_process_that_exits_during_the_look_does_not_disturb(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.git("switch", "-qc", "elsewhere")
    new = candidate(repo, {"a.txt": "a2\n"})

    def gone(_: psutil.Process) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(psutil.Process, "name", gone)
    assert land(repo, new) == Landed(tip=new)


def test_a_branch_out_in_another_worktree_is_followed_there(repo: Repo, tmp_path: Path) -> None:
    repo.git("switch", "-qc", "elsewhere")
    repo.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    other = repo.at(tmp_path / "other")
    new = candidate(repo, {"a.txt": "a2\n"})
    assert land(repo, new) == Landed(tip=new)
    assert (other.path / "a.txt").read_text() == "a2\n"
    assert (repo.path / "a.txt").read_text() == "a\n"
    assert other.status() == repo.status() == ""
    assert leftovers(repo) == ()


def test_a_worktree_whose_directory_is_gone_does_not_hold_the_landing(repo: Repo, tmp_path: Path) -> None:
    repo.git("switch", "-qc", "elsewhere")
    repo.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    (tmp_path / "other").rename(tmp_path / "gone")
    new = candidate(repo, {"a.txt": "a2\n"})
    assert land(repo, new) == Landed(tip=new)


def test_a_branch_out_in_two_worktrees_or_in_one_that_cannot_be_reached_holds(repo: Repo, tmp_path: Path) -> None:
    new = candidate(repo, {"a.txt": "a2\n"})
    repo.git("worktree", "add", "-q", "-f", str(tmp_path / "other"), "main")
    held(repo, new, "main is checked out in")
    repo.git("worktree", "remove", str(tmp_path / "other"))
    repo.git("switch", "-qc", "elsewhere")
    repo.git("worktree", "add", "-q", "--lock", str(tmp_path / "stick"), "main")
    (tmp_path / "stick").rename(tmp_path / "unplugged")
    held(repo, new, "stick has main checked out, is locked, and cannot be reached")


@pytest.mark.parametrize("head", ["trunk", "main"])
def test_a_branch_that_is_another_name_of_one_that_is_out_holds(repo: Repo, head: str) -> None:
    repo.git("branch", "-m", "trunk")
    repo.git("symbolic-ref", MAIN, "refs/heads/trunk")
    repo.git("symbolic-ref", "HEAD", f"refs/heads/{head}")
    new = candidate(repo, {"a.txt": "a2\n"})
    answer = land(repo, new)
    assert isinstance(answer, Pending)
    assert answer.why.startswith("main is a symbolic ref to trunk; make it a branch: ")
    assert repo.status() == ""
    repo.sh(answer.why.partition("branch: ")[2])
    assert land(repo, new) == Landed(tip=new)
    assert repo.status() == ""


def test_a_bare_repository_behind_worktrees_is_no_checkout(repo: Repo, tmp_path: Path) -> None:
    bare = Repo(path=tmp_path / "bare.git")
    repo.git("clone", "-q", "--bare", ".", str(bare.path))
    bare.git("worktree", "add", "-q", "-b", "work", str(tmp_path / "wt"))
    new = candidate(bare, {"a.txt": "a2\n"})
    with bare.at(tmp_path / "wt").adapter() as git:
        cherry_pick = CherryPick(git, ref=MAIN, common_dir=bare.path)
        answer = cherry_pick.land(cherry_pick.prepare(id="L1", old=bare.head(MAIN), new=new))
    assert answer == Landed(tip=new)
    assert bare.head(MAIN) == new


def test_landing_the_same_intent_again_says_landed_and_moves_nothing(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, {"a.txt": "a2\n"}))
    with lander(repo) as cherry_pick:
        cherry_pick.land(landing)
        tip = repo.commit("On top", **{"b.txt": "b2\n"})
        assert cherry_pick.land(landing) == Landed(tip=tip)
    assert repo.git("log", "--format=%s", "main").count("Land L1") == 1


# --- observing ----------------------------------------------------------------------------------------


def test_a_landing_is_observed_under_commits_merges_and_rewritten_ids_but_not_after_an_undo(repo: Repo) -> None:
    old = repo.head()
    landing = intent(repo, candidate(repo, {"a.txt": "a2\n"}))
    with lander(repo) as cherry_pick:
        assert cherry_pick.observe(landing) is None
        cherry_pick.land(landing)
        assert cherry_pick.observe(landing) == Landed(tip=landing.new)
        top = repo.commit("On top", **{"b.txt": "b2\n"})
        assert cherry_pick.observe(landing) == Landed(tip=top)
        repo.git("rebase", "-q", "--root")
        repo.git("rebase", "-q", "--force-rebase", "--root")
        assert repo.git("merge-base", "main", landing.new, ok=False) != landing.new
        assert cherry_pick.observe(landing) == Landed(tip=repo.head())
        repo.git("reset", "-q", "--hard", old)
        assert cherry_pick.observe(landing) is None


def test_a_landing_is_not_looked_for_below_the_tip_that_it_starts_from(repo: Repo) -> None:
    land(repo, candidate(repo, {"a.txt": "a2\n"}))
    with lander(repo) as cherry_pick:
        assert cherry_pick.observe(intent(repo, candidate(repo, {"a.txt": "a3\n"}))) is None


def test_another_landing_of_the_same_phase_proves_nothing(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, {"a.txt": "a2\n"}))
    repo.commit("Done by hand\n\nRunplan-Phase: 1\nRunplan-Landing: L0", **{"a.txt": "a2\n"})
    with lander(repo) as cherry_pick:
        assert cherry_pick.observe(landing) is None


# --- at the same time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("checked_out", [True, False])
def test_many_landers_at_once_land_each_success_exactly_once(repo: Repo, checked_out: bool) -> None:
    if not checked_out:
        repo.git("switch", "-qc", "elsewhere")

    def work(number: int) -> list[str]:
        return [land_until_done(repo, f"w{number}-{count}") for count in range(3)]

    with ThreadPoolExecutor(4) as pool:
        landed = [oid for oids in pool.map(work, range(4)) for oid in oids]
    log = repo.git("log", "--format=%H", "main").split()
    assert len(landed) == len(set(landed)) == 12
    assert sorted(log.count(oid) for oid in landed) == [1] * 12
    assert len(log) == 13
    assert repo.status() == ""
    assert leftovers(repo) == ()


def land_until_done(repo: Repo, name: str) -> str:
    with lander(repo) as cherry_pick:
        for _ in range(400):
            landing = intent(repo, candidate(repo, {f"{name}.txt": "x\n"}, landing=name), landing=name)
            if repo.head(f"{landing.new}^") != landing.old:
                continue
            if isinstance(cherry_pick.land(landing), Landed):
                return landing.new
    raise AssertionError(f"{name} never landed")


# --- the cost -----------------------------------------------------------------------------------------


def test_a_phase_of_one_commit_costs_at_most_nine_git_processes(repo: Repo, tmp_path: Path) -> None:
    base = repo.head()
    repo.git("switch", "-qc", "work")
    head = repo.commit("Work", **{"a.txt": "a2\n"})
    repo.git("switch", "-q", "main")
    traces = tmp_path / "traces"
    traces.mkdir()
    wrapper = write_script(tmp_path / "bin/git", f'GIT_TRACE2_EVENT={traces} exec "$REAL_GIT" "$@"')
    real = repo.git("--exec-path") + "/git"
    env = repo.env | {"PATH": f"{wrapper.parent}{os.pathsep}{repo.env['PATH']}", "REAL_GIT": real}
    with Git(repo.path, env=env) as git:
        candidates = Candidates(git)
        by = Signature(author=USER, committer=USER, when=WHEN)
        answer = candidates.replay(base=base, head=head, onto=base, rewrite=lambda commit: (commit.message, by))
        assert isinstance(answer, Built)
        new = candidates.bookkeep(code=answer.commits[-1], files={"reports/plan-p.md": b"ok\n"}, message="Mark", by=by)
        cherry_pick = CherryPick(git, ref=MAIN, common_dir=repo.path / ".git")
        landing = cherry_pick.prepare(id="L1", old=base, new=new)
        assert cherry_pick.land(landing) == Landed(tip=new)
    assert len(commands(traces)) <= 9


def commands(traces: Path) -> list[str]:
    """The name of every git process that was started, children of git included."""
    events = [json.loads(line) for file in traces.iterdir() for line in file.read_text().splitlines()]
    return [str(event["name"]) for event in events if event["event"] == "cmd_name"]
