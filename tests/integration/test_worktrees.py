"""Worktrees: leased exactly, taken up after a crash without loss, shown as one commit."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.worktrees import Worktrees
from runplan.core.errors import RefusedEarly, SettingsError
from runplan.core.gitfacts import Absent, Ahead, Identity, Poisoned, Stale
from tests.support.repos import Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BRANCH = "refs/heads/runplan/plan/1"
NEXT = "refs/heads/runplan/plan/2"
AGENT = Identity(name="runplan agent", email="agent@runplan.invalid")
ODD = (
    "with space.txt",
    "new\nline.txt",
    "ünïcode/日本.txt",
    "star*[x]?.txt",
    "-dash",
    ":(exclude)a.txt",
    '"quoted"\t.txt',
    "\\back",
)


@dataclass(kw_only=True)
class Place:
    repo: Repo
    trees: Worktrees
    base: str

    def lease(self, branch: str = BRANCH) -> Repo:
        return self.repo.at(self.trees.lease("run", branch=branch, base=self.base))

    def leftovers(self, tree: Repo, *names: str, message: str = "m", when: str = "1700000000 +0000") -> str:
        """The commit of what is left there under these names."""
        oid = self.trees.commit_leftovers(tree.path, names, message=message, author=AGENT, committer=AGENT, when=when)
        assert isinstance(oid, str), oid
        return oid

    def exact(self, tree: Repo, branch: str | None = BRANCH) -> bool:
        state = self.trees.state(tree.path)
        return state.clean and not state.ignored and (state.head, state.branch) == (self.base, branch)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    repo = make_repo(tmp_path / "repo", **{"a.txt": "a\n", "dir/b.txt": "b\n", ".gitignore": "*.o\n"})
    git = repo.adapter()
    lock_dir = repo.path / ".git/runplan/locks"
    trees = Worktrees(git, root=tmp_path / "trees", common_dir=repo.path / ".git", lock_dir=lock_dir)
    yield Place(repo=repo, trees=trees, base=repo.head())
    trees.close()
    git.close()


def dirty(tree: Repo) -> None:
    tree.write("a.txt", "edited\n")
    tree.write("staged.txt", "staged\n")
    tree.git("add", "staged.txt")
    tree.write("loose.txt", "loose\n")
    tree.write("x.o", "object\n")


def test_a_fresh_name_is_made_on_its_branch(place: Place) -> None:
    """I1, I11: the branch keeps its slashes, the path has none."""
    tree = place.lease()
    assert tree.path == place.trees.root / "run"
    assert place.exact(tree)
    assert (tree.path / "dir/b.txt").read_text() == "b\n"


def test_a_leased_worktree_is_switched_and_made_exact(place: Place) -> None:
    tree = place.lease()
    tree.commit("work", **{"c.txt": "c"})
    place.trees.show(tree.path, tree.head(), clean="ignored")
    dirty(tree)
    assert place.lease(NEXT).path == tree.path
    assert place.exact(tree, NEXT)
    assert len(place.repo.git("worktree", "list").splitlines()) == 2


def test_a_lease_cleans_only_what_it_is_told_to(place: Place) -> None:
    tree = place.lease()
    for name in ("x.o", ".env", "a b[1]*.o"):
        tree.write(name, "kept?")
    place.trees.show(tree.path, place.base, clean="untracked")
    assert {one.name for one in tree.path.glob("*.o")} == {"x.o", "a b[1]*.o"}
    tree.write(".env", "kept")
    place.trees.show(tree.path, place.base, clean="ignored", keep=[".env", "a b[1]*.o"])
    assert (tree.path / ".env").exists()
    assert (tree.path / "a b[1]*.o").exists()
    assert not (tree.path / "x.o").exists()


@pytest.mark.parametrize("where", ["relative", "home", "link"])
def test_the_root_means_the_same_from_everywhere(place: Place, tmp_path: Path, where: str) -> None:
    """I5: a relative root is one of the main checkout; links are followed, as git does."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    roots = {"relative": "../rel", "home": str(tmp_path / "plain"), "link": str(tmp_path / "link")}
    wanted = {"relative": "rel", "home": "plain", "link": "real"}
    type_of_path = type(tmp_path)
    with place.repo.adapter() as git:
        trees = Worktrees(
            git,
            root=type_of_path(roots[where]),
            common_dir=place.repo.path / ".git",
            lock_dir=tmp_path / "locks",
        )
        for _ in range(2):
            path = trees.lease("t", branch=BRANCH, base=place.base)
        assert path == tmp_path / wanted[where] / "t"


