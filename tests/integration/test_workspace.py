"""The repositories that runplan makes for agents: what they see, what is taken from them, what is kept."""

import os
import random
import shutil
import signal
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from runplan.adapters.git.handover import AgentZone
from runplan.adapters.git.repository import is_users_own
from runplan.adapters.git.workspace import MOST_LANDED, MOST_PACKS
from runplan.adapters.git.zones import Extra
from runplan.adapters.store.files import is_directory, publish
from runplan.domain.errors import GitFailed, HandOverRefused, RefusedEarly, SettingsError
from runplan.domain.gitfacts import Kept, Removed
from runplan.domain.settings.schema import LimitSettings
from tests.support.dispatching import gone, until
from tests.support.repos import BASE, BRANCH, PARKED, Place, Repo, a_place, init_repo, make_repo

# --- what an agent gets ---------------------------------------------------------------------------------


def test_an_agent_gets_its_branch_the_target_the_tags_and_no_remote(place: Place) -> None:
    place.repo.git("tag", "-a", "v1", "-m", "v1")
    place.repo.git("remote", "add", "origin", "/nowhere")
    place.repo.git("branch", "private")
    tree = place.lease()
    assert sorted(tree.refs()) == ["refs/heads/main", BRANCH, "refs/tags/v1"]
    assert tree.git("describe") == "v1"
    assert tree.git("remote") == ""
    assert tree.git("symbolic-ref", "HEAD") == BRANCH
    assert tree.status() == ""


def test_the_users_repository_gets_nothing_but_a_pin_while_an_agent_works(place: Place) -> None:
    before = (place.repo.path / ".git/config").read_bytes()
    tree = place.lease()
    tree.commit("work", **{"c.txt": "c"})
    place.take()
    assert place.repo.refs() == {"refs/heads/main": place.base, "refs/runplan/base/r1": place.base}
    assert (place.repo.path / ".git/config").read_bytes() == before
    assert place.repo.git("worktree", "list").count("\n") == 0


def test_the_users_tokens_are_left_out_of_the_files_that_a_sandbox_shows(place: Place) -> None:
    common = place.workspace.common_dir
    assert place.workspace.hide_secrets() == {}
    place.repo.git("config", "http.https://example.org/.extraheader", "Authorization: hunter2")
    for module in ("modules/a/b", "modules/a/modules/c"):
        (common / module).mkdir(parents=True)
        (common / module / "config").write_text('[remote "origin"]\n\turl = https://hunter2@example.org/b\n')
    place.repo.git("config", "include.path", "tokens")
    (common / "tokens").write_text('[includeIf "gitdir:/x/"]\n\tpath = "more"\n[github]\n\ttoken = hunter2\n')
    (common / "more").write_text("[credential]\n\thelper = !echo hunter2\n")
    shown = place.workspace.hide_secrets()
    assert {str(file.relative_to(common)) for file in shown} == {
        *("config", "tokens", "more", "modules/a/b/config", "modules/a/modules/c/config")
    }
    assert not any("hunter2" in copy.read_text() for copy in shown.values())
    assert place.repo.git("config", "-f", str(shown[common / "config"]), "core.bare") == "false"


def test_a_lease_is_switched_and_made_exact(place: Place) -> None:
    tree = place.lease()
    tree.commit("work", **{"a.txt": "changed"})
    tree.write("junk.o", "ignored")
    place.take()
    tree.git("config", "core.bare", "true")
    tree.git("tag", "mine")
    hook = place.lane / "hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.touch()
    again = place.lease("refs/heads/runplan/domain/plan/2")
    assert again.path == tree.path
    assert (again.path / "a.txt").read_text() == "a\n"
    assert not (again.path / "junk.o").exists()
    assert again.git("tag") == ""
    assert not hook.exists()
    assert again.git("symbolic-ref", "HEAD") == "refs/heads/runplan/domain/plan/2"
    assert again.status() == ""


def test_a_worktree_is_cleaned_as_far_as_requested(place: Place) -> None:
    tree = place.lease()
    for path in (tree.path, place.proof.checkout_exact_tree(place.base, clean="ignored")):
        for clean, is_kept in (("untracked", True), ("ignored", False)):
            for name in ("built.o", "new.txt"):
                (path / name).write_text("left")
            (path / "empty/below").mkdir(parents=True)
            if path == tree.path:
                place.take()
                place.zone.forget_leftovers()
                place.zone.lend(branch=BRANCH, clean=clean)
            else:
                place.proof.checkout_exact_tree(place.base, clean=clean)
            assert (path / "built.o").exists() == is_kept
            assert not (path / "new.txt").exists()
            assert not (path / "empty").exists()


