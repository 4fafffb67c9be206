"""Landing dies at every instant, alone or with its git: it ends landed once or not at all, the checkout whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from runplan.adapters import heldindex
from runplan.adapters.checkout import TargetCheckout
from runplan.adapters.landers.cherry_pick import POINTS
from runplan.core.gitfacts import Held, Landed
from tests.support import dying_lander
from tests.support.landings import MAIN, Snapshot, candidate, files_of, intent, lander, leftovers, snapshot
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from runplan.core.gitfacts import Landing

START = {"a.txt": "old a\n", "b.txt": "b\n", "gone.txt": "gone\n", "m.slow": "old m\n", "z.txt": "old z\n"}
PHASE: dict[str, str | None] = {
    "a.txt": "new a\n",
    "gone.txt": None,
    "gone.txt/inner.txt": "i\n",
    "m.slow": "new m\n",
    "new/n.txt": "n\n",
    "z.txt": "new z\n",
}
SWAPPED = POINTS[POINTS.index("land.commit.after") :]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """A checkout in which the user has edits of their own, and a filter that can be told to misbehave."""
    repo = make_repo(tmp_path / "repo", **START, **{".gitattributes": "*.slow filter=slow\n"})
    script = tmp_path / "smudge"
    script.write_text("#!/bin/sh\n[ -e $0.armed ] && . $0.armed\nexec cat\n")
    script.chmod(0o755)
    repo.git("config", "filter.slow.smudge", str(script))
    repo.git("config", "filter.slow.clean", "cat")
    repo.git("config", "filter.slow.required", "true")
    repo.write("b.txt", "edited\n")
    repo.write("mine.txt", "untracked\n")
    return repo


def arm(repo: Repo, words: str) -> None:
    """Let the filter do this in the middle of read-tree."""
    (repo.path.parent / "smudge.armed").write_text(f"{words}\n")


def disarm(repo: Repo) -> None:
    (repo.path.parent / "smudge.armed").unlink()


def die(repo: Repo, landing: Landing, point: str, *, who: str = "all", verb: str = "land") -> None:
    """Run a lander that is dead when this returns."""
    rootdir = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, dying_lander.__file__, str(repo.path), point, who, verb, json.dumps(asdict(landing))],
        env=repo.env | {"PYTHONPATH": rootdir},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def comes_to_its_end(repo: Repo, landing: Landing, before: Snapshot, *, swapped: bool) -> None:
    """Recover shows one of the two ends, and landing again makes it landed, once."""
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        seen = cherry_pick.observe(landing)
        if swapped:
            assert seen == Landed(tip=landing.new)
        else:
            assert seen is None
            assert snapshot(repo) == before
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.git("log", "--format=%s", "main").count("Land L1") == 1
    assert repo.status() == " M b.txt\n?? mine.txt"
    assert leftovers(repo) == ()
    expected = {name: text for name, text in (START | PHASE).items() if text is not None}
    expected |= {"b.txt": "edited\n", "mine.txt": "untracked\n", ".gitattributes": "*.slow filter=slow\n"}
    assert files_of(repo.path) == {name: ("-", text.encode()) for name, text in expected.items()}


@pytest.mark.parametrize("who", ["alone", "all"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point(repo: Repo, point: str, who: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, point, who=who)
    comes_to_its_end(repo, landing, before, swapped=point in SWAPPED)


@pytest.mark.parametrize("point", [point for point in POINTS if "prepare" in point or "commit" in point])
def test_killed_at_a_point_with_the_target_checked_out_nowhere(repo: Repo, point: str) -> None:
    repo.git("switch", "-qc", "elsewhere")
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, point)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert (cherry_pick.observe(landing) is not None) == (point in SWAPPED)
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    after = snapshot(repo)
    assert (after.files, after.index, after.leftovers) == (before.files, before.index, ())
    assert after.refs == before.refs | {MAIN: landing.new}


def test_killed_with_git_in_the_middle_of_writing_files(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    arm(repo, "kill -9 0")
    die(repo, landing, "nowhere")
    disarm(repo)
    assert (repo.path / "a.txt").read_text() == "new a\n", "the files before the filter are written"
    assert not (repo.path / "m.slow").exists()
    comes_to_its_end(repo, landing, before, swapped=False)


def test_only_git_is_killed_in_the_middle_of_writing_files(repo: Repo) -> None:
    """The living lander takes back what the dead git wrote, and says that it could not go on."""
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    arm(repo, "rm $0.armed; kill -9 $PPID")
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(landing)
    assert isinstance(answer, Held)
    assert "git cannot update" in answer.why
    assert snapshot(repo) == before
    comes_to_its_end(repo, landing, before, swapped=False)


def test_git_fails_in_the_middle_of_writing_files(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    arm(repo, "exit 1")
    with lander(repo) as cherry_pick:
        assert isinstance(cherry_pick.land(landing), Held)
    disarm(repo)
    assert snapshot(repo) == before


def test_a_git_that_outlives_its_lander_is_waited_for(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    arm(repo, "kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 0.3; touch $0.done")
    die(repo, landing, "nowhere", who="alone")
    disarm(repo)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    assert (repo.path.parent / "smudge.done").exists()
    comes_to_its_end(repo, landing, before, swapped=False)


@pytest.mark.parametrize("left", ["", "n", "new", "new a\n"])
def test_files_cut_off_in_the_middle_are_taken_back(repo: Repo, left: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, "land.read-tree.before")
    (repo.path / "a.txt").unlink()  # git never writes into a file that is there
    repo.write("a.txt", left)
    (repo.path / "gone.txt").unlink()
    repo.write("gone.txt/inner.txt", "")
    (repo.path / "new").mkdir()
    (repo.path / "z.txt").unlink()
    comes_to_its_end(repo, landing, before, swapped=False)


def test_what_the_user_edits_after_the_crash_is_kept_and_holds(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    arm(repo, "kill -9 0")
    die(repo, landing, "nowhere")
    disarm(repo)
    repo.write("a.txt", "new a, and then edited\n")
    repo.write("new/mine.txt", "mine\n")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        answer = cherry_pick.land(landing)
    assert isinstance(answer, Held)
    assert "a.txt is edited" in answer.why
    files = {name: content.decode() for name, (_, content) in files_of(repo.path).items()}
    assert files["a.txt"] == "new a, and then edited\n"
    assert files["new/mine.txt"] == "mine\n"
    assert files["gone.txt"] == "gone\n"
    assert files["m.slow"] == "old m\n"
    assert repo.head(MAIN) == landing.old
    assert leftovers(repo) == ()


def test_a_file_the_user_empties_in_place_after_the_crash_stays_empty(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, "land.read-tree.before")
    repo.write("a.txt", "")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    assert (repo.path / "a.txt").read_text() == ""
    assert leftovers(repo) == ()


def test_a_users_file_where_a_file_has_to_return_is_kept(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, "land.commit.before")
    repo.write("gone.txt/mine.txt", "mine\n")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert isinstance(cherry_pick.land(landing), Held)
    assert (repo.path / "gone.txt/mine.txt").read_text() == "mine\n"


@pytest.mark.parametrize("first", ["land.read-tree.before", "land.commit.before", "land.commit.after"])
def test_dying_again_in_the_recovery_changes_nothing(repo: Repo, first: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, first)
    die(repo, landing, "land.install.after", verb="recover")
    comes_to_its_end(repo, landing, before, swapped=first in SWAPPED)


@pytest.mark.parametrize("point", ["land.hold.after", "land.commit.before", "land.commit.after"])
def test_a_user_who_removes_the_lock_file_gets_a_whole_checkout_back(repo: Repo, point: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, point)
    (repo.path / ".git/index.lock").unlink()
    comes_to_its_end(repo, landing, before, swapped=point in SWAPPED)


def test_nothing_is_mended_while_the_user_holds_the_index(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, "land.commit.before")
    (repo.path / ".git/index.lock").unlink()
    repo.write(".git/index.lock", "")
    written = files_of(repo.path)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert isinstance(cherry_pick.land(landing), Held)
    assert files_of(repo.path) == written
    (repo.path / ".git/index.lock").unlink()
    comes_to_its_end(repo, landing, before, swapped=False)


def test_what_the_user_stages_after_removing_the_lock_file_is_kept(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, "land.commit.after")
    for lock in ("index.lock", "HEAD.lock"):
        (repo.path / ".git" / lock).unlink(missing_ok=True)
    repo.git("add", "b.txt")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.status() == "M  b.txt\n?? mine.txt"
    assert leftovers(repo) == ()


def test_another_landing_ends_the_dead_one_and_each_keeps_what_it_set_aside(repo: Repo) -> None:
    first = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, first, "land.commit.before")
    other = intent(repo, candidate(repo, {"other.txt": "o\n"}, landing="L2"), landing="L2")
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(other) == Landed(tip=other.new)
        assert cherry_pick.observe(first) is None
    after = snapshot(repo)
    assert after.files == before.files | {"other.txt": ("-", b"o\n")}
    assert after.leftovers == ()
    assert repo.status() == " M b.txt\n?? mine.txt"


def test_the_lock_that_a_dead_landing_left_on_a_branch_without_checkout_stops_no_other(repo: Repo) -> None:
    repo.git("switch", "-qc", "elsewhere")
    first = intent(repo, candidate(repo, PHASE))
    die(repo, first, "land.commit.before")
    assert leftovers(repo) == ("refs/heads/main.lock",)
    os.utime(repo.path / ".git/refs/heads/main.lock", (0, 0))  # before whoever comes by was started
    other = intent(repo, candidate(repo, {"other.txt": "o\n"}, landing="L2"), landing="L2")
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(other) == Landed(tip=other.new)
        assert cherry_pick.observe(first) is None
    assert leftovers(repo) == ()


def test_a_note_that_was_never_seen_is_in_nobodys_way_and_goes_with_its_landing(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    note = heldindex.note_of(TargetCheckout(root=repo.path, git_dir=repo.path / ".git"), landing.id)
    note.with_name(f"runplan.draft{note.suffix}").write_text("half a no")
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert list((repo.path / ".git").glob("runplan.*")) == []


def test_a_lock_of_a_person_who_goes_back_to_a_landed_commit_stays(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    other = candidate(repo, {"other.txt": "o\n"}, landing="L2", onto="refs/test/L1")
    with lander(repo) as cherry_pick:
        cherry_pick.land(landing)
        cherry_pick.land(intent(repo, other, landing="L2"))
        repo.write(".git/refs/heads/main.lock", f"{landing.new}\n")
        cherry_pick.recover(intent(repo, other, landing="L3"))
    assert leftovers(repo) == ("refs/heads/main.lock",)


def test_a_landing_that_somebody_went_on_from_is_no_staged_revert(repo: Repo) -> None:
    """They removed our lock and moved the branch on, with an index in which the landing is missing."""
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, "land.commit.after")
    (repo.path / ".git/index.lock").unlink()
    on_top = candidate(repo, {"other.txt": "o\n"}, landing="L2")
    repo.git("update-ref", MAIN, on_top)
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{repo.git('rev-parse', f'{on_top}:other.txt')},other.txt")
    repo.write("other.txt", "o\n")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert cherry_pick.observe(landing) == Landed(tip=on_top)
    assert repo.status() == " M b.txt\n?? mine.txt"
    assert leftovers(repo) == ()


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "staged"])
@pytest.mark.parametrize("point", ["land.commit.before", "land.commit.after"])
def test_what_somebody_commits_or_stages_after_the_crash_is_left_alone(repo: Repo, point: str, commit: bool) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, point)
    for lock in landing.locks:
        Path(lock).unlink(missing_ok=True)
    repo.git("add", "-A")
    if commit:
        repo.git("commit", "-qm", "What lay there", "--allow-empty")
    before = snapshot(repo)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    after = snapshot(repo)
    assert (after.files, after.index, after.refs, after.leftovers) == (before.files, before.index, before.refs, ())


def test_half_written_files_that_somebody_committed_stay_as_they_committed_them(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    arm(repo, "kill -9 0")
    die(repo, landing, "nowhere")
    disarm(repo)
    for lock in landing.locks:
        Path(lock).unlink(missing_ok=True)
    repo.git("commit", "-qm", "Only this", "--", "a.txt")
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    assert (repo.path / "a.txt").read_text() == "new a\n"
    assert repo.status() == " M b.txt\n?? mine.txt"
    assert leftovers(repo) == ()


def test_a_hold_whose_note_an_earlier_version_wrote_is_mended(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    die(repo, landing, "land.commit.before")
    git_dir = repo.path / ".git"
    note = next(git_dir.glob("runplan.hold.*"))
    note.write_text(f"runplan landing {landing.id}\nwriting\n")
    for name in ("aside", "index"):
        next(git_dir.glob(f"runplan.{name}.*")).rename(git_dir / f"runplan.{name}")
    comes_to_its_end(repo, landing, before, swapped=False)


def test_a_landing_of_ours_that_lives_is_waited_for_and_its_lock_is_nobodys_to_remove(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    other = intent(repo, candidate(repo, {"other.txt": "o\n"}, landing="L2"), landing="L2")
    monkeypatch.setattr(heldindex, "ADOPT_S", 0.05)
    answers = []

    def meanwhile(point: str) -> None:
        if point == "land.hold.after":
            with lander(repo) as second:
                answers.append(second.land(other))

    with lander(repo, meanwhile) as first:
        assert first.land(landing) == Landed(tip=landing.new)
    assert isinstance(answers[0], Held)
    assert "the landing L1 in " in answers[0].why
    assert "remove" not in answers[0].why


def test_recovering_where_nothing_is_left_changes_nothing(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    before = snapshot(repo)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
        assert snapshot(repo) == before
        cherry_pick.land(landing)
        after = snapshot(repo)
        cherry_pick.recover(landing)
    assert snapshot(repo) == after


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("index.lock", ""),
        ("index.lock", "DIRC"),
        ("index.lock", "runplan landing L2\n"),
        ("HEAD.lock", ""),
        ("refs/heads/main.lock", ""),
        ("refs/heads/main.lock", "0123456789012345678901234567890123456789\n"),
    ],
)
def test_a_lock_that_is_not_provably_ours_stays(repo: Repo, name: str, content: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    repo.write(f".git/{name}", content)
    with lander(repo) as cherry_pick:
        cherry_pick.recover(landing)
    assert leftovers(repo) == (name,)


def test_the_intent_names_every_lock_git_may_leave(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    die(repo, landing, "land.commit.before")
    left = {str(repo.path / ".git" / name) for name in leftovers(repo) if name.endswith(".lock")}
    assert left == set(landing.locks)
