"""A landing meets every state a user's checkout can be in: nothing of the user's is changed or lost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runplan.core.gitfacts import Held, Landed
from tests.support.landings import MAIN, candidate, files_of, intent, lander, snapshot
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

START = {"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n", "dir/c.txt": "c\n", "dir/d.txt": "d\n"}
#: What the landing does: changes, removes and adds.
PHASE: dict[str, str | None] = {"a.txt": "a2\n", "gone.txt": None, "new.txt": "n\n", "newdir/n.txt": "n\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repo(tmp_path / "repo", **START)
    repo.write(".git/info/exclude", "*.ignored\nnew.txt.also\n")
    return repo


# --- states in which a landing goes through -----------------------------------------------------------


def clean(repo: Repo) -> None:
    """Nothing is going on."""


def edited_elsewhere(repo: Repo) -> None:
    repo.write("b.txt", "edited\n")


def touched(repo: Repo) -> None:
    for name in ("a.txt", "gone.txt", "b.txt"):
        os.utime(repo.path / name, (1, 1))


def staged_elsewhere(repo: Repo) -> None:
    repo.write("b.txt", "staged\n")
    repo.write("staged.txt", "new and staged\n")
    repo.git("add", "b.txt", "staged.txt")
    repo.write("b.txt", "staged, then edited\n")


def removed_elsewhere(repo: Repo) -> None:
    (repo.path / "b.txt").unlink()
    repo.git("rm", "-q", "dir/c.txt")


def untracked_elsewhere(repo: Repo) -> None:
    repo.write("mine.txt", "mine\n")
    repo.write("newdir/mine.txt", "mine\n")
    repo.write("cache.ignored", "ignored\n")


def stashed(repo: Repo) -> None:
    repo.write("a.txt", "in the stash\n")
    repo.git("stash", "-q")


def an_empty_directory_in_the_way(repo: Repo) -> None:
    (repo.path / "new.txt").mkdir()


LANDS = [
    clean,
    edited_elsewhere,
    touched,
    staged_elsewhere,
    removed_elsewhere,
    untracked_elsewhere,
    stashed,
    an_empty_directory_in_the_way,
]


@pytest.mark.parametrize("arrange", LANDS, ids=lambda state: state.__name__)
def test_the_landing_arrives_and_everything_else_stays(repo: Repo, arrange: Callable[[Repo], None]) -> None:
    arrange(repo)
    new = candidate(repo, PHASE)
    before, unrelated = snapshot(repo), other_entries(repo)
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(intent(repo, new)) == Landed(tip=new)
    after = snapshot(repo)
    expected = {name: file for name, file in before.files.items() if name != "gone.txt"}
    arrived = {name: ("-", text.encode()) for name, text in PHASE.items() if text is not None}
    assert after.files == expected | arrived
    assert after.refs == before.refs | {MAIN: new}
    assert (after.stash, after.head, after.leftovers) == (before.stash, before.head, ())
    assert other_entries(repo) == unrelated
    assert not set(PHASE) & {line[3:] for line in repo.status().splitlines()}


def other_entries(repo: Repo) -> list[str]:
    """The index without the paths of the landing."""
    lines = repo.git("ls-files", "--stage").splitlines()
    return [line for line in lines if line.partition("\t")[2] not in PHASE]


# --- states in which it waits -------------------------------------------------------------------------


def edited(repo: Repo) -> None:
    repo.write("a.txt", "edited\n")


def edited_to_the_same_size_and_time(repo: Repo) -> None:
    at = (repo.path / "a.txt").stat()
    repo.write("a.txt", "x\n")
    os.utime(repo.path / "a.txt", ns=(at.st_atime_ns, at.st_mtime_ns))


def edited_in_the_instant_the_index_was_written(repo: Repo) -> None:
    """All that git can see is that the file is not older than the index."""
    long_ago = (1_600_000_000, 1_600_000_000)
    repo.git("config", "core.checkStat", "minimal")
    repo.git("config", "core.trustctime", "false")
    os.utime(repo.path / "a.txt", long_ago)
    repo.git("update-index", "--refresh")
    repo.write("a.txt", "x\n")
    os.utime(repo.path / "a.txt", long_ago)
    os.utime(repo.path / ".git/index", long_ago)


def made_executable(repo: Repo) -> None:
    (repo.path / "a.txt").chmod(0o755)


def edited_where_it_is_to_be_removed(repo: Repo) -> None:
    repo.write("gone.txt", "still needed\n")


def deleted(repo: Repo) -> None:
    (repo.path / "a.txt").unlink()


def staged(repo: Repo) -> None:
    repo.write("a.txt", "staged\n")
    repo.git("add", "a.txt")


def staged_and_set_back_in_the_file(repo: Repo) -> None:
    staged(repo)
    repo.write("a.txt", "a\n")


def staged_for_removal(repo: Repo) -> None:
    repo.git("rm", "-q", "--cached", "a.txt")


def staged_as_new(repo: Repo) -> None:
    repo.write("new.txt", "mine\n")
    repo.git("add", "new.txt")


def intended_to_be_added(repo: Repo) -> None:
    repo.write("new.txt", "mine\n")
    repo.git("add", "-N", "new.txt")


def hidden_by_assume_unchanged(repo: Repo) -> None:
    repo.git("update-index", "--assume-unchanged", "a.txt")
    repo.write("a.txt", "local secret\n")


def hidden_by_skip_worktree(repo: Repo) -> None:
    repo.git("update-index", "--skip-worktree", "a.txt")
    repo.write("a.txt", "local secret\n")


def an_untracked_file_in_the_way(repo: Repo) -> None:
    repo.write("new.txt", "mine\n")


def an_ignored_file_in_the_way(repo: Repo) -> None:
    repo.write(".git/info/exclude", "new.txt\n")
    repo.write("new.txt", "mine\n")


def an_untracked_file_with_the_very_content_in_the_way(repo: Repo) -> None:
    repo.write("new.txt", "n\n")


def an_untracked_directory_in_the_way(repo: Repo) -> None:
    repo.write("new.txt/mine.txt", "mine\n")


def an_ignored_file_in_a_directory_in_the_way(repo: Repo) -> None:
    repo.write("new.txt/deep/x.ignored", "mine\n")


def a_file_where_a_directory_must_be(repo: Repo) -> None:
    repo.write("newdir", "mine\n")


def a_link_where_a_directory_must_be(repo: Repo) -> None:
    (repo.path / "newdir").symlink_to("dir")


def a_dangling_link_in_the_way(repo: Repo) -> None:
    (repo.path / "new.txt").symlink_to("nowhere")


def an_index_lock(repo: Repo) -> None:
    repo.write(".git/index.lock", "")


def a_file_in_conflict(repo: Repo) -> None:
    repo.write("b.txt", "in the stash\n")
    repo.git("stash", "-q")
    repo.commit("Elsewhere", **{"b.txt": "committed\n"})
    repo.git("stash", "apply", "-q", ok=False)


def diverged(repo: Repo) -> None:
    """A branch `side` and main that both change b.txt."""
    repo.git("switch", "-qc", "side")
    repo.commit("Side", **{"b.txt": "side\n"})
    repo.git("switch", "-q", "main")
    repo.commit("Main", **{"b.txt": "main\n"})


def a_merge(repo: Repo) -> None:
    diverged(repo)
    repo.git("merge", "-q", "side", ok=False)


def a_merge_not_yet_committed(repo: Repo) -> None:
    repo.git("switch", "-qc", "side")
    repo.commit("Side", **{"b.txt": "side\n"})
    repo.git("switch", "-q", "main")
    repo.git("merge", "-q", "--no-ff", "--no-commit", "side")


def a_cherry_pick(repo: Repo) -> None:
    diverged(repo)
    repo.git("cherry-pick", "side", ok=False)


def a_revert(repo: Repo) -> None:
    first = repo.commit("One", **{"b.txt": "one\n"})
    repo.commit("Two", **{"b.txt": "two\n"})
    repo.git("revert", "--no-edit", first, ok=False)


def a_rebase(repo: Repo) -> None:
    diverged(repo)
    repo.git("rebase", "-q", "side", ok=False)


def a_rebase_by_patches(repo: Repo) -> None:
    diverged(repo)
    repo.git("rebase", "-q", "--apply", "side", ok=False)


def a_bisect(repo: Repo) -> None:
    for number in range(4):
        repo.commit(f"More {number}", **{"b.txt": f"{number}\n"})
    repo.git("bisect", "start", "HEAD", "HEAD~4")


HOLDS = [
    (edited, "a.txt is edited in"),
    (edited_to_the_same_size_and_time, "a.txt is edited in"),
    (edited_in_the_instant_the_index_was_written, "a.txt is edited in"),
    (made_executable, "a.txt is edited in"),
    (edited_where_it_is_to_be_removed, "gone.txt is edited in"),
    (deleted, "a.txt is deleted in"),
    (staged, "a.txt is staged in"),
    (staged_and_set_back_in_the_file, "a.txt is edited in"),
    (staged_for_removal, "a.txt is staged in"),
    (staged_as_new, "new.txt is staged in"),
    (intended_to_be_added, "new.txt is edited in"),
    (hidden_by_assume_unchanged, "git cannot update"),
    (hidden_by_skip_worktree, "git cannot update"),
    (an_untracked_file_in_the_way, "new.txt is in the way in"),
    (an_ignored_file_in_the_way, "new.txt is in the way in"),
    (an_untracked_file_with_the_very_content_in_the_way, "new.txt is in the way in"),
    (an_untracked_directory_in_the_way, "new.txt/mine.txt is in the way in"),
    (an_ignored_file_in_a_directory_in_the_way, "new.txt/deep/x.ignored is in the way in"),
    (a_file_where_a_directory_must_be, "newdir is in the way in"),
    (a_link_where_a_directory_must_be, "newdir is in the way in"),
    (a_dangling_link_in_the_way, "new.txt is in the way in"),
    (an_index_lock, "index.lock"),
    (a_file_in_conflict, "git cannot update"),
    (a_merge, "a merge is under way in"),
    (a_merge_not_yet_committed, "a merge is under way in"),
    (a_cherry_pick, "a cherry-pick is under way in"),
    (a_revert, "a revert is under way in"),
    (a_rebase, "a rebase of main is under way in"),
    (a_rebase_by_patches, "a rebase of main is under way in"),
    (a_bisect, "a bisect of main is under way in"),
]


@pytest.mark.parametrize(("arrange", "said"), HOLDS, ids=lambda part: getattr(part, "__name__", ""))
def test_the_landing_waits_says_for_what_and_touches_nothing(
    repo: Repo, arrange: Callable[[Repo], None], said: str
) -> None:
    arrange(repo)
    new = candidate(repo, PHASE)
    before = snapshot(repo)
    index = (repo.path / ".git/index").read_bytes()
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(intent(repo, new))
    assert isinstance(answer, Held)
    assert said in answer.why
    assert str(repo.path) in answer.why
    assert snapshot(repo) == before
    assert (repo.path / ".git/index").read_bytes() == index


@pytest.mark.parametrize("name", [":!odd.txt", "od*[d].txt", "-odd", "ö dd"])
def test_an_edited_file_with_an_odd_name_is_named(repo: Repo, name: str) -> None:
    repo.commit("Odd", **{name: "odd\n"})
    repo.write(name, "edited\n")
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(intent(repo, candidate(repo, {name: "odd, landed\n", "b.txt": "b2\n"})))
    assert isinstance(answer, Held)
    assert f"{name} is edited in" in answer.why


def test_the_held_landing_goes_through_when_the_user_has_made_room(repo: Repo) -> None:
    repo.write("a.txt", "edited\n")
    landing = intent(repo, candidate(repo, PHASE))
    with lander(repo) as cherry_pick:
        assert isinstance(cherry_pick.land(landing), Held)
        repo.git("stash", "-q")
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.status() == ""
    assert repo.git("stash", "list") != ""


# --- where HEAD is not on the target ------------------------------------------------------------------


def test_a_detached_head_stays_where_it_is_with_all_its_files(repo: Repo) -> None:
    repo.git("switch", "-q", "--detach")
    repo.write("a.txt", "edited\n")
    new = candidate(repo, PHASE)
    before = snapshot(repo)
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(intent(repo, new)) == Landed(tip=new)
    after = snapshot(repo)
    assert after.refs == before.refs | {MAIN: new}
    assert (after.files, after.index, after.head) == (before.files, before.index, before.head)


def test_a_rebase_of_another_branch_does_not_hold(repo: Repo) -> None:
    diverged(repo)
    repo.git("switch", "-q", "side")
    repo.git("rebase", "-q", "main", ok=False)
    new = candidate(repo, PHASE)
    before = files_of(repo.path)
    with lander(repo) as cherry_pick:
        assert cherry_pick.land(intent(repo, new)) == Landed(tip=new)
    assert files_of(repo.path) == before


@pytest.mark.parametrize("arrange", [a_rebase, a_bisect], ids=lambda state: state.__name__)
def test_work_on_the_target_in_another_worktree_holds(
    repo: Repo, tmp_path: Path, arrange: Callable[[Repo], None]
) -> None:
    repo.git("switch", "-qc", "elsewhere")
    repo.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    other = repo.at(tmp_path / "other")
    arrange(other)
    new = candidate(repo, PHASE)
    before = snapshot(other)
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(intent(repo, new))
    assert isinstance(answer, Held)
    assert str(other.path) in answer.why
    assert snapshot(other) == before


def test_a_rebase_that_carries_the_target_along_holds(repo: Repo) -> None:
    repo.commit("One", **{"b.txt": "one\n"})
    repo.git("switch", "-qc", "stacked")
    repo.commit("Two", **{"dir/c.txt": "two\n"})
    editor = "sed -i -e 1s/^pick/edit/"
    repo.git("rebase", "-i", "--update-refs", "HEAD~2", env={"GIT_SEQUENCE_EDITOR": editor}, ok=False)
    with lander(repo) as cherry_pick:
        answer = cherry_pick.land(intent(repo, candidate(repo, PHASE)))
    assert isinstance(answer, Held)
    assert "a rebase of main is under way" in answer.why


# --- a user who is at work in the same instant --------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "gone.txt", "new.txt"])
def test_an_edit_after_our_look_is_seen_by_git_and_kept(repo: Repo, name: str) -> None:
    def edit(point: str) -> None:
        if point == "land.read-tree.before":
            repo.write(name, "just saved\n")

    new = candidate(repo, PHASE)
    with lander(repo, edit) as cherry_pick:
        landing = intent(repo, new)
        answer = cherry_pick.land(landing)
    assert isinstance(answer, Held)
    assert name in answer.why
    assert repo.head(MAIN) == landing.old
    expected = {path: ("-", text.encode()) for path, text in START.items()}
    assert files_of(repo.path) == expected | {name: ("-", b"just saved\n")}
    assert snapshot(repo).leftovers == ()


def test_the_user_can_neither_stage_nor_commit_while_a_landing_is_under_way(repo: Repo) -> None:
    refused: list[str] = []

    def commit(point: str) -> None:
        if point.startswith("land.") and point != "land.release.after":
            repo.write("b.txt", "edited\n")
            refused.append(repo.git("commit", "-qam", "In between", ok=False))

    new = candidate(repo, PHASE)
    with lander(repo, commit) as cherry_pick:
        assert cherry_pick.land(intent(repo, new)) == Landed(tip=new)
    assert len(refused) > 5
    assert repo.head() == new
    assert repo.status() == " M b.txt"
