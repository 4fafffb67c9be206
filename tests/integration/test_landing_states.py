"""The table of checkout states: in each the landing arrives or waits, and nothing of the user's is changed or lost."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from runplan.engine.landing.lander import Landed, Pending, TargetMoved
from tests.support.landings import at, candidate, files_of, held, intent, land, lander, leftovers, snapshot
from tests.support.repos import MAIN, Repo, make_repo
from tests.support.tools import write_script

START = {"a.txt": "a\n", "b.txt": "b\n", "gone.txt": "gone\n", "dir/c.txt": "c\n", "dir/d.txt": "d\n"}
#: The changes of the landing: one file changed, one removed, one added.
PHASE: dict[str, str | None] = {
    "a.txt": "a2\n",
    "dir/d.txt": "d2\n",
    "gone.txt": None,
    "new.txt": "n\n",
    "newdir/n.txt": "n\n",
}
ARRIVES = {name: ("-", text.encode()) for name, text in PHASE.items() if text is not None}


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = make_repo(tmp_path / "repo", **START)
    repo.write(".git/info/exclude", "*.ignored\nnew.txt.also\n")
    return repo


#: A branch `side` and main that both change b.txt.
DIVERGE = (
    "git switch -qc side; echo side >b.txt; git commit -qam Side;"
    "git switch -q main; echo main >b.txt; git commit -qam Main;"
)
LONG_AGO = "touch -d @1600000000"

#: In these states a landing arrives, and everything that it does not change stays: what a user did, in shell.
ARRIVING = {
    "nothing": "",
    "edited elsewhere": "echo edited >b.txt",
    "touched": "touch -d @1 a.txt gone.txt b.txt",
    "staged elsewhere": "echo staged >b.txt; echo new >staged.txt; git add b.txt staged.txt; echo more >>b.txt",
    "removed elsewhere": "rm b.txt; git rm -q dir/c.txt",
    "untracked elsewhere": "echo mine | tee mine.txt >cache.ignored; mkdir newdir; echo mine >newdir/mine.txt",
    "stashed": "echo stashed >a.txt; git stash -q",
    "an empty directory in the way": "mkdir new.txt",
    "only the mode of another file changed": "chmod 755 b.txt",
    "split index": "git update-index --split-index; git update-index --refresh",
    "index of version 4": "git update-index --index-version 4",
    "index without hash": "git config index.skipHash true; git update-index --force-write-index",  # from git 2.40 on
    "assumed unchanged and so it is": "git update-index --assume-unchanged a.txt",
    "a landing that was killed while it staged": "cd .git; mkdir -p runplan-swap/new; touch runplan-swap/lock; "
    "echo half >runplan-swap/new/a.txt",
}

#: In these it waits: what a user did, and why the landing waits.
WAITING = {
    "staged as the landing would, and edited": ("echo a2 >a.txt; git add a.txt; echo a3 >a.txt", "a.txt is edited in"),
    "removed from the index where it is to be removed": ("git rm -q --cached gone.txt", "gone.txt is edited in"),
    "a parent replaced by a link": ("mv dir elsewhere; ln -s elsewhere dir", "dir/d.txt is edited in"),
    "a branch lock": ("touch .git/refs/heads/main.lock", "main.lock"),
    "a HEAD lock": ("touch .git/HEAD.lock", "HEAD.lock"),
    "edited": ("echo edited >a.txt", "a.txt is edited in"),
    "edited to the same size and time": (
        "touch -r a.txt .git/then; echo x >a.txt; touch -r .git/then a.txt; rm .git/then",
        "a.txt is edited in",
    ),
    # All that git can see is that the file is not older than the index.
    "edited in the instant the index was written": (
        f"git config core.checkStat minimal; git config core.trustctime false; {LONG_AGO} a.txt; "
        f"git update-index --refresh; echo x >a.txt; {LONG_AGO} a.txt .git/index",
        "a.txt is edited in",
    ),
    "made executable": ("chmod 755 a.txt", "a.txt is edited in"),
    "edited where it is to be removed": ("echo needed >gone.txt", "gone.txt is edited in"),
    "deleted": ("rm a.txt", "a.txt is edited in"),
    "staged": ("echo staged >a.txt; git add a.txt", "a.txt is edited in"),
    "staged and set back in the file": ("echo staged >a.txt; git add a.txt; echo a >a.txt", "a.txt is edited in"),
    "staged for removal": ("git rm -q --cached a.txt", "a.txt is edited in"),
    "staged as new": ("echo mine >new.txt; git add new.txt", "new.txt is edited in"),
    "intended to be added": ("echo mine >new.txt; git add -N new.txt", "new.txt is edited in"),
    "hidden by assume-unchanged": ("git update-index --assume-unchanged a.txt; echo x >a.txt", "git cannot update"),
    "hidden by assume-unchanged, in the second of the checkout": (
        "git config core.trustctime false; touch -d @1000000000 a.txt; git update-index --refresh; "
        "git update-index --assume-unchanged a.txt; echo x >a.txt; touch -d @1000000000 a.txt .git/index",
        "git cannot update",
    ),
    "hidden by skip-worktree": ("git update-index --skip-worktree a.txt; echo x >a.txt", "git cannot update"),
    "an untracked file in the way": ("echo mine >new.txt", "new.txt is in the way in"),
    "an ignored file in the way": ("echo new.txt >.git/info/exclude; echo mine >new.txt", "new.txt is in the way in"),
    "an untracked file with the very content in the way": ("echo n >new.txt", "new.txt is in the way in"),
    "an untracked folder in the way": ("mkdir new.txt; echo mine >new.txt/mine.txt", "new.txt/mine.txt is in the way"),
    "an ignored file in a directory in the way": (
        "mkdir -p new.txt/deep; echo mine >new.txt/deep/x.ignored",
        "new.txt/deep/x.ignored is in the way in",
    ),
    "a file where a directory must be": ("echo mine >newdir", "newdir is in the way in"),
    "a link where a directory must be": ("ln -s dir newdir", "newdir is in the way in"),
    "a dangling link in the way": ("ln -s nowhere new.txt", "new.txt is in the way in"),
    "an index lock": ("touch .git/index.lock", "index.lock"),
    "a file in conflict": (
        "echo stashed >b.txt; git stash -q; echo mine >b.txt; git commit -qam Mine; ! git stash apply -q",
        "git cannot update",
    ),
    "a merge": (f"{DIVERGE} ! git merge -q side", "a merge is under way in"),
    "a merge not yet committed": (
        "git switch -qc side; echo side >b.txt; git commit -qam Side; git switch -q main; "
        "git merge -q --no-ff --no-commit side",
        "a merge is under way in",
    ),
    "a cherry-pick": (f"{DIVERGE} ! git cherry-pick side", "a cherry-pick is under way in"),
    "a revert": (
        "for n in 1 2; do echo $n >b.txt; git commit -qam $n; done; ! git revert --no-edit HEAD~1",
        "a revert is under way in",
    ),
    "a rebase": (f"{DIVERGE} ! git rebase -q side", "a rebase of main is under way in"),
    "a rebase by patches": (f"{DIVERGE} ! git rebase -q --apply side", "a rebase of main is under way in"),
    "a bisect": (
        "for n in 1 2 3 4; do echo $n >b.txt; git commit -qam $n; done; git bisect start HEAD HEAD~4",
        "a bisect of main is under way in",
    ),
}
STATES = {name: (done, "") for name, done in ARRIVING.items()} | WAITING


def arrange(repo: Repo, state: str) -> str:
    """Put the checkout into this state; why a landing waits in it."""
    done, said = STATES[state]
    repo.sh(done)
    return said


def other_entries(repo: Repo) -> list[str]:
    """The index without the paths of the landing."""
    lines = repo.git("ls-files", "--stage").splitlines()
    return [line for line in lines if line.partition("\t")[2] not in PHASE]


@pytest.mark.matrix
@pytest.mark.parametrize("state", STATES)
def test_the_landing_arrives_or_waits_and_nothing_of_the_users_is_lost(repo: Repo, state: str) -> None:
    said = arrange(repo, state)
    landing = intent(repo, candidate(repo, PHASE))
    before, unrelated = snapshot(repo), other_entries(repo)
    index = (repo.path / ".git/index").read_bytes()
    answer = land(repo, landing)
    if said:
        assert isinstance(answer, Pending)
        assert said in answer.why
        assert str(repo.path) in answer.why
        assert snapshot(repo) == before
        assert (repo.path / ".git/index").read_bytes() == index
        return
    assert answer == Landed(tip=landing.new)
    after = snapshot(repo)
    expected = {name: file for name, file in before.files.items() if name != "gone.txt"}
    assert after.files == expected | ARRIVES
    assert after.refs == before.refs | {MAIN: landing.new}
    assert (after.stash, after.head, after.leftovers) == (before.stash, before.head, ())
    assert other_entries(repo) == unrelated
    if state != "split index":
        assert repo.git("diff-files", "--name-only", "--", *ARRIVES) == "", "git need not read the new files again"
    assert not set(PHASE) & {line[3:] for line in repo.status().splitlines()}


@pytest.mark.parametrize(
    "state",
    [
        *("nothing", "edited in the instant the index was written", "staged and set back in the file"),
        *("a parent replaced by a link", "hidden by assume-unchanged"),
        "hidden by assume-unchanged, in the second of the checkout",
    ],
)
def test_edits_are_seen_also_where_the_landing_removes_nothing(repo: Repo, state: str) -> None:
    """Git is asked in another way then."""
    said = arrange(repo, state)
    landing = intent(repo, candidate(repo, {"a.txt": "a2\n", "dir/d.txt": "d2\n"}))
    before = snapshot(repo)
    answer = land(repo, landing)
    if said:
        assert isinstance(answer, Pending)
        assert said in answer.why
        assert snapshot(repo) == before
    else:
        assert answer == Landed(tip=landing.new)


@pytest.mark.parametrize("name", [":!od*[d] ö.txt", "-odd"])
def test_an_edited_file_with_an_odd_name_is_named(repo: Repo, name: str) -> None:
    repo.commit("Odd", **{name: "odd\n"})
    repo.write(name, "edited\n")
    held(repo, candidate(repo, {name: "odd, landed\n", "b.txt": "b2\n"}), f"{name} is edited in")


# --- where HEAD is not on the target ------------------------------------------------------------------


def test_a_detached_head_stays_where_it_is_with_all_its_files(repo: Repo) -> None:
    repo.git("switch", "-q", "--detach")
    repo.write("a.txt", "edited\n")
    new = candidate(repo, PHASE)
    before = snapshot(repo)
    assert land(repo, new) == Landed(tip=new)
    after = snapshot(repo)
    assert after.refs == before.refs | {MAIN: new}
    assert (after.files, after.index, after.head) == (before.files, before.index, before.head)


def test_a_rebase_of_another_branch_does_not_hold(repo: Repo) -> None:
    repo.sh(f"{DIVERGE} git switch -q side; ! git rebase -q main")
    new = candidate(repo, PHASE)
    before = files_of(repo.path)
    assert land(repo, new) == Landed(tip=new)
    assert files_of(repo.path) == before


@pytest.mark.parametrize("state", ["a rebase", "a bisect"])
def test_work_on_the_target_in_another_worktree_holds(repo: Repo, tmp_path: Path, state: str) -> None:
    repo.git("switch", "-qc", "elsewhere")
    repo.git("worktree", "add", "-q", str(tmp_path / "other"), "main")
    other = repo.at(tmp_path / "other")
    arrange(other, state)
    new = candidate(repo, PHASE)
    before = snapshot(other)
    held(repo, new, str(other.path))
    assert snapshot(other) == before


def test_a_rebase_that_carries_the_target_along_holds(repo: Repo) -> None:
    repo.commit("One", **{"b.txt": "one\n"})
    repo.git("switch", "-qc", "stacked")
    repo.commit("Two", **{"dir/c.txt": "two\n"})
    editor = "sed -i -e 1s/^pick/edit/"
    repo.git("rebase", "-i", "--update-refs", "HEAD~2", env={"GIT_SEQUENCE_EDITOR": editor}, ok=False)
    held(repo, candidate(repo, PHASE), "a rebase of main is under way")


# --- kinds of files and of checkouts ------------------------------------------------------------------


def test_links_executables_types_directories_and_odd_names_arrive(repo: Repo) -> None:
    odd = {"-dash": "1\n", "sp ace/*[x]": "2\n", "übung": "3\n", ":(top)a": "4\n"}
    files: dict[str, str | None] = {
        **odd,
        "a.txt": "target",
        "run.sh": "#!/bin/sh\n",
        "b.txt": None,
        "b.txt/inner": "i\n",
        "gone.txt": None,
        "dir/c.txt": None,
        "dir/d.txt": None,
        "dir": "now a file\n",
    }
    new = candidate(repo, files, modes={"a.txt": "120000", "run.sh": "100755"})
    assert land(repo, new) == Landed(tip=new)
    assert repo.status() == ""
    assert files_of(repo.path) == {
        "a.txt": ("link", b"target"),
        "b.txt/inner": ("-", b"i\n"),
        "dir": ("-", b"now a file\n"),
        "run.sh": ("x", b"#!/bin/sh\n"),
        **{name: ("-", text.encode()) for name, text in odd.items()},
    }


def test_line_ends_and_filters_are_applied_also_by_a_filter_that_lies_in_the_checkout(repo: Repo) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.git("config", "filter.up.smudge", "sh ./up.sh a-z A-Z")
    repo.git("config", "filter.up.clean", "tr A-Z a-z")
    repo.commit("Attributes", **{".gitattributes": "*.up filter=up\n", "x.up": "X\n", "up.sh": 'tr "$1" "$2"\n'})
    new = candidate(repo, {"a.txt": "one\ntwo\n", "x.up": "loud\n"})
    assert land(repo, new) == Landed(tip=new)
    assert (repo.path / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    assert (repo.path / "x.up").read_bytes() == b"LOUD\r\n"
    assert repo.status() == ""


@pytest.mark.parametrize("cone", ["--no-cone", "--cone", "--sparse-index"])
def test_a_sparse_checkout_stays_sparse(repo: Repo, cone: str) -> None:
    repo.commit("More", **{"in/x.txt": "x\n"})
    repo.git("sparse-checkout", "set", cone, *(["/*.txt", "/in/"] if cone == "--no-cone" else ["in"]))
    repo.write("in/staged.txt", "staged\n")
    repo.write("b.txt", "staged\n")
    repo.git("add", ".")
    new = candidate(repo, {"a.txt": "a2\n", "dir/c.txt": "c2\n", "dir/e.txt": "e\n", "in/y.txt": "y\n"})
    assert land(repo, new) == Landed(tip=new)
    assert sorted(files_of(repo.path)) == ["a.txt", "b.txt", "gone.txt", "in/staged.txt", "in/x.txt", "in/y.txt"]
    assert (repo.path / "a.txt").read_text() == "a2\n"
    assert repo.status() == "M  b.txt\nA  in/staged.txt"


def test_submodules_are_left_to_the_user(repo: Repo, tmp_path: Path) -> None:
    module = make_repo(tmp_path / "module", **{"m.txt": "m\n"})
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(module.path), "sub")
    repo.commit("Submodule")
    (repo.path / "sub/m.txt").write_text("edited in the submodule\n")
    newer = module.commit("Newer", **{"m.txt": "m2\n"})
    new = candidate(repo, {"a.txt": "a2\n", "sub": newer, "sub2": newer}, modes={"sub": "160000", "sub2": "160000"})
    assert land(repo, new) == Landed(tip=new)
    assert (repo.path / "sub/m.txt").read_text() == "edited in the submodule\n"
    assert repo.status() == " M sub", "it lags behind, and an empty directory stands for the other one"


def test_a_checkout_on_another_device_is_updated_as_well(repo: Repo) -> None:
    with tempfile.TemporaryDirectory(dir=another_device(repo.path)) as place:
        repo.git("switch", "-qc", "elsewhere")
        repo.git("worktree", "add", "-q", f"{place}/other", "main")
        other = repo.at(Path(place) / "other")
        new = candidate(repo, PHASE)
        assert land(repo, new) == Landed(tip=new)
        assert {name: files_of(other.path)[name] for name in ARRIVES} == ARRIVES
        assert other.status() == ""
        assert leftovers(repo) == ()


def another_device(path: Path) -> Path:
    here = path.stat().st_dev
    found = [Path(one) for one in ("/tmp", "/var/tmp", "/dev/shm") if Path(one).is_dir()]
    return next((one for one in found if one.stat().st_dev != here), None) or pytest.skip("there is one device only")


# --- a user who is at work in the same instant --------------------------------------------------------


@pytest.mark.matrix
@pytest.mark.parametrize("point", ["land.staged", "land.prepared"])
@pytest.mark.parametrize("name", ["a.txt", "gone.txt", "new.txt"])
def test_a_file_saved_after_the_look_is_kept_and_holds(repo: Repo, name: str, point: str) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    held(repo, landing, name, at(point, lambda: repo.write(name, "just saved\n")))
    assert repo.head(MAIN) == landing.old
    expected = {path: ("-", text.encode()) for path, text in START.items()}
    assert files_of(repo.path) == expected | {name: ("-", b"just saved\n")}
    assert snapshot(repo).leftovers == ()


def test_a_file_replaced_by_a_directory_after_the_look_is_kept_and_holds(repo: Repo) -> None:
    def replace() -> None:
        (repo.path / "a.txt").unlink()
        repo.write("a.txt/mine.txt", "mine\n")

    landing = intent(repo, candidate(repo, PHASE))
    held(repo, landing, point=at("land.prepared", replace))
    assert (repo.path / "a.txt/mine.txt").read_text() == "mine\n"
    assert (repo.path / "gone.txt").read_text() == "gone\n"


def test_a_write_through_an_open_file_during_the_swap_is_kept_and_reported(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    with (repo.path / "a.txt").open("a") as editor:

        def save() -> None:
            editor.write("written late\n")
            editor.flush()

        with lander(repo, at("land.swapped", save)) as cherry_pick:
            answer = cherry_pick.land(landing)
    assert isinstance(answer, Landed)
    assert answer.note.startswith("a.txt was written to while the landing replaced it; the former content is in ")
    kept = Path(answer.note.rpartition(" is in ")[2]) / "a.txt"
    assert kept.read_text() == "a\nwritten late\n"
    assert (repo.path / "a.txt").read_text() == "a2\n"


def test_the_users_git_is_refused_during_the_swap_only(repo: Repo) -> None:
    def stage() -> None:
        repo.write("b.txt", "edited\n")
        repo.git("add", "b.txt")
        for_git.append(repo.git("diff", "--cached", "--name-only"))

    def refused() -> None:
        for command in (("add", "b.txt"), ("commit", "-qam", "In between"), ("switch", "-qc", "other")):
            repo.git(*command, ok=False)
        for_git.append(repo.git("symbolic-ref", "HEAD"))

    for_git: list[str] = []
    landing = intent(repo, candidate(repo, PHASE))
    answer = land(repo, landing, at("land.staged", stage, "land.prepared", refused, "land.swapped", refused))
    assert answer == Landed(tip=landing.new)
    assert for_git == ["b.txt", MAIN, MAIN]
    assert repo.head() == landing.new
    assert repo.status() == "M  b.txt"


def test_a_commit_after_the_look_is_noticed_by_the_swap(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    answer = land(repo, landing, at("land.staged", lambda: repo.commit("Mine", **{"b.txt": "b2\n"})))
    assert answer == TargetMoved(tip=repo.head())
    assert repo.status() == ""
    assert snapshot(repo).leftovers == ()


def test_a_switch_after_the_look_leaves_the_other_branch_alone(repo: Repo) -> None:
    landing = intent(repo, candidate(repo, PHASE))
    with lander(repo, at("land.staged", lambda: repo.git("switch", "-qc", "other"))) as cherry_pick:
        assert isinstance(cherry_pick.land(landing), Pending)
        assert cherry_pick.land(landing) == Landed(tip=landing.new)
    assert repo.head("other") == landing.old
    assert repo.status() == ""
    assert repo.head(MAIN) == landing.new


def test_no_checkout_switches_to_the_branch_while_it_moves(repo: Repo) -> None:
    """A switch that has read the old tip would check out the old files, so it meets a lock."""
    repo.git("switch", "-qc", "elsewhere")
    landing = intent(repo, candidate(repo, PHASE))
    answer = land(repo, landing, at("land.committed", lambda: repo.git("switch", "-q", "main", ok=False)))
    assert answer == Landed(tip=landing.new)
    assert repo.git("symbolic-ref", "--short", "HEAD") == "elsewhere"
    assert repo.status() == ""


def test_a_switch_to_the_branch_after_the_look_is_followed(repo: Repo) -> None:
    repo.git("switch", "-qc", "elsewhere")
    landing = intent(repo, candidate(repo, PHASE))
    assert land(repo, landing, at("land.staged", lambda: repo.git("switch", "-q", "main"))) == Landed(tip=landing.new)
    assert repo.head() == landing.new
    assert repo.status() == ""
    assert snapshot(repo).leftovers == ()


def test_a_slow_switch_that_read_the_old_tip_meets_the_lock(repo: Repo, tmp_path: Path) -> None:
    repo.git("switch", "-qc", "elsewhere")
    landing = intent(repo, candidate(repo, PHASE))
    slow = write_script(tmp_path / "git", f"sleep 0.5\ngit checkout -q {landing.old} && git symbolic-ref HEAD {MAIN}")
    switch = subprocess.Popen([slow, "switch", "main"], cwd=repo.path, env=repo.env)
    assert land(repo, landing) == Landed(tip=landing.new)
    assert switch.wait() != 0
    assert repo.git("symbolic-ref", "--short", "HEAD") == "elsewhere"
    assert repo.status() == ""