@pytest.mark.parametrize("name", ["fix/issue", "", "..", ".trash", "a b", "x\n"])
def test_a_name_that_is_no_plain_word_is_refused(place: Place, name: str) -> None:
    """I10"""
    with pytest.raises(RefusedEarly, match="no name for a worktree"):
        place.trees.lease(name, branch=BRANCH, base=place.base)


# --- branches -----------------------------------------------------------------------------------------


def test_branches_are_told_apart(place: Place) -> None:
    """I7, I8: absent, stale, poisoned, ahead, and both ahead and behind."""
    repo, trees = place.repo, place.trees
    repo.git("branch", "old")
    base = repo.commit("on")
    repo.git("branch", "same")
    repo.git("checkout", "-q", "-b", "more")
    tip = repo.commit("more")
    repo.git("checkout", "-q", "-b", "fork", "old")
    fork = repo.commit("fork")
    assert trees.standing("refs/heads/none", base) == Absent()
    assert trees.standing("refs/heads/same", base) == Stale(tip=base)
    assert trees.standing("refs/heads/old", base) == Poisoned(tip=place.base, behind=1)
    assert trees.standing("refs/heads/more", base) == Ahead(tip=tip, ahead=1)
    assert trees.standing("refs/heads/fork", base) == Ahead(tip=fork, ahead=1)


@pytest.mark.parametrize("standing", ["ahead", "poisoned"])
def test_a_lease_never_moves_a_branch_that_holds_something_else(place: Place, standing: str) -> None:
    """I7, I8: refused, and nothing is changed."""
    place.repo.git("branch", "runplan/plan/1")
    if standing == "ahead":
        place.repo.git("checkout", "-q", "runplan/plan/1")
    tip = place.repo.commit("one more")
    base = place.base if standing == "ahead" else tip
    place.repo.git("checkout", "-q", "main")
    before = place.repo.refs()
    with pytest.raises(RefusedEarly, match="runplan/plan/1 already holds"):
        place.trees.lease("run", branch=BRANCH, base=base)
    assert place.repo.refs() == before
    assert not (place.trees.root / "run").exists()


def test_a_branch_the_user_has_checked_out_is_refused(place: Place) -> None:
    place.repo.git("checkout", "-q", "-b", "runplan/plan/1")
    for take in (lambda: place.lease(), lambda: place.trees.attach("run", branch=BRANCH)):
        with pytest.raises(RefusedEarly, match=f"checked out in {place.repo.path}"):
            take()


def test_a_branch_removed_under_the_worktree_can_be_made_again(place: Place) -> None:
    tree = place.lease()
    tree.commit("parked elsewhere", **{"c.txt": "c"})
    place.repo.git("update-ref", "-d", BRANCH)
    place.lease()
    assert (tree.head(), tree.git("symbolic-ref", "HEAD")) == (place.base, BRANCH)
    assert place.trees.state(tree.path).clean


# --- things in the way --------------------------------------------------------------------------------


def _plain_directory(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "precious").write_text("mine")


def _other_repository(path: Path) -> None:
    make_repo(path)


