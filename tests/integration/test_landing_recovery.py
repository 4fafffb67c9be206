"""A landing that is killed is completed or rolled back: landed once or not at all, the checkout whole."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.lander import Landed, Pending
from runplan.engine.landing.swap import LOCK, Ended
from tests.support.landings import candidate, files_of, intent, land, lander, leftovers, snapshot
from tests.support.mounts import way
from tests.support.repos import MAIN, Repo, make_repo

ROOT = Path(__file__).parents[2]
START = {"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n"}
PHASE: dict[str, str | None] = {"a.txt": "a2\n", "gone.txt": None, "new/n.txt": "n\n"}
STEP = 60  #: `python -m tests.chaos landing --step 1` takes every call


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return make_repo(tmp_path / "repo", **START)


@pytest.mark.rest
@pytest.mark.parametrize(
    "words", [["--kills", "0", "--step", str(STEP)], ["--kills", "12", "--step", "1000", "--seed", "7"]]
)
def test_a_killed_landing_is_recovered_and_nothing_of_the_users_is_lost(words: list[str], tmp_path: Path) -> None:
    """Killed before some of its calls, and at random moments while a user works in the checkout."""
    argv = [sys.executable, "-m", "tests.chaos", "landing", *words]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.rest
@pytest.mark.parametrize("point", ["begin", "land.staged", "land.prepared", "land.swapped"])
def test_a_full_disk_leaves_the_checkout_whole_and_the_landing_to_be_retried(tmp_path: Path, point: str) -> None:
    words = [sys.executable, "-m", "tests.support.landings", "full-disk", str(tmp_path), point]
    done = subprocess.run([*way(), *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def killed(repo: Repo, landing: LandingStarted, point: str) -> None:
    """A lander, and its git, that died at this point."""
    pid = os.fork()
    if pid == 0:
        os.setsid()

        def die(passed: str) -> None:
            if passed == point:
                os.kill(0, 9)

        with lander(repo, die) as cherry_pick:
            cherry_pick.land(landing)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9


def test_a_file_edited_after_the_kill_stays_and_the_former_one_is_parked_and_reported(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    killed(repo, landing, "land.swapped")
    repo.write("a.txt", "edited after the kill\n")
    repo.write("new/mine.txt", "mine\n")
    with lander(repo) as cherry_pick:
        settled = cherry_pick.recover()
        answer = cherry_pick.land(landing)
    assert settled.note.startswith("a.txt could not be put back after a landing was killed; the former content is in ")
    assert (Path(settled.note.rpartition(" is in ")[2]) / "a.txt").read_text() == "a\n"
    assert isinstance(answer, Pending)
    assert "a.txt is edited" in answer.why
    edited = {"a.txt": "edited after the kill\n", "new/mine.txt": "mine\n"}
    assert {name: text.decode() for name, (_, text) in files_of(repo.path).items()} == START | edited
    assert leftovers(repo) == ()


def test_another_landing_rolls_the_killed_one_back(repo: Repo) -> None:
    first = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    killed(repo, first, "land.swapped")
    other = intent(repo, candidate(repo, {"other.txt": "o\n"}, landing="L2"), landing="L2")
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(other) == Landed(tip=other.new)
        assert cherry_pick.observe(first) is None
    after = snapshot(repo)
    assert after.files == before.files | {"other.txt": ("-", b"o\n")}
    assert (repo.status(), after.leftovers) == ("", ())


def test_a_killed_landing_with_a_later_commit_on_top_has_landed(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    killed(repo, landing, "land.committed")
    (repo.path / ".git/index.lock").unlink()  # as git tells the user
    repo.commit("Later", **{"b.txt": "b2\n"})
    with lander(repo) as cherry_pick:
        assert cherry_pick.recover() == Ended("L1", landed=True)
    assert (repo.status(), leftovers(repo)) == ("", ())


def test_nothing_is_rolled_back_while_the_user_holds_the_index(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    killed(repo, landing, "land.swapped")
    lock = repo.path / ".git/index.lock"
    lock.unlink()
    lock.touch()
    swapped = files_of(repo.path)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        answer = cherry_pick.land(landing)
        assert isinstance(answer, Pending)
        assert "index.lock" in answer.why
        assert files_of(repo.path) == swapped
        lock.unlink()
        cherry_pick.recover(landing)
        assert snapshot(repo) == before
        assert cherry_pick.land(landing) == Landed(tip=landing.new)


@pytest.mark.parametrize("left", ["index.lock", "HEAD.lock", "refs/heads/main.lock"])
def test_a_lock_that_is_not_ours_stays(repo: Repo, left: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    killed(repo, landing, "land.staged")
    repo.write(f".git/{left}", "0123456789012345678901234567890123456789\n")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    assert leftovers(repo) == (left,)


def test_a_git_of_ours_that_is_killed_while_it_writes_touches_nothing(repo: Repo) -> None:
    repo.git("config", "filter.slow.smudge", "kill -9 $PPID; cat")
    repo.git("config", "filter.slow.clean", "cat")
    repo.commit("Attributes", **{".gitattributes": "a.txt filter=slow\n"})
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(landing)
        assert isinstance(answer, Pending)
        assert f"git cannot update {repo.path}" in answer.why
        assert snapshot(repo) == before
        repo.git("config", "--unset", "filter.slow.smudge")
        assert cherry_pick.land(landing) == Landed(tip=landing.new)


def test_a_git_that_outlives_its_lander_is_waited_for(repo: Repo) -> None:
    """It writes into the staging directory, which must stay until it ends."""
    landing = intent(repo, candidate(repo, PHASE))
    held = repo.path / ".git" / LOCK
    held.parent.mkdir()
    with held.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        git = subprocess.Popen(["sleep", "0.3"], pass_fds=(lock.fileno(),))
    assert land(repo, landing) == Landed(tip=landing.new)
    assert git.poll() is not None
    assert repo.head(MAIN) == landing.new
