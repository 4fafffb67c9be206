"""Git's own places: what an agent puts there that is no plain file is seen, named, never opened, and taken away."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters import waiting
from runplan.adapters.guard import Guard
from runplan.adapters.ownrefs import is_symbolic, own_tip
from runplan.adapters.plainfiles import first_line, open_plain, read_file, write_anew
from runplan.adapters.plainplaces import PlainPlaces
from runplan.adapters.removal import Removal
from runplan.adapters.repository import refs_snapshot
from runplan.adapters.worktrees import Worktrees
from runplan.core.errors import GitFailed
from runplan.core.gitfacts import Removed
from runplan.core.guard import AGENT
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from runplan.core.gitfacts import Finding

BRANCH = "refs/heads/runplan/plan/1"
BASH = "# the user's own\n"


@dataclass(kw_only=True)
class House:
    """A user's repository, another worktree of theirs, files in their home, and the worktree of a run."""

    user: Repo
    mine: Repo
    home: Path
    tree: Path
    trees: Worktrees
    guard: Guard
    before: dict[str, object]

    @property
    def common(self) -> Path:
        return self.user.path / ".git"

    @property
    def entry(self) -> Path:
        return self.common / "worktrees/run"

    def place(self, name: str) -> Path:
        """By the letter it begins with: the worktree, its entry, or the repository."""
        top = {"W": self.tree, "E": self.entry, "C": self.common}[name[0]]
        return top / name[2:] if name[1:] else top

    def found(self) -> tuple[Finding, ...]:
        return self.guard.odd(self.tree, branch=BRANCH, before=self.before)

    def theirs(self) -> dict[str, object]:
        """What no agent and none of our own doings may change."""
        git = self.common
        refs = {name: oid for name, oid in self.user.refs().items() if "runplan" not in name}
        files = (git / "index", git / "HEAD", git / "config", git / "logs/HEAD", self.mine.path / ".git")
        return refs | {str(path): path.read_bytes() for path in (*files, *sorted(self.home.iterdir()))}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once and copied."""
    return make_repo(tmp_path_factory.mktemp("model") / "repo", **{"a.txt": "a\n", "dir/b.txt": "b\n"}).path


@pytest.fixture
def house(tmp_path: Path, model: Path) -> Iterator[House]:
    user = Repo(path=shutil.copytree(model, tmp_path / "repo"))
    common, home = user.path / ".git", tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text(BASH)
    user.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    git = user.adapter()
    trees = Worktrees(git, root=tmp_path / "trees", common_dir=common, lock_dir=common / "runplan")
    path = trees.lease("run", branch=BRANCH, base=user.head())
    guard = Guard(git, root=user.path, common_dir=common)
    before = json.loads(json.dumps(guard.stamp()))
    mine = user.at(tmp_path / "mine")
    yield House(user=user, mine=mine, home=home, tree=path, trees=trees, guard=guard, before=before)
    trees.close()
    git.close()


# --- kinds of things ----------------------------------------------------------------------------------


def _pipe(path: Path, _: House) -> None:
    os.mkfifo(path)


def _link_home(path: Path, house: House) -> None:
    path.symlink_to(house.home / ".bashrc")


def _link_nowhere(path: Path, house: House) -> None:
    path.symlink_to(house.home / "not-there-yet")


def _link_index(path: Path, house: House) -> None:
    path.symlink_to(house.common / "index")


def _link_folder(path: Path, house: House) -> None:
    path.symlink_to(house.home)


def _loop(path: Path, _: House) -> None:
    path.symlink_to(".")


def _folder(path: Path, _: House) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def _socket(path: Path, _: House) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        where = os.open(path.parent, os.O_DIRECTORY)
        try:
            made.bind(f"/proc/self/fd/{where}/{path.name}")  # the whole path may be too long for one
        finally:
            os.close(where)


LINKS = (_link_home, _link_nowhere, _link_index, _link_folder, _loop)
ENTRY_FILES = ("HEAD", "COMMIT_EDITMSG", "runplan-index", "runplan-shown", "index.lock")
CASES = [
    *(("E/index", kind) for kind in (_pipe, *LINKS, _folder)),
    *((f"E/{name}", kind) for name in ENTRY_FILES for kind in (_pipe, _link_home, _folder)),
    *((f"E/{name}", kind) for name in ("commondir", "gitdir", "config.worktree") for kind in (_pipe, _link_home)),
    *(("E/logs/HEAD", kind) for kind in (_pipe, *LINKS, _folder, _socket)),
    *(("E/rebase-merge", kind) for kind in (_link_folder, _pipe)),
    *(("E/logs", kind) for kind in (_link_folder, _pipe)),
    *(("E/refs/x/y", kind) for kind in (_link_home, _pipe)),
    *(("W", kind) for kind in (_pipe, _link_home, _link_folder)),
    *(("W/.git", kind) for kind in (_pipe, _link_home, _link_folder)),
    *((f"C/{BRANCH}", kind) for kind in (_pipe, _link_home, _loop)),
    *(("C/refs/heads/runplan/plan/zz", kind) for kind in (_pipe, *LINKS, _socket)),
    *(("C/refs/runplan/x", kind) for kind in (_pipe, _loop)),
    *((f"C/logs/{BRANCH}", kind) for kind in (_pipe, *LINKS)),
    *(("C/logs/refs/heads/runplan", kind) for kind in (_link_folder, _pipe)),
    *(("C/refs/heads/runplan", kind) for kind in (_link_folder, _loop)),
    *((f"C/{name}", _pipe) for name in ("logs/HEAD", "info/exclude", "objects/info/alternates", "refs/stash")),
    *((f"C/{name}", _pipe) for name in ("logs/refs/stash", "HEAD.lock", "HEAD", "packed-refs", "refs/heads/mine")),
    *((f"C/{name}", _pipe) for name in ("config", "hooks/pre-commit", "objects/ab/cdef")),
]


def put(house: House, place: str, kind: Callable[[Path, House], None]) -> Path:
    path = house.place(place)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind(path, house)
    return path


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_it_is_named_taken_away_and_the_next_lease_works(
    house: House, place: str, kind: Callable[[Path, House], None]
) -> None:
    (house.tree / "loose.txt").write_text("work")
    theirs, began = house.theirs(), time.monotonic()
    path = put(house, place, kind)
    found = house.found()
    assert {finding.name for finding in found} == {str(path).removeprefix(f"{house.common}/")}
    assert all(finding.by_agent and finding.kind == "place" for finding in found)

    (restored,) = house.guard.restore(found)

    assert house.found() == ()
    assert restored.restored
    if kind is _folder:
        assert (house.common / restored.parked / "x").read_text() == "x"
    again = house.user.at(house.trees.lease("run", branch="refs/heads/runplan/plan/2", base=house.user.head()))
    assert house.trees.intact(again.path)
    assert again.git("status", "--porcelain") == ""
    if place != "C/logs/HEAD":
        assert house.theirs() == theirs
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("place", "kind"), sorted({place: kind for place, kind in CASES if place[0] in "WE"}.items()))
def test_taking_the_worktree_up_does_so_by_itself_too(
    house: House, place: str, kind: Callable[[Path, House], None]
) -> None:
    theirs = house.theirs()
    put(house, place, kind)
    path = house.trees.attach("run", branch=BRANCH)
    house.trees.show(path, house.user.head(), clean="ignored")
    assert house.trees.intact(path)
    assert house.user.at(path).git("status", "--porcelain") == ""
    assert house.theirs() == theirs
    assert not [one for one in house.home.iterdir() if one.name != ".bashrc"]


def test_nothing_is_found_where_an_agent_only_works(house: House) -> None:
    tree = house.user.at(house.tree)
    tree.commit("work", **{"x.txt": "x"})
    tree.git("stash", "list")
    tree.git("bisect", "start")
    (house.tree / "link").symlink_to("/etc/passwd")
    os.mkfifo(house.tree / "pipe")
    (house.entry / "modules/sub").mkdir(parents=True)
    (house.entry / "modules/sub/link").symlink_to("elsewhere")
    _socket(house.entry / "fsmonitor--daemon.ipc", house)
    assert house.found() == ()


def test_links_that_a_person_put_into_their_repository_stay(house: House) -> None:
    shared = house.home / "exclude"
    shared.write_text("*.o\n")
    for name in ("info/exclude", "hooks/pre-commit"):
        (house.common / name).unlink(missing_ok=True)
        (house.common / name).symlink_to(shared)
    (house.common / "refs/heads/alias").symlink_to("refs/heads/main")
    assert house.found() == ()
    assert house.guard.stamp()["files"]["info/exclude"][1] == "*.o\n"  # type: ignore[index]


def test_what_lies_among_another_plans_refs_is_taken_away_but_nobody_is_accused(house: House) -> None:
    other = house.common / "refs/heads/runplan/other/up"
    other.parent.mkdir()
    other.symlink_to("../..")
    (found,) = house.found()
    assert not found.by_agent
    house.guard.restore([found])
    assert not other.is_symlink()


@pytest.mark.parametrize("name", ["HEAD", "packed-refs", "config", "refs/heads/mine", "worktrees/mine/HEAD"])
def test_what_the_user_had_in_its_place_is_put_back(house: House, name: str) -> None:
    house.user.git("tag", "v1")
    house.user.git("pack-refs", "--all")
    before = house.guard.stamp()
    theirs, refs = house.theirs(), house.user.refs()
    path = house.common / name
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    house.guard.restore(house.guard.odd(house.tree, branch=BRANCH, before=before))
    assert house.theirs() == theirs
    assert house.user.refs() == refs


def test_objects_that_went_through_a_link_come_back(house: House) -> None:
    oid = house.user.git("hash-object", "-t", "blob", "--stdin", stdin="mine")
    elsewhere = house.home.parent / "elsewhere"
    elsewhere.mkdir()
    fan_out = house.common / "objects" / oid[:2]
    shutil.rmtree(fan_out, ignore_errors=True)
    fan_out.symlink_to(elsewhere)
    assert house.user.git("hash-object", "-w", "--stdin", stdin="mine") == oid
    (elsewhere / "notes.txt").write_text("mine")
    (found,) = house.found()
    house.guard.restore([found])
    assert not fan_out.is_symlink()
    assert house.user.git("cat-file", "-p", oid) == "mine"
    assert [one.name for one in fan_out.iterdir()] == [oid[2:]]


def test_without_a_record_a_pipe_is_not_exchanged_for_no_head_at_all(house: House) -> None:
    (house.common / "HEAD").unlink()
    os.mkfifo(house.common / "HEAD")
    assert house.guard.odd(house.tree, branch=BRANCH, before={}) == ()


def test_the_place_of_a_worktree_that_was_never_ours_is_left_alone(house: House) -> None:
    other = house.trees.path("other")
    other.symlink_to(house.mine.path)
    link = (house.mine.path / ".git").read_bytes()
    with pytest.raises(Exception, match="is not a worktree of this repository"):
        house.trees.lease("other", branch="refs/heads/runplan/other/1", base=house.user.head())
    assert other.is_symlink()
    assert (house.mine.path / ".git").read_bytes() == link


def test_an_entry_that_names_another_repository_is_not_intact_and_is_put_right(house: House) -> None:
    evil = shutil.copytree(house.common, house.home.parent / "evil")
    for name, text in (("commondir", f"{evil}\n"), ("gitdir", "/nowhere/.git\n")):
        (house.entry / name).write_text(text)
        assert not house.trees.intact(house.tree)
        house.trees.attach("run", branch=BRANCH)
        assert house.trees.intact(house.tree)
    assert house.user.git("worktree", "list", "--porcelain").count("worktree ") == 3


def test_another_worktrees_entry_is_not_ours_because_our_link_says_so(house: House) -> None:
    link = house.common / "worktrees/mine/NOTES"
    link.symlink_to(house.home / ".bashrc")
    (house.tree / ".git").write_text(f"gitdir: {house.common / 'worktrees/mine'}\n")
    assert not house.trees.intact(house.tree)
    house.trees.attach("run", branch=BRANCH)
    assert link.is_symlink()
    assert house.trees.intact(house.tree)


# --- reading ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [_pipe, _link_home, _folder, _socket, _loop])
def test_what_is_no_plain_file_reads_as_none(house: House, kind: Callable[[Path, House], None]) -> None:
    path = house.home / "x"
    kind(path, house)
    assert (open_plain(path), read_file(path), first_line(path)) == (None, None, None)
    followed = read_file(path, follow=True)
    assert followed == (BASH.encode() if kind is _link_home else None)
    if kind is not _folder:
        write_anew(path, b"new\n")
        assert (path.read_bytes(), path.is_symlink()) == (b"new\n", False)
        assert (house.home / ".bashrc").read_text() == BASH


def test_pipes_among_refs_are_no_refs_and_nobody_waits_for_them(house: House) -> None:
    known = house.user.refs()
    git = house.user.adapter()
    for name in ("refs/heads/runplan/plan/zz", "refs/heads/pipe"):
        os.mkfifo(house.common / name)
        assert own_tip(house.common, git, name) is None
        assert not is_symbolic(house.common, git, name)
    assert refs_snapshot(house.common, git) == known
    (house.common / "packed-refs").unlink(missing_ok=True)
    os.mkfifo(house.common / "packed-refs")
    assert refs_snapshot(house.common, git) == known
    git.close()


def test_collecting_what_is_left_takes_loops_away_and_tells_so(house: House) -> None:
    loop = house.common / "refs/heads/runplan/plan/loop"
    loop.symlink_to(".")
    git = house.user.adapter()
    removal = Removal(
        git,
        root=house.tree.parent,
        common_dir=house.common,
        lock_dir=house.common / "runplan",
        targets=("refs/heads/main",),
    )
    told = Removed(what="the symbolic link to . at refs/heads/runplan/plan/loop")
    for dry_run in (True, False):
        assert told in removal.gc(dry_run=dry_run, prefix="runplan/", active={BRANCH, "run"})
        assert loop.is_symlink() is dry_run
    removal.close()
    git.close()


# --- git that waits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "dir/.gitignore"])
def test_a_pipe_that_git_reads_in_a_worktree_holds_it_up_for_a_moment_only(
    house: House, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SLOW_S", 0.05)
    os.mkfifo(house.tree / name)
    (house.tree / "dir/new.txt").write_text("new")
    state = house.trees.state(house.tree)
    assert [one.path for one in state.untracked] == ["dir/new.txt"]
    if name == ".gitattributes":  # a status reads no attributes of files that did not change
        assert not state.changed
    house.trees.commit_leftovers(
        house.tree, ["dir/new.txt"], message="m", author=AGENT, committer=AGENT, when="1700000000 +0000"
    )
    assert not (house.tree / name).exists()


def test_a_pipe_that_only_looks_like_one_of_gits_is_let_be(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / ".gitignore")
    assert waiting.let_go(tmp_path) == [str(tmp_path / ".gitignore")]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("ask", ["object", "update_refs"])
def test_a_kept_process_that_waits_for_ever_is_ended_and_the_next_one_answers(
    house: House, ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "ANSWER_S", 0.3)
    git = house.user.adapter()
    pipe = house.common / "refs/heads/pipe"
    os.mkfifo(pipe)
    head = house.user.head()
    with pytest.raises(GitFailed):
        git.object("refs/heads/pipe") if ask == "object" else git.update_refs(f"update refs/heads/pipe {head}")
    pipe.unlink()
    pipe.with_name("pipe.lock").unlink(missing_ok=True)
    git.update_refs(f"create refs/heads/pipe {head}")
    assert git.tip("refs/heads/pipe") == head
    git.close()


def test_a_command_that_is_spoken_to_is_looked_after_while_it_is_slow() -> None:
    done = threading.Event()
    with subprocess.Popen(
        ["sh", "-c", "cat; sleep 0.1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert waiting.outputs(process, b"said", 5, slow=done.set) == (b"said", b"")
    with (
        subprocess.Popen(["sleep", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as slow,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        waiting.outputs(slow, b"x", 0.05, slow=done.set)


def test_looking_costs_little(house: House) -> None:
    places = PlainPlaces(house.common, prefix="refs/heads/runplan/")
    took = []
    for _ in range(20):
        began = time.perf_counter()
        places.around(house.tree, BRANCH)
        took.append(time.perf_counter() - began)
    assert min(took) < 0.02, "when nobody else needs the processor"