def _file(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("mine")


def _worktree_of_another(path: Path) -> None:
    make_repo(path.parent.parent / "other").git("worktree", "add", "-q", str(path))


@pytest.mark.parametrize("put", [_plain_directory, _other_repository, _file, _worktree_of_another])
def test_what_is_not_ours_is_refused_and_left_alone(place: Place, put: Callable[[Path], None]) -> None:
    """I2"""
    path = place.trees.path("run")
    put(path)
    before = sorted(path.rglob("*"))
    for take in (lambda: place.lease(), lambda: place.trees.attach("run", branch="refs/heads/main2")):
        place.repo.git("branch", "-f", "main2")
        with pytest.raises(RefusedEarly, match="run is not a worktree of this repository; move it away"):
            take()
    assert sorted(path.rglob("*")) == before
    assert BRANCH not in place.repo.refs()


def test_an_empty_directory_is_no_hindrance(place: Place) -> None:
    place.trees.path("run").mkdir(parents=True)
    assert place.exact(place.lease())


# --- after a crash ------------------------------------------------------------------------------------


def _hand_deleted(tree: Repo, _: Path) -> None:
    shutil.rmtree(tree.path)


def _entry_gone(_: Repo, common: Path) -> None:
    shutil.rmtree(common / "worktrees/run")


def _link_gone(tree: Repo, _: Path) -> None:
    (tree.path / ".git").unlink()


def _lock_left(_: Repo, common: Path) -> None:
    (common / "worktrees/run/index.lock").write_text("")


def _half_made(tree: Repo, common: Path) -> None:
    (common / "worktrees/run/locked").write_text("initializing\n")
    (common / "worktrees/run/index").unlink()
    (tree.path / "dir/b.txt").unlink()


def _barely_made(tree: Repo, common: Path) -> None:
    for name in ("HEAD", "index", "commondir"):
        (common / "worktrees/run" / name).unlink()


def _both_gone(tree: Repo, common: Path) -> None:
    _hand_deleted(tree, common)
    _entry_gone(tree, common)


CRASHES = [_hand_deleted, _entry_gone, _link_gone, _lock_left, _half_made, _barely_made, _both_gone]


@pytest.mark.parametrize("crash", CRASHES)
def test_a_broken_worktree_is_leased_anew(place: Place, crash: Callable[[Repo, Path], None]) -> None:
    """L1, L2: directory without entry, entry without directory, and everything between."""
    tree = place.lease()
    crash(tree, place.repo.path / ".git")
    assert place.exact(place.lease())
    assert len(place.repo.git("worktree", "list", "--porcelain").split("\n\n")) == 2


@pytest.mark.parametrize("crash", CRASHES)
def test_a_broken_worktree_is_taken_up_on_its_branch(place: Place, crash: Callable[[Repo, Path], None]) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    crash(tree, place.repo.path / ".git")
    assert place.trees.attach("run", branch=BRANCH) == tree.path
    state = place.trees.state(tree.path)
    assert (state.head, state.branch, state.clean) == (tip, BRANCH, True)


@pytest.mark.parametrize("crash", [_lock_left, _entry_gone, _link_gone])
def test_taking_up_keeps_uncommitted_work(place: Place, crash: Callable[[Repo, Path], None]) -> None:
    """I8: an existing directory means go on."""
    tree = place.lease()
    dirty(tree)
    crash(tree, place.repo.path / ".git")
    place.trees.attach("run", branch=BRANCH)
    assert (tree.path / "a.txt").read_text() == "edited\n"
    state = place.trees.state(tree.path)
    named = {*state.changed, *(one.path for one in state.untracked)}
    assert named == {"a.txt", "staged.txt", "loose.txt"}


def test_taking_up_leaves_the_commit_that_was_shown(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    place.trees.show(tree.path, place.base, clean="ignored")
    tree.write("c.txt", "in the way")
    place.trees.attach("run", branch=BRANCH)
    assert (tree.head(), tree.git("symbolic-ref", "HEAD")) == (tip, BRANCH)
    assert (tree.path / "c.txt").read_text() == "c"


def test_a_branch_that_is_gone_cannot_be_taken_up(place: Place) -> None:
    with pytest.raises(RefusedEarly, match="runplan/plan/1 is gone"):
        place.trees.attach("run", branch=BRANCH)


def test_uncommitted_work_found_by_a_lease_is_parked(place: Place) -> None:
    tree = place.lease()
    dirty(tree)
    place.lease(NEXT)
    assert place.exact(tree, NEXT)
    ref = "refs/runplan/parked/plan/1/1"
    texts = [place.repo.show(f"{ref}:{name}") for name in ("a.txt", "staged.txt", "loose.txt")]
    assert texts == ["edited", "staged", "loose"]


def test_a_repository_inside_the_worktree_is_refused_before_it_is_lost(place: Place) -> None:
    tree = place.lease()
    make_repo(tree.path / "inner")
    with pytest.raises(RefusedEarly, match=r"inner/? is a git repository inside a worktree"):
        place.lease(NEXT)
    assert (tree.path / "inner/README.md").exists()


def test_a_killed_worktree_add_leaves_nothing_that_hinders(place: Place) -> None:
    """Killed by a checkout filter at the moment files are written."""
    place.repo.git("config", "filter.die.smudge", "kill -9 $(ps -o ppid= $PPID) $PPID; cat")
    place.repo.git("config", "filter.die.clean", "cat")
    base = place.repo.commit("filtered", **{".gitattributes": "*.die filter=die\n", "x.die": "x\n"})
    done = place.repo.git("worktree", "add", "-b", "runplan/plan/1", str(place.trees.path("run")), ok=False)
    assert done == ""
    assert (place.repo.path / ".git/worktrees/run/locked").exists()
    place.repo.git("config", "--remove-section", "filter.die")
    tree = place.repo.at(place.trees.lease("run", branch=BRANCH, base=base))
    assert (tree.head(), tree.status()) == (base, "")


def test_racing_threads_and_processes_make_one_worktree(place: Place) -> None:
    code = (
        "import sys, os; from pathlib import Path\n"
        "from runplan.adapters.git import Git; from runplan.adapters.worktrees import Worktrees\n"
        "repo, root, base = sys.argv[1:]; common = Path(repo) / '.git'\n"
        "with Git(Path(repo), env=os.environ) as git:\n"
        "    trees = Worktrees(git, root=Path(root), common_dir=common, lock_dir=common / 'runplan/locks')\n"
        f"    print(trees.lease('run', branch='{BRANCH}', base=base))\n"
    )
    argv = [sys.executable, "-c", code, str(place.repo.path), str(place.trees.root), place.base]
    others = [
        subprocess.Popen(argv, env=place.repo.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    found: list[Path] = []

    def lease() -> None:
        with place.repo.adapter() as git:
            common = place.repo.path / ".git"
            trees = Worktrees(git, root=place.trees.root, common_dir=common, lock_dir=common / "runplan/locks")
            found.append(trees.lease("run", branch=BRANCH, base=place.base))

    threads = [threading.Thread(target=lease) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    said = [other.communicate() for other in others]
    assert said == [(f"{place.trees.path('run')}\n", "")] * 2
    assert found == [place.trees.path("run")] * 3
    assert place.exact(place.repo.at(found[0]))
    assert len(place.repo.git("worktree", "list").splitlines()) == 2


# --- state, leftovers, showing ------------------------------------------------------------------------


def test_one_status_tells_everything(place: Place) -> None:
    tree = place.lease()
    dirty(tree)
    (tree.path / "dir/b.txt").unlink()
    for name in ODD:
        tree.write(name, "12345")
    state = place.trees.state(tree.path)
    assert (state.head, state.branch, state.ignored) == (place.base, BRANCH, True)
    assert state.changed == ("a.txt", "dir/b.txt", "staged.txt")
    assert {one.path: one.size for one in state.untracked} == {"loose.txt": 6} | dict.fromkeys(ODD, 5)


def test_leftovers_are_committed_by_name_and_nothing_else(place: Place) -> None:
    tree = place.lease()
    dirty(tree)
    (tree.path / "dir/b.txt").unlink()
    for name in ODD:
        tree.write(name, "odd")
    when = "1700000000 +0130"
    names = ["a.txt", "dir/b.txt", *ODD]
    oid = place.leftovers(tree, *names, message="Left\n\n# kept\n", when=when)
    with place.repo.adapter() as git:
        commit = git.commit(oid)
    assert (commit.parents, commit.message) == ((place.base,), "Left\n\n# kept\n")
    told = tree.git("log", "-1", "--format=%an <%ae> %ad %cn <%ce> %cd", "--date=raw", oid)
    assert told == " ".join(["runplan agent <agent@runplan.invalid> 1700000000 +0130"] * 2)
    changed = tree.git("diff", "--name-status", "--no-renames", "-z", place.base, oid).split("\0")[:-1]
    assert dict(zip(changed[1::2], changed[::2], strict=True)) == {
        "a.txt": "M",
        "dir/b.txt": "D",
        **dict.fromkeys(ODD, "A"),
    }
    assert tree.git("symbolic-ref", "HEAD") == BRANCH
    state = place.trees.state(tree.path)
    assert (state.changed, [one.path for one in state.untracked]) == (("staged.txt",), ["loose.txt"])


def test_a_file_that_became_a_directory_is_committed_without_its_neighbours(place: Place) -> None:
    tree = place.lease()
    (tree.path / "a.txt").unlink()
    tree.write("a.txt/inside", "new")
    tree.write("a.txt/secret", "no")
    place.trees.commit_leftovers(
        tree.path, ["a.txt", "a.txt/inside"], message="m", author=AGENT, committer=AGENT, when="1700000000 +0000"
    )
    assert tree.git("ls-tree", "-r", "--name-only", "HEAD", "a.txt/").split() == ["a.txt/inside"]


def test_a_broken_off_merge_and_a_lock_do_not_stop_leftovers(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "-b", "theirs")
    tree.commit("theirs", **{"a.txt": "theirs\n"})
    tree.git("checkout", "-q", "runplan/plan/1")
    ours = tree.commit("ours", **{"a.txt": "ours\n"})
    tree.git("merge", "theirs", ok=False)
    _lock_left(tree, place.repo.path / ".git")
    tree.write("a.txt", "both\n")
    oid = place.leftovers(tree, "a.txt")
    assert place.repo.git("log", "--format=%P", "-1", oid) == ours


def test_no_hook_runs_and_nothing_is_signed(place: Place) -> None:
    tree = place.lease()
    for name in ("pre-commit", "post-checkout", "commit-msg", "post-commit", "reference-transaction"):
        hook = place.repo.write(f".git/hooks/{name}", f"#!/bin/sh\ntouch {place.repo.path}/ran\nexit 1\n")
        hook.chmod(0o755)
    place.repo.git("config", "commit.gpgsign", "true")
    place.repo.git("config", "gpg.program", "false")
    tree.write("a.txt", "new")
    oid = place.leftovers(tree, "a.txt")
    place.trees.show(tree.path, oid, clean="ignored")
    assert not (place.repo.path / "ran").exists()


def test_a_commit_is_shown_exactly_whatever_was_done_to_the_worktree(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c", "sub/d.txt": "d"})
    tree.git("update-index", "--assume-unchanged", "c.txt")
    tree.git("update-index", "--skip-worktree", "a.txt")
    tree.write("c.txt", "hidden change")
    tree.write("a.txt", "hidden too")
    (tree.path / "sub/d.txt").unlink()
    (tree.path / "sub/d.txt").mkdir()
    tree.write("sub/d.txt/x", "in the way")
    make_repo(tree.path / "inner")
    tree.write("locked/f", "1")
    (tree.path / "locked").chmod(0o500)
    _lock_left(tree, place.repo.path / ".git")
    place.trees.show(tree.path, tip, clean="ignored")
    state = place.trees.state(tree.path)
    assert (state.head, state.branch, state.clean, state.ignored) == (tip, None, True, False)
    found = {str(p.relative_to(tree.path)): p.read_text() for p in tree.path.rglob("*") if p.is_file()}
    del found[".git"]
    assert found == {"a.txt": "a\n", "c.txt": "c", "sub/d.txt": "d", "dir/b.txt": "b\n", ".gitignore": "*.o\n"}
    assert place.repo.head(BRANCH) == tip


def test_commits_on_no_branch_are_parked_before_a_lease(place: Place) -> None:
    tree = place.lease()
    tree.git("checkout", "-q", "--detach")
    lost = tree.commit("on no branch", **{"c.txt": "c"})
    place.lease(NEXT)
    assert place.repo.refs()["refs/runplan/parked/worktree/run/1"] == lost


def test_what_gates_leave_in_a_shown_worktree_is_not_parked(place: Place) -> None:
    tree = place.lease()
    place.trees.show(tree.path, place.base, clean="ignored")
    dirty(tree)
    place.lease(NEXT)
    assert not [ref for ref in place.repo.refs() if "parked" in ref]


def test_a_broken_off_rebase_does_not_stop_showing(place: Place) -> None:
    tree = place.lease()
    tree.commit("one", **{"a.txt": "1\n"})
    tree.git("checkout", "-q", "-b", "other", place.base)
    tree.commit("two", **{"a.txt": "2\n"})
    tree.git("rebase", "runplan/plan/1", ok=False)
    place.trees.show(tree.path, place.base, clean="ignored")
    assert place.trees.state(tree.path).clean
    assert "rebase" not in tree.git("status")


# --- run.copy -----------------------------------------------------------------------------------------


def test_named_files_are_taken_over_from_the_checkout(place: Place) -> None:
    tree = place.lease()
    place.repo.write(".env", "SECRET=1")
    place.repo.write("conf/local ü.toml", "x")
    (place.repo.path / "conf/local ü.toml").chmod(0o600)
    place.trees.copy(tree.path, [".env", "conf/local ü.toml"], place.repo.path)
    place.trees.copy(tree.path, [".env"], place.repo.path)
    assert (tree.path / ".env").read_text() == "SECRET=1"
    assert (tree.path / "conf/local ü.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.env", "there is no file"),
        ("dir", "there is no file"),
        ("../outside", "not inside the repository"),
        ("/etc/passwd", "not inside the repository"),
        (".git/config", "not inside the repository"),
        ("away/file", "leads out of the worktree"),
    ],
)
def test_nothing_is_copied_from_or_to_elsewhere(place: Place, tmp_path: Path, name: str, said: str) -> None:
    tree = place.lease()
    (tmp_path / "outside").write_text("x")
    place.repo.write("away/file", "x")
    (tmp_path / "elsewhere").mkdir()
    (tree.path / "away").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match=said) as refused:
        place.trees.copy(tree.path, [name], place.repo.path)
    assert name in str(refused.value)
    assert not any((tmp_path / "elsewhere").iterdir())