def test_what_cannot_be_worked_is_refused_before_any_work(place: Place) -> None:
    for name in ("", "../x", "a/b", ".hidden"):
        with pytest.raises(RefusedEarly):
            AgentZone(place.zones, name)
    with pytest.raises(RefusedEarly, match="is gone"):
        place.zone.lend(branch=BRANCH)
    place.repo.git("config", "remote.origin.promisor", "true")
    with pytest.raises(RefusedEarly, match="partial clone"):
        place.workspace.prepare()


@pytest.mark.rest
def test_threads_that_write_the_same_file_write_it_whole(tmp_path: Path) -> None:
    file = tmp_path / "gitconfig"
    contents = [bytes([65 + number]) * 20_000 for number in range(2)]
    publish(file, contents[0], sync=False)

    def write(content: bytes) -> None:
        for _ in range(500):
            publish(file, content, sync=False)
            assert file.read_bytes() in contents

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, contents))
    assert list(tmp_path.iterdir()) == [file]


def test_what_all_repositories_share_is_written_when_it_differs(place: Place) -> None:
    shared = place.workspace.state / "gitconfig"
    files = (shared, place.workspace.path / "config", place.workspace.path / "objects/info/alternates")
    before = [file.stat().st_ino for file in files]
    place.lease()
    place.workspace.prepare()
    assert [file.stat().st_ino for file in files] == before
    content = shared.read_bytes()
    shared.write_text("[user]\n\tname = changed by an agent\n")
    draft = shared.with_name(".draft-left")  # by a kill, two hours ago
    draft.touch()
    os.utime(draft, (time.time() - 7200,) * 2)
    place.workspace.prepare()
    assert shared.read_bytes() == content
    assert not draft.exists()


# --- objects ---------------------------------------------------------------------------------------------


def test_the_base_survives_a_user_who_amends_it_and_prunes(place: Place) -> None:
    tree = place.lease()
    place.repo.git("commit", "-q", "--amend", "-m", "another")
    place.repo.git("reflog", "expire", "--expire=now", "--all")
    place.repo.git("gc", "-q", "--prune=now")
    tree.commit("work", **{"c.txt": "c"})
    assert place.take() == tree.head()


@pytest.mark.rest
def test_packs_are_merged_when_they_have_become_many(place: Place) -> None:
    """Also what no ref names, and what the user's repository has in a pack and may prune, stays."""
    tool = place.repo.at(place.workspace.path)
    place.repo.git("repack", "-adq")
    borrowed = place.repo.head()
    packs = tool.path / "objects/pack"
    names = [str(place.repo.write(f"{one}.txt", f"{one}")) for one in range(MOST_PACKS + 2)]
    oids = [borrowed, *tool.git("hash-object", "-w", "--stdin-paths", stdin="\n".join(names)).split()]
    for oid in oids[:-1]:
        tool.git("pack-objects", "-q", str(packs / "pack"), stdin=f"{oid}\n")
    tool.git("prune-packed")
    reads = place.workspace.git.object
    assert reads(oids[1]) is not None
    place.workspace.prepare()
    assert all(map(reads, oids))  # a git that was at work meanwhile finds them as well
    assert len(list(packs.glob("*.pack"))) == 1
    assert list(tool.path.glob("objects/??/*")) == []
    (tool.path / "objects/info/alternates").unlink()
    assert all(tool.git("cat-file", "-t", oid) in ("commit", "blob") for oid in oids)


@pytest.mark.rest
def test_packs_of_landings_are_merged_and_those_of_the_user_are_not(place: Place) -> None:
    place.repo.git("repack", "-adq")
    packs = place.repo.path / ".git/objects/pack"
    (own,) = packs.glob("*.pack")
    tips = []
    for number in range(MOST_LANDED + 1):
        tree = place.lease()
        tips.append(tree.commit("work", **{f"{number}.txt": f"{number}"}))
        place.take()
        place.workspace.deliver(tips[-1], without=[place.base])
        assert len(list(packs.glob("*.keep"))) == 1
        place.workspace.release_landed()
    assert own.exists()
    assert len(list(packs.glob("*.pack"))) == 2
    (place.workspace.path / "objects/pack").rename(packs / "of-tool")
    assert [place.repo.git("cat-file", "-t", tip) for tip in tips] == ["commit"] * len(tips)


def test_a_pack_above_its_limit_is_refused_by_the_name_of_the_limit(place: Place) -> None:
    tree = place.lease()
    (tree.path / "large.bin").write_bytes(os.urandom(400_000))
    tree.commit("large")
    place.zones.limits = LimitSettings(handover_size=300_000)
    with pytest.raises(HandOverRefused, match=r"of more than 300000 bytes \(limits\.handover_size\)"):
        place.take()


@pytest.mark.rest
def test_a_large_file_is_handed_over_and_delivered_without_being_held_in_memory(place: Place) -> None:
    size = 24_000_000
    tree = place.lease()
    (tree.path / "large.bin").write_bytes(os.urandom(1_000_000) * (size // 1_000_000))
    tree.commit("large")
    tracemalloc.start()
    place.workspace.deliver(place.take(), without=[place.base])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < size / 6


# --- taking ---------------------------------------------------------------------------------------------


def test_commits_and_the_files_beside_them_are_handed_over_also_those_that_the_index_hides(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    tree.git("update-index", "--assume-unchanged", "a.txt")
    tree.git("update-index", "--skip-worktree", "b.txt", "c.txt")
    os.utime(tree.write("c.txt", "edited"), (1e9, 1e9))  # git does not read a file again that is older than its index
    tree.write("a.txt", "changed")
    (tree.path / "b.txt").unlink()
    tree.write("new.txt", "new")
    tree.write("junk.txt", "junk")
    tree.write("x.o", "ignored")
    assert place.take() == tip
    assert place.workspace.git.tip(BRANCH) == tip
    assert place.left() == {"a.txt": "M", "b.txt": "D", "c.txt": "M", "junk.txt": "A", "new.txt": "A"}


COMMIT = "echo c >c.txt; git add c.txt; git commit -qm work"
#: What an agent does with its commit.
PLACES = {
    "on a branch of its own": f"git checkout -q -b feature; {COMMIT}",
    "on its branch, then back to main": f"{COMMIT}; git checkout -q main",
    "on a detached HEAD": f"git checkout -q --detach; {COMMIT}",
    "amended": f"{COMMIT}; git commit -q --amend -m 'better work'",
    "packed": f"{COMMIT}; git gc -q --prune=now; git pack-refs --all",
    "on a branch that it renamed": f"{COMMIT}; git branch -m elsewhere",
}


@pytest.mark.parametrize("work", PLACES.values(), ids=PLACES)
def test_work_is_found_where_the_agent_left_it(place: Place, work: str) -> None:
    tree = place.lease()
    tree.sh(work)
    tip = tree.git("log", "--all", "--format=%H", "--grep=work")
    for _ in range(2):
        assert place.take() == tip
        assert place.workspace.git.tip(BRANCH) == tip
    place.zone.lend(branch=BRANCH)
    assert (tree.head(), tree.git("symbolic-ref", "HEAD"), tree.status()) == (tip, BRANCH, "")


def test_a_branch_that_the_agent_sets_back_counts_with_its_files(place: Place) -> None:
    tree = place.lease()
    tree.commit("work", **{"a.txt": "first"})
    place.take()
    place.zone.lend(branch=BRANCH)
    tree.git("reset", "-q", "--soft", place.base)
    tree.write("a.txt", "second")
    assert place.take() == place.base
    assert place.workspace.git.tip(BRANCH) == place.base
    assert place.workspace.git.blob(str(place.zone.leftovers), "a.txt") == b"second"


def test_edits_on_another_branch_are_parked_and_the_files_become_those_of_the_work(place: Place) -> None:
    tree = place.lease()
    tree.sh(PLACES["on its branch, then back to main"])
    tree.write("a.txt", "edited on main")
    place.take()
    assert place.left() == {}
    place.zone.lend(branch=BRANCH)
    assert (tree.path / "c.txt").exists()
    assert place.repo.show(f"{PARKED}:a.txt") == "edited on main"


#: What an agent does with work that its branch does not hold.
ASIDE = {
    "stashed": "echo stashed >a.txt; git stash -q",
    "left on a branch": f"{COMMIT}; git branch second; git reset -q --hard main",
    "left on a ref with a long name": f"{COMMIT}; "
    'echo "$(git rev-parse HEAD) refs/zzz/$(printf %05000d 0)" >>"$(git rev-parse --git-common-dir)/packed-refs"; '
    "git reset -q --hard main",
}


@pytest.mark.parametrize("work", ASIDE.values(), ids=ASIDE)
def test_commits_only_in_the_agents_repository_are_parked_first(place: Place, work: str) -> None:
    place.lease().sh(work)
    place.take()
    place.lease("refs/heads/runplan/domain/plan/2")
    parked = [ref for ref in place.repo.refs() if ref.startswith("refs/runplan/parked/")]
    assert len(parked) == 1
    assert place.repo.git("diff", "--name-only", place.base, parked[0]) in ("a.txt", "c.txt")


@pytest.mark.parametrize("content", ["", "junk\n"])
def test_a_deleted_branch_leaves_the_commits_taken_before(place: Place, content: str) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    place.take()
    place.zone.lend(branch=BRANCH)
    tree.git("update-ref", "-d", "HEAD")
    if content:
        file = place.lane / BRANCH
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    assert place.take() == tip
    assert place.left() == {}


@pytest.mark.parametrize("is_last", [False, True])
def test_a_worktree_that_was_removed_before_the_first_commit_is_told(place: Place, is_last: bool) -> None:
    """Also with the directory of all worktrees."""
    tree = place.lease()
    tree.write("a.txt", "lost")
    shutil.rmtree(tree.path.parent if is_last else tree.path)
    with pytest.raises(HandOverRefused, match=f"the worktree {tree.path} was removed during the work"):
        place.take()


def test_objects_that_git_refuses_are_not_taken(place: Place) -> None:
    tree = place.lease()
    bad = tree.git("mktree", stdin=f"100644 blob {tree.git('hash-object', '-w', 'a.txt')}\t.git\n")
    tip = tree.git("commit-tree", bad, "-p", place.base, "-m", "bad")
    tree.git("update-ref", BRANCH, tip)
    with pytest.raises(GitFailed, match=r"invalid path '\.git'"):
        place.take()
    assert place.workspace.git.tip(BRANCH) == place.base


def test_a_missing_blob_is_reported(place: Place) -> None:
    tree = place.lease()
    tree.commit("work", **{"c.txt": "unique content"})
    blob = tree.git("rev-parse", "HEAD:c.txt")
    (place.lane / "objects" / blob[:2] / blob[2:]).unlink()
    tree.write("c.txt", "other content")
    with pytest.raises(GitFailed):
        place.take()


# --- runplan's git obeys no agent -------------------------------------------------------------------------


def test_no_program_that_an_agent_plants_is_run(place: Place, tmp_path: Path) -> None:
    """Filters, monitors, hooks and editors: of the lane, of the global configuration, of a committed gitlink."""
    tree = place.lease()
    ran = tmp_path / "ran"
    program = tree.write(".tool", f"#!/bin/sh\necho $0 $* >>{ran}\ncat\n")
    program.chmod(0o755)
    keys = (
        *("filter.x.clean", "filter.x.smudge", "filter.x.process", "diff.x.textconv", "diff.external", "gpg.program"),
        *("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "uploadpack.packObjectsHook"),
    )
    home = tmp_path / "home"
    home.mkdir()
    for key in keys:
        tree.git("config", key, str(program))
        tree.git("config", "--file", str(home / ".gitconfig"), key, str(program))
    hooks = place.lane / "hooks"
    hooks.mkdir()
    for hook in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change"):
        shutil.copy2(program, hooks / hook)
    tree.write(".gitattributes", "* filter=x diff=x\n")
    inner = init_repo(tree.path / "inner")
    inner.git("config", "core.fsmonitor", str(program))
    inner.commit("inner", **{"i.txt": "i"})
    tree.git("-c", "core.fsmonitor=false", "add", "inner", ".gitattributes")
    tree.git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "commit", "-q", "-m", "work")
    tree.write("a.txt", "changed")
    ran.unlink(missing_ok=True)
    place.workspace.git.env = {**place.workspace.git.env, "HOME": str(home)}
    place.take()
    place.proof.checkout_exact_tree(place.workspace.git.tip(BRANCH) or "", clean="untracked")
    place.zone.lend(branch=BRANCH)
    place.workspace.publish(BRANCH, base=place.base)
    place.removal.remove_worktree("run")
    assert not ran.exists()


def test_a_filter_that_hangs_is_ended_with_all_it_started(place: Place, tmp_path: Path) -> None:
    started = tmp_path / "started"
    place.repo.git("config", "filter.slow.clean", f"sleep 300 & echo $! $$ >>{started}; wait")
    place.workspace.prepare()
    tree = place.lease()
    tree.write(".gitattributes", "*.slow filter=slow\n")
    tree.write("a.slow", "a")
    place.zones.limits = LimitSettings(handover_s=1.0)
    with pytest.raises(HandOverRefused, match=r"took longer than 1 s \(limits.handover\)"):
        place.take()
    until(lambda: all(gone(int(pid)) for pid in started.read_text().split()))
    # Its files are kept, so neither a repetition after a crash nor the end of the run takes as long once more.
    with pytest.raises(HandOverRefused, match=r"took longer than 1 s \(limits.handover\)"):
        place.take()
    assert place.repo.git("show", f"{PARKED}:a.slow") == "a"
    assert place.removal.remove_worktree("run") == Removed(what=str(tree.path))
    assert len(started.read_text().splitlines()) == 1


def test_work_that_took_too_long_is_kept_aside_and_not_read_again(place: Place) -> None:
    tree = place.lease()
    tree.write("a.txt", "edited")
    place.zones.limits = LimitSettings(handover_s=0.0)
    with pytest.raises(HandOverRefused, match=r"took longer than 0 s \(limits.handover\)"):
        place.take()
    place.zones.limits = LimitSettings()
    kept = place.removal.remove_worktree("run")
    assert isinstance(kept, Kept)
    assert "took longer than 0 s (limits.handover)); move it somewhere else" in kept.why
    assert place.lease().status() == ""
    (listed,) = place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=("run", BASE, BRANCH))
    assert (listed.what, isinstance(listed, Kept)) == (str(tree.path.with_name("run_kept1")), True)
    assert (tree.path.with_name("run_kept1") / "a.txt").read_text() == "edited"


def test_a_commit_of_countless_paths_is_refused_before_it_is_read(place: Place) -> None:
    tree = place.lease()
    entry = f"100644 blob {tree.git('rev-parse', 'HEAD:a.txt')}"
    for _ in range(9):  # 10^9 paths; `git read-tree` would need minutes and gigabytes
        rows = "".join(f"{entry}\t{name}\n" for name in range(10))
        entry = f"040000 tree {tree.git('mktree', stdin=rows)}"
    tree.git("update-ref", "HEAD", tree.git("commit-tree", "-p", "HEAD", "-m", "Bomb", entry.split()[2]))
    tree.write("new.txt", "new")
    place.zones.limits = LimitSettings(handover_s=20.0, handover_entries=1000)
    with pytest.raises(HandOverRefused, match=r"more than 1000 files .* differ \(limits.handover_entries\)"):
        place.take()
    assert place.repo.git("show", f"{PARKED}:new.txt") == "new"


def test_a_commit_with_a_name_that_no_file_system_takes_is_refused(place: Place) -> None:
    tree = place.lease()
    made = tree.git("mktree", stdin=f"100644 blob {tree.git('rev-parse', 'HEAD:a.txt')}\t{'x' * 256}\n")
    tree.git("update-ref", "HEAD", tree.git("commit-tree", "-p", "HEAD", "-m", "Long", made))
    with pytest.raises(HandOverRefused, match=r"x… is a name of more than 255 bytes"):
        place.take()


def test_a_script_dies_with_runplan(place: Place, tmp_path: Path) -> None:
    started = tmp_path / "started"
    script = f"sleep 300 & echo $! $$ >{started}.new; mv {started}.new {started}; wait"
    pid = os.fork()
    if not pid:
        with place.zones.start(script, (), cwd=tmp_path, writable=()):
            until(started.exists)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    until(lambda: all(gone(int(pid)) for pid in started.read_text().split()))


# --- attaching, showing, mending ----------------------------------------------------------------------


def test_the_next_agent_gets_the_uncommitted_work_of_an_interrupted_one(place: Place) -> None:
    tree = place.lease()
    tree.commit("work", **{"c.txt": "c"})
    tree.write("a.txt", "uncommitted")
    tree.write("new.txt", "new")
    place.take()
    place.zone.lend(branch=BRANCH)
    assert tree.status() == " M a.txt\n?? new.txt"
    assert tree.git("symbolic-ref", "HEAD") == BRANCH


#: What happens to a worktree `$tree` and its repository `$lane`.
BREAKS = {
    "without directory": 'rm -r "$tree"',
    "without link": 'rm "$tree/.git"',
    "another link": 'echo "gitdir: /nowhere" >"$tree/.git"',
    "without repository": 'rm -r "$lane"',
    "pruned": 'git --git-dir="$lane" worktree remove -f -f "$tree"',
    "locked": 'touch "$lane/worktrees/run/index.lock" "$lane/worktrees/run/HEAD.lock" "$lane/packed-refs.lock"',
}


@pytest.mark.parametrize("breaks", BREAKS.values(), ids=BREAKS)
def test_a_broken_worktree_is_made_again(place: Place, breaks: str) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    place.take()
    happens = f"tree='{tree.path}' lane='{place.lane}'; {breaks}"
    place.repo.sh(happens)
    place.zone.lend(branch=BRANCH)
    assert (tree.head(), tree.status()) == (tip, "")
    place.take()
    place.repo.sh(happens)
    again = place.lease("refs/heads/runplan/domain/plan/2")
    assert (again.head(), again.status()) == (place.base, "")
    place.take("refs/heads/runplan/domain/plan/2")
    place.repo.sh(happens)
    assert isinstance(place.removal.remove_worktree("run"), Removed)
    assert not tree.path.exists()


def test_where_the_files_are_known_a_fill_changes_what_differs_and_looks_at_nothing_else(place: Place) -> None:
    path = place.proof.checkout_exact_tree(place.base, clean="untracked")
    (path / "left.log").write_text("by a check that no sandbox confined")

    def fill(commit: str) -> str:
        place.proof.checkout_exact_tree(commit, clean="none")
        return (path / "a.txt").read_text()

    shown = fill(place.base)
    assert not (path / "left.log").exists()
    (path / "a.txt").write_text("not looked at")
    tree = place.lease()
    other = tree.commit("work", **{"c.txt": "c", "[a]/d.txt": "d"})
    tree.git("rm", "-q", "b.txt")
    last = tree.commit("delete")
    place.take()
    assert fill(other) == "not looked at"
    assert ((path / "c.txt").read_text(), (path / "[a]/d.txt").read_text()) == ("c", "d")
    assert fill(last) == "not looked at"
    assert not (path / "b.txt").exists()
    assert fill(place.base) == "not looked at"
    assert not (path / "[a]").exists()
    for file in path.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    assert fill(place.base) == shown


def test_filtered_files_are_exact_in_a_worktree_whose_files_are_known(place: Place) -> None:
    place.repo.git("config", "filter.up.smudge", "cat")
    attributes = {".gitattributes": "*.up filter=up\n"}
    commits = [place.repo.commit(text, **attributes, **{"a.up": text, "b.up": "same"}) for text in ("one", "second")]
    place.workspace.prepare()
    for commit, text in zip(commits, ("one", "second"), strict=True):
        path = place.proof.checkout_exact_tree(commit, clean="none")
        assert ((path / "a.up").read_text(), (path / "b.up").read_text()) == (text, "same")


def test_after_any_change_the_next_worktrees_have_exactly_the_files_of_their_commits(place: Place) -> None:
    rng = random.Random(5)
    names = ["a.txt", "d", "d/x", "d/y", "d/y/z", "[b]", "[b]/q", "two words", "\u00e9", "-dash", ":(top)x", "x.log"]
    commits = [place.base]
    for number in range(15):
        base = rng.choice(commits)
        branch = f"refs/heads/runplan/plan/{number}"
        place.zone.lease(branch=branch, base=base, pin="r1", onto=place.base)
        place.zone.lend(branch=branch)
        proof = Repo(path=place.proof.checkout_exact_tree(rng.choice(commits), clean="none"), env=place.repo.env)
        tree = Repo(path=place.zone.path, env=place.repo.env)
        for worktree in (tree, proof):
            worktree.git("update-index", "-q", "--really-refresh")
            assert (worktree.status(), worktree.git("ls-files", "-o")) == ("", "")
        for name in rng.choices(names, k=4):
            path = tree.path / name
            with suppress(OSError):
                shutil.rmtree(path) if is_directory(path) else path.unlink()
            with suppress(OSError):
                path.parent.mkdir(exist_ok=True)
                rng.choice((Path.mkdir, Path.touch, lambda path: path.symlink_to("a.txt")))(path)
        if rng.random() < 0.7:
            tree.git("add", "-A", *rng.choice(((), ("-f",))))
            tree.git("commit", "-q", "--allow-empty", "-m", "Work")
            tree.write("left.txt", str(number))
        commits.append(place.zone.hand_over(branch=branch, base=base))
        commits += [left] if (left := place.zone.leftovers) else []
        place.zone.forget_leftovers()


def test_a_commit_is_shown_exactly_in_a_changed_proof_worktree(place: Place) -> None:
    path = place.proof.checkout_exact_tree(place.base, clean="ignored")
    proof = Repo(path=path, env=place.repo.env)
    assert (proof.head(), proof.status()) == (place.base, "")
    proof.sh("""
        rm a.txt b.txt .git; mkdir a.txt .git dir empty; ln -s /etc/passwd b.txt
        mkfifo fifo; echo '*' >dir/.gitignore; chmod 600 .gitignore""")
    assert "a.txt" in place.proof.changed(place.base)
    place.proof.checkout_exact_tree(place.base, clean="ignored")
    assert sorted(entry.name for entry in path.iterdir()) == [".git", ".gitignore", "a.txt", "b.txt"]
    assert {name.name: name.read_text() for name in path.glob("*.txt")} == {"a.txt": "a\n", "b.txt": "b\n"}
    assert place.proof.changed(place.base) == []
    proof.commit("Sneaked", new="x\n")
    assert (proof.status(), place.proof.changed(place.base)) == ("", ["HEAD"])


def test_submodules_that_the_user_has_are_checked_out_without_a_network(tmp_path: Path) -> None:
    added = ("-c", "protocol.file.allow=always", "submodule", "add", "-q")
    inner = make_repo(tmp_path / "inner", i="i\n")
    module = make_repo(tmp_path / "module", o="o\n")
    module.git(*added, str(inner.path), "deep/in ner")
    module.commit("Add the inner one")
    repo = make_repo(tmp_path / "repo", a="a\n")
    repo.git(*added, str(module.path), "lib/sub")
    repo.git("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init", "--recursive")
    repo.commit("Add a submodule")
    shutil.rmtree(module.path)
    shutil.rmtree(inner.path)
    with a_place(tmp_path, repo) as place:
        proof = Repo(path=place.proof.checkout_exact_tree(place.base, clean="ignored"), env=repo.env)
        agents = place.lease()
        for tree in (proof, agents):
            assert (tree.path / "lib/sub/o").read_text() == "o\n"
            assert (tree.path / "lib/sub/deep/in ner/i").read_text() == "i\n"
            assert tree.git("submodule", "update", "--init", "--recursive") == ""
            assert tree.status() == ""
            (tree.path / "lib/sub/o").write_text("x\n")
            (tree.path / "lib/sub/new").touch()
        shutil.rmtree(proof.path / "lib/sub/deep")
        (proof.path / "lib/sub/deep").symlink_to(repo.path / "lib")
        place.proof.checkout_exact_tree(place.base, clean="ignored")
        assert sorted(path.name for path in (proof.path / "lib/sub").iterdir()) == [".git", ".gitmodules", "deep", "o"]
        assert (proof.path / "lib/sub/o").read_text() == "o\n"
        assert (proof.path / "lib/sub/deep/in ner/i").read_text() == "i\n"
        assert repo.status() == ""
        place.take()
        again = place.zone.lend(branch=BRANCH)
        assert (again / "lib/sub/o").read_text() == "x\n", "an agent's files in a submodule are not deleted"


def test_an_edit_of_the_same_second_and_size_is_seen(place: Place) -> None:
    """Git compares times in whole seconds, and reads a file again only if its index is not newer."""
    tree = place.lease()
    proof = place.proof.checkout_exact_tree(place.base, clean="ignored")
    for path in (tree.path, proof):
        (path / "a.txt").write_text("b\n")
    written = (proof / "a.txt").stat().st_mtime
    until(lambda: int(time.time()) > int(written))
    place.take()
    assert place.left() == {"a.txt": "M"}
    place.proof.checkout_exact_tree(place.base, clean="ignored")
    assert (proof / "a.txt").read_text() == "a\n"


# --- parking and removing -----------------------------------------------------------------------------


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_uncommitted_work_is_parked_before_a_worktree_is_leased_again(place: Place, *, is_handed_over: bool) -> None:
    tree = place.lease()
    tree.write("a.txt", "uncommitted")
    tree.write("new.txt", "new")
    if is_handed_over:
        place.take()
    place.lease()
    assert place.repo.git("diff", "--name-only", place.base, PARKED).split() == ["a.txt", "new.txt"]


def test_work_that_git_refuses_moves_aside_and_gc_lists_it(place: Place) -> None:
    tree = place.lease()
    tree.write(".gitmodules", '[submodule "../x"]\n\tpath = s\n\turl = u\n')
    assert place.lease().status() == ""
    kept = tree.path.with_name("run_kept1")
    (listed,) = place.removal.remove_leftovers(dry_run=False, prefix="runplan/", active=("run", BASE, BRANCH))
    assert isinstance(listed, Kept)
    assert (listed.what, "disallowed submodule name" in listed.why) == (str(kept), True)
    assert (kept / ".gitmodules").exists()


def test_work_that_git_cannot_convert_is_parked_byte_for_byte(place: Place) -> None:
    tree = place.lease()
    tree.write(".gitattributes", "*.bad working-tree-encoding=SHIFT-JIS\n")
    (tree.path / "x.bad").write_bytes(b"\xff")
    with pytest.raises(HandOverRefused, match=r"failed to encode 'x.bad'"):
        place.take()
    parked = "refs/runplan/parked/worktree/run/1"
    assert place.removal.remove_worktree("run") == Removed(what=str(tree.path), parked=parked)
    assert place.workspace.git.blob(place.repo.head(parked), "x.bad") == b"\xff"


def test_files_left_by_gates_are_not_parked(place: Place) -> None:
    place.lease()
    place.take()
    (place.proof.checkout_exact_tree(place.base, clean="ignored") / "coverage.xml").write_text("x")
    place.lease()
    assert place.refs() == {"refs/heads/main": place.base}


def test_the_rest_of_a_removal_that_was_killed_is_swept(place: Place) -> None:
    for old, parent in ((True, place.zone.path.parent), (True, place.workspace.lanes), (False, place.workspace.path)):
        gone = parent / ".gone-run-1"
        (gone / "0/deep").mkdir(parents=True)
        (gone / "0/deep/file").touch()
        if old:
            os.utime(gone, (1, 1))
        place.workspace.prepare()
        assert gone.exists() != old


def test_a_removed_worktree_leaves_nothing_and_may_be_removed_twice(place: Place) -> None:
    tree = place.lease()
    for _ in range(2):
        assert place.removal.remove_worktree("run") == Removed(what=str(tree.path))
    assert not tree.path.exists()
    assert list(place.workspace.root.iterdir()) == list(place.workspace.lanes.iterdir()) == []


# --- branches in the user's repository ------------------------------------------------------------------


def test_a_branch_without_work_is_not_published(place: Place) -> None:
    place.lease()
    assert place.workspace.publish(BRANCH, base=place.base) == ""
    assert place.refs() == {"refs/heads/main": place.base}


def test_work_on_a_base_that_only_runplan_has_is_published_with_it(place: Place) -> None:
    """The base of a repair is a merge with conflict markers, which the user's repository has never seen."""
    git = place.workspace.git
    base = git.text("commit-tree", f"{place.base}^{{tree}}", "-p", place.base, "-m", "merged")
    work = git.text("commit-tree", f"{place.base}^{{tree}}", "-p", base, "-m", "work")
    git.update_refs(f"create {BRANCH} {work}")
    assert place.workspace.publish(BRANCH, base=base) == BRANCH
    assert place.repo.git("rev-list", f"{place.base}..{BRANCH}").split() == [work, base]


def test_a_name_that_is_taken_gets_a_number_and_is_kept_when_a_better_one_is_free(place: Place) -> None:
    place.repo.git("branch", "runplan/domain/plan/1")
    tip = place.lease().commit("work", **{"c.txt": "c"})
    place.take()
    assert place.workspace.publish(BRANCH, base=place.base) == f"{BRANCH}-2"
    assert place.repo.head(f"{BRANCH}-2") == tip
    place.repo.git("branch", "-D", "runplan/domain/plan/1")
    assert place.workspace.publish(BRANCH, base=place.base) == f"{BRANCH}-2"
    assert sorted(place.refs()) == ["refs/heads/main", f"{BRANCH}-2"]


def test_a_branch_that_is_handed_over_is_the_users_alone(place: Place) -> None:
    tip = place.lease().commit("work", **{"c.txt": "c"})
    place.take()
    for _ in range(2):
        place.workspace.give_to_user(BRANCH, base=place.base)
        assert place.repo.head(BRANCH) == tip
        assert place.workspace.git.tip(BRANCH) is None
    place.repo.git("branch", "-D", "runplan/domain/plan/1")
    place.removal.remove_worktree("run")
    gone = place.removal.remove_leftovers(dry_run=True, prefix="runplan/", active=(), known={BRANCH})
    assert [one.what for one in gone] == ["refs/runplan/base/r1"]


def test_a_published_branch_survives_gc_and_leaves_no_keep_file(place: Place) -> None:
    tree = place.lease()
    tip = tree.commit("work", **{"c.txt": "c"})
    place.take()
    place.workspace.publish(BRANCH, base=place.base)
    place.removal.remove_worktree("run")
    shutil.rmtree(place.workspace.path)
    place.repo.git("gc", "-q", "--prune=now")
    assert place.repo.git("show", f"{tip}:c.txt") == "c"
    assert list((place.repo.path / ".git/objects/pack").glob("*.keep")) == []


def test_branches_are_distinguished(place: Place) -> None:
    user = place.workspace.user
    assert not is_users_own(user, BRANCH, place.base)
    place.repo.git("branch", "runplan/domain/plan/1")
    assert not is_users_own(user, BRANCH, place.base)
    newer = place.repo.commit("on", z="z")
    assert is_users_own(user, BRANCH, newer), "it lacks a commit"
    place.repo.git("branch", "-f", "runplan/domain/plan/1", newer)
    assert is_users_own(user, BRANCH, place.base), "a person made its commit"


# --- run.copy -------------------------------------------------------------------------------------------


def test_named_files_are_taken_over_from_the_checkout_and_never_handed_over(place: Place) -> None:
    place.repo.write("conf/.env", "SECRET=1")
    extra = Extra(copies=["conf/.env"], root=place.repo.path)
    tree = place.lease()
    place.zone.lend(branch=BRANCH, extra=extra)
    proof = place.proof.checkout_exact_tree(place.base, clean="ignored", extra=extra)
    for path in (tree.path, proof):
        assert (path / "conf/.env").read_text() == "SECRET=1"
        (path / "conf/.env").write_text("changed by an agent or a test")
    assert place.zone.hand_over(branch=BRANCH, base=place.base, copies=extra.copies) == place.base
    assert place.left() == {}
    assert place.proof.changed(place.base, extra.copies) == []
    place.proof.checkout_exact_tree(place.base, clean="ignored", extra=extra)
    assert (proof / "conf/.env").read_text() == "SECRET=1"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", ".git/config", "none", "a.txt/x"])
def test_nothing_is_copied_from_or_to_elsewhere(place: Place, name: str) -> None:
    place.lease()
    with pytest.raises(SettingsError, match=r"run\.copy"):
        place.zone.lend(branch=BRANCH, extra=Extra(copies=[name], root=place.repo.path))
