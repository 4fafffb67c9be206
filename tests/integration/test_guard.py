"""The guard: users are never accused of their own work, agents are of theirs, and nothing is lost either way."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.guard import Guard
from runplan.adapters.worktrees import Worktrees
from runplan.core.dispatch import ToolUsed
from runplan.core.guard import Watched, signing, traced
from tests.support.repos import AGENT_ENV, Repo, make_repo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from runplan.core.gitfacts import Finding

BRANCH = "refs/heads/runplan/plan/1"


@dataclass(kw_only=True)
class Watch:
    """A phase under way: the user's checkout, the agent's worktree, and the stamp from before."""

    user: Repo
    agent: Repo
    guard: Guard
    before: dict[str, object]
    trees: Worktrees

    def found(self, tools: Sequence[ToolUsed] = ()) -> tuple[Finding, ...]:
        return self.guard.compare(self.before, own=(BRANCH,), tools=tools)

    def undone(self, tools: Sequence[ToolUsed] = ()) -> tuple[Finding, ...]:
        return self.guard.restore(self.found(tools))


def as_agent(repo: Repo) -> Repo:
    return Repo(path=repo.path, env=repo.env | AGENT_ENV)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once and copied: most of a test's time would go into making it."""
    user = make_repo(tmp_path_factory.mktemp("model") / "repo", **{"a.txt": "a\n", "b.txt": "b\n"})
    user.git("branch", "feature")
    user.git("branch", "doomed")
    user.git("tag", "v1")
    user.write("a.txt", "stashed\n")
    user.git("stash", "-q")
    return user.path


@pytest.fixture
def watch(tmp_path: Path, model: Path) -> Iterator[Watch]:
    user = Repo(path=shutil.copytree(model, tmp_path / "repo"))
    common = user.path / ".git"
    git = user.adapter()
    trees = Worktrees(git, root=tmp_path / "trees", common_dir=common, lock_dir=common / "runplan")
    path = trees.lease("run", branch=BRANCH, base=user.head())
    guard = Guard(git, root=user.path, common_dir=common)
    before = json.loads(json.dumps(guard.stamp()))
    yield Watch(user=user, agent=as_agent(user.at(path)), guard=guard, before=before, trees=trees)
    git.close()


# --- the user -----------------------------------------------------------------------------------------


def _commits(user: Repo) -> None:
    user.commit("mine", **{"mine.txt": "1"})
    user.git("commit", "-q", "--amend", "-m", "mine, better")


def _switches(user: Repo) -> None:
    user.git("checkout", "-q", "feature")
    user.git("checkout", "-q", "--detach")
    user.git("switch", "-q", "-c", "topic")


def _edits(user: Repo) -> None:
    user.write("a.txt", "edited")
    user.write("new.txt", "new")
    user.git("add", "new.txt")


def _stashes(user: Repo) -> None:
    user.write("a.txt", "second stash\n")
    user.git("stash", "-q")


def _rebases(user: Repo) -> None:
    user.git("checkout", "-q", "feature")
    user.commit("on feature", **{"f.txt": "f"})
    user.git("rebase", "-q", "main")
    user.git("reset", "-q", "--hard", "HEAD~1")


def _tags(user: Repo) -> None:
    user.git("tag", "light")
    user.git("tag", "-a", "-m", "annotated", "heavy")


def _renames(user: Repo) -> None:
    """The log of a renamed branch goes along, with the entries an agent made on it."""
    user.git("branch", "mine", "runplan/plan/1")
    user.git("branch", "-m", "mine", "mine2")
    user.git("branch", "-c", "runplan/plan/1", "copied")


def _packs(user: Repo) -> None:
    user.git("pack-refs", "--all")
    user.git("gc", "-q")


@pytest.mark.parametrize("work", [_commits, _switches, _edits, _stashes, _rebases, _tags, _renames, _packs])
def test_a_user_at_work_is_not_even_mentioned(watch: Watch, work: Callable[[Repo], None]) -> None:
    watch.agent.commit("the phase's own work", **{"w.txt": "w"})
    work(watch.user)
    refs = watch.user.refs()
    assert watch.found() == ()
    assert watch.user.refs() == refs


def test_two_people_on_one_machine_are_both_users(watch: Watch) -> None:
    watch.user.git(
        "commit", "-q", "--allow-empty", "-m", "x", env={"GIT_COMMITTER_NAME": "Bo", "GIT_COMMITTER_EMAIL": "b@x"}
    )
    assert watch.found() == ()


def test_a_user_who_deletes_is_not_accused_and_nothing_is_lost(watch: Watch) -> None:
    """A deletion leaves no log: it is named, the old value is kept, nothing is put back."""
    watch.user.git("checkout", "-q", "doomed")
    tip = watch.user.commit("only here")
    watch.user.git("checkout", "-q", "main")
    watch.before = watch.guard.stamp()
    stash = watch.user.head("stash")
    watch.user.git("branch", "-q", "-D", "doomed")
    watch.user.git("stash", "drop", "-q")
    found = watch.undone()
    assert [(one.kind, one.name, one.by_agent, one.restored) for one in found] == [
        ("ref", "refs/heads/doomed", False, False),
        ("stash", "refs/stash", False, False),
    ]
    assert [watch.user.head(one.parked) for one in found] == [tip, stash]
    assert "refs/heads/doomed" not in watch.user.refs()


@pytest.mark.parametrize(
    "words",
    [
        ("config", "user.nickname", "u"),
        ("branch", "-q", "--set-upstream-to=feature", "main"),
        ("remote", "add", "o", "u"),
    ],
)
def test_a_user_who_configures_is_warned_about_and_left_alone(watch: Watch, words: tuple[str, ...]) -> None:
    watch.user.git(*words)
    config = (watch.user.path / ".git/config").read_bytes()
    found = watch.undone([ToolUsed(tool="Write", path=str(watch.agent.path / "w.txt"))])
    assert [(one.kind, one.name, one.by_agent, one.restored) for one in found] == [("config", "config", False, False)]
    assert (watch.user.path / ".git/config").read_bytes() == config


def test_a_user_who_installs_hooks_is_warned_about_and_left_alone(watch: Watch) -> None:
    hook = watch.user.write(".git/hooks/pre-push", "#!/bin/sh\n")
    found = watch.undone()
    assert [(one.kind, one.name, one.by_agent) for one in found] == [("hook", "hooks/pre-push", False)]
    assert hook.exists()


def test_runplans_own_refs_and_the_branch_of_the_attempt_may_move(watch: Watch) -> None:
    watch.agent.commit("work", **{"w.txt": "w"})
    watch.user.git("update-ref", "refs/runplan/candidate/r", "HEAD")
    assert watch.found() == ()
    moved = watch.guard.compare(watch.before, own=(), tools=())
    assert [(one.name, one.by_agent) for one in moved] == [(BRANCH, True)]


def test_another_run_beside_is_not_this_agents_doing(watch: Watch) -> None:
    """Its branches appear, move, stay when it failed, and vanish when runplan cleans up; whose own guard judges it."""
    other = "refs/heads/runplan/other/1"
    path = watch.trees.lease("other", branch=other, base=watch.user.head())
    theirs = as_agent(watch.user.at(path))
    theirs.env["GIT_COMMITTER_EMAIL"] = signing("r-other.1").email
    theirs.commit("their work", **{"o.txt": "o"})
    theirs.git("branch", "-f", "feature", "HEAD")
    theirs.git("tag", "-a", "-m", "theirs", "v9")
    watch.user.git("worktree", "remove", "--force", str(path))
    assert watch.found() == ()
    watch.before = watch.guard.stamp()
    watch.user.git("update-ref", "-d", other)
    assert watch.found() == ()


# --- the agent ----------------------------------------------------------------------------------------


def test_an_agent_that_moves_a_branch_is_accused_and_it_is_put_back(watch: Watch) -> None:
    old = watch.user.head("feature")
    new = watch.agent.commit("work", **{"w.txt": "w"})
    watch.agent.git("branch", "-f", "feature")
    (found,) = watch.undone()
    assert (found.kind, found.name, found.old, found.new) == ("ref", "refs/heads/feature", old, new)
    assert (found.by_agent, found.restored, found.parked) == (True, True, "refs/runplan/parked/guard/heads-feature/1")
    assert watch.user.head("feature") == old
    assert watch.user.head(found.parked) == new
    assert watch.found() == ()


def test_an_agent_that_commits_in_the_users_checkout_is_accused(watch: Watch) -> None:
    """The branch goes back, the commit is kept; the files are the user's and stay as they are."""
    old = watch.user.head()
    new = as_agent(watch.user).commit("in the wrong place", **{"wrong.txt": "w"})
    (found,) = watch.undone()
    assert (found.name, found.by_agent, found.restored) == ("refs/heads/main", True, True)
    assert watch.user.head() == old
    assert watch.user.head(found.parked) == new
    assert (watch.user.path / "wrong.txt").exists()


def test_what_the_user_built_upon_is_not_taken_from_them(watch: Watch) -> None:
    as_agent(watch.user).commit("by the agent", **{"x.txt": "x"})
    mine = watch.user.commit("on top of it", **{"mine.txt": "m"})
    (found,) = watch.undone()
    assert (found.by_agent, found.restored) == (True, False)
    assert watch.user.head() == mine


@pytest.mark.parametrize("packed", [False, True])
def test_a_branch_whose_file_was_written_is_laid_at_the_door_of_whose_commit_it_names(
    watch: Watch, packed: bool
) -> None:
    old, new = watch.user.head(), watch.agent.commit("work", **{"w.txt": "w"})
    if packed:
        watch.user.git("pack-refs", "--all")
        file = watch.user.path / ".git/packed-refs"
        file.write_text(file.read_text().replace(f"{old} refs/heads/main\n", f"{new} refs/heads/main\n"))
    else:
        watch.user.write(".git/refs/heads/main", f"{new}\n")
    (found,) = watch.undone()
    assert (found.name, found.by_agent, found.restored) == ("refs/heads/main", True, True)
    assert watch.user.head() == old
    assert watch.user.head(found.parked) == new


def test_a_branch_whose_file_was_written_by_nobody_known_is_named_and_what_it_held_kept(watch: Watch) -> None:
    watch.user.commit("more", **{"m.txt": "m"})
    watch.before = json.loads(json.dumps(watch.guard.stamp()))
    tip = watch.user.head()
    watch.user.write(".git/refs/heads/main", f"{watch.user.head('HEAD~1')}\n")
    (found,) = watch.undone()
    assert (found.by_agent, found.restored) == (False, False)
    assert watch.user.head(found.parked) == tip


def test_a_commit_made_in_the_agents_worktree_is_its_own_whatever_name_it_carries(watch: Watch) -> None:
    old = watch.user.head()
    forged = watch.user.at(watch.agent.path)
    forged.git("checkout", "-q", "--detach")
    new = forged.commit("by whom?", **{"evil.txt": "e"})
    forged.git("update-ref", "refs/heads/main", "HEAD")
    found = watch.guard.compare(
        watch.before, own=(BRANCH,), tools=(), whose=Watched(worktree=watch.agent.path, branch=BRANCH)
    )
    assert [(one.name, one.by_agent, one.new) for one in found] == [("refs/heads/main", True, new)]
    assert watch.guard.restore(found)[0].restored
    assert watch.user.head() == old


def test_an_agent_that_makes_branches_and_tags_is_accused_and_they_go(watch: Watch) -> None:
    before = watch.user.refs()
    tip = watch.agent.commit("work", **{"w.txt": "w"})
    watch.agent.git("branch", "stray")
    watch.agent.git("tag", "-a", "-m", "by the agent", "v2")
    watch.agent.git("tag", "v3")
    found = watch.undone([ToolUsed(tool="Bash", path="cd x && git tag v3")])
    assert {one.name: one.restored for one in found} == {
        "refs/heads/stray": True,
        "refs/tags/v2": True,
        "refs/tags/v3": True,
    }
    after = watch.user.refs()
    assert {name for name in after if not name.startswith("refs/runplan/")} == set(before)
    assert after["refs/runplan/parked/guard/heads-stray/1"] == tip


@pytest.mark.parametrize("tool", [("move_ref", "refs/heads/doomed"), ("Bash", "git branch -D doomed")])
def test_an_agent_that_says_it_deleted_a_branch_is_accused(watch: Watch, tool: tuple[str, str]) -> None:
    old = watch.user.head("doomed")
    watch.agent.git("update-ref", "-d", "refs/heads/doomed")
    (found,) = watch.undone([ToolUsed(tool=tool[0], path=tool[1])])
    assert (found.by_agent, found.restored) == (True, True)
    assert watch.user.head("doomed") == old


def test_an_agent_that_stashes_is_accused_and_only_its_entry_goes(watch: Watch) -> None:
    """Stashes are shared by all worktrees; the user's lie below and above."""
    watch.agent.write("a.txt", "agent's\n")
    watch.agent.git("stash", "-q")
    new = watch.user.head("stash")
    watch.user.write("b.txt", "user's second\n")
    watch.user.git("stash", "-q")
    mine = watch.user.git("stash", "list", "--format=%H").split()
    (found,) = watch.undone()
    assert (found.kind, found.by_agent, found.restored, found.new) == ("stash", True, True, new)
    assert watch.user.git("stash", "list", "--format=%H").split() == [mine[0], mine[2]]
    assert watch.user.head(found.parked) == new
    assert watch.user.show(f"{found.parked}:a.txt") == "agent's"


def test_a_stash_where_there_was_none_goes_whole(watch: Watch) -> None:
    watch.user.git("stash", "clear")
    watch.before = watch.guard.stamp()
    watch.agent.write("a.txt", "agent's\n")
    watch.agent.git("stash", "-q")
    (found,) = watch.undone()
    assert found.restored
    assert watch.user.git("stash", "list") == ""
    assert watch.found() == ()


def test_an_agent_that_switches_the_users_checkout_is_accused(watch: Watch) -> None:
    agent = as_agent(watch.user)
    agent.git("checkout", "-q", "-b", "hijacked")
    found = {one.kind: one for one in watch.undone()}
    assert (found["head"].by_agent, found["head"].restored) == (True, True)
    assert found["ref"].restored
    assert watch.user.git("symbolic-ref", "HEAD") == "refs/heads/main"
    assert "refs/heads/hijacked" not in watch.user.refs()
    assert watch.user.status() == ""


def test_a_switch_to_other_commits_is_told_but_not_turned_back(watch: Watch) -> None:
    """That would be a checkout in the user's checkout."""
    watch.user.commit("main goes on", **{"m.txt": "m"})
    watch.before = watch.guard.stamp()
    as_agent(watch.user).git("checkout", "-q", "feature")
    (found,) = watch.undone()
    assert (found.kind, found.by_agent, found.restored) == ("head", True, False)
    assert watch.user.git("symbolic-ref", "HEAD") == "refs/heads/feature"


@pytest.mark.parametrize("stood", ["branch", "detached"])
@pytest.mark.parametrize("way", ["text", "link"])
@pytest.mark.parametrize("whose", ["the checkout", "another worktree"])
def test_a_head_led_to_the_runs_branch_by_hand_is_put_back(
    watch: Watch, tmp_path: Path, whose: str, way: str, stood: str
) -> None:
    where = watch.user
    if whose == "another worktree":
        watch.user.git("worktree", "add", "-q", str(tmp_path / "mine"), "feature")
        where = watch.user.at(tmp_path / "mine")
    if stood == "detached":
        where.git("checkout", "-q", "--detach")
    head = watch.user.path / where.git("rev-parse", "--git-path", "HEAD")
    said = head.read_text()
    watch.before = json.loads(json.dumps(watch.guard.stamp()))
    head.unlink()
    head.symlink_to(BRANCH) if way == "link" else head.write_text(f"ref: {BRANCH}\n")
    assert where.git("symbolic-ref", "HEAD") == BRANCH
    (found,) = watch.undone()
    assert (found.kind, found.by_agent, found.restored) == ("head", True, True)
    assert head.read_text() == said
    assert where.status() == ""
    assert watch.found() == ()


def test_a_user_who_has_git_switch_to_the_runs_branch_stays_there(watch: Watch) -> None:
    watch.agent.git("checkout", "-q", "--detach")
    watch.user.git("switch", "-q", "runplan/plan/1")
    assert watch.undone() == ()
    assert watch.user.git("symbolic-ref", "HEAD") == BRANCH


# --- what git obeys, whoever wrote it -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "obeyed"),
    [
        ("config", '[filter "x"]\n\tsmudge = sed s/EVIL/good/\n', ("filter.x.smudge",)),
        ("config.worktree", "[core]\n\tattributesFile = /x\n", ("core.attributesfile",)),
        ("info/attributes", "*.txt eol=crlf\n", ("a line of it",)),
        ("info/grafts", "x\n", ("a line of it",)),
        ("objects/info/alternates", "/nowhere\n", ("a line of it",)),
        ("config", "#" * 2_000_000, ("include.path",)),
    ],
)
def test_what_git_obeys_is_left_and_named_when_nobody_knows_who_wrote_it(
    watch: Watch, name: str, text: str, obeyed: tuple[str, ...]
) -> None:
    file = watch.user.path / ".git" / name
    file.write_text((file.read_text() if file.exists() else "") + text)
    written = file.read_text()
    (found,) = watch.undone()
    assert (found.name, found.by_agent, found.restored, found.obeyed) == (name, False, False, obeyed)
    assert file.read_text() == written


@pytest.mark.parametrize("told", [False, True])
def test_the_users_own_configuration_is_watched_and_never_written(watch: Watch, tmp_path: Path, told: bool) -> None:
    mine = tmp_path / "gitconfig"
    mine.write_text("[http]\n\textraheader = secret\n")
    with Repo(path=watch.user.path, env=watch.user.env | {"GIT_CONFIG_GLOBAL": str(mine)}).adapter() as git:
        guard = Guard(git, root=watch.user.path, common_dir=watch.user.path / ".git")
        before = json.loads(json.dumps(guard.stamp()))
        assert "secret" not in json.dumps(before)
        mine.write_text('[filter "x"]\n\tclean = evil\n')
        tools = [ToolUsed(tool="Write", path=str(mine))] if told else []
        (found,) = guard.restore(guard.compare(before, own=(BRANCH,), tools=tools))
        assert (found.name, found.by_agent, found.restored) == (str(mine), told, False)
        assert found.obeyed == ("filter.x.clean",)
        assert mine.read_text() == '[filter "x"]\n\tclean = evil\n'


def test_a_replacement_written_by_hand_is_found_and_one_by_command_taken_away(watch: Watch) -> None:
    tree, other = watch.user.git("rev-parse", "HEAD^{tree}"), watch.user.git("mktree")
    watch.user.write(f".git/refs/replace/{tree}", f"{other}\n")
    (found,) = watch.undone()
    assert (found.by_agent, found.restored, bool(found.obeyed)) == (False, False, True)
    (found,) = watch.undone([ToolUsed(tool="Bash", path=f"git replace {tree} {other}")])
    assert (found.by_agent, found.restored) == (True, True)
    assert watch.found() == ()


def test_an_agent_that_fetches_is_not_accused_but_one_that_pushes_is(watch: Watch, tmp_path: Path) -> None:
    watch.user.git("clone", "-q", "--bare", ".", str(tmp_path / "remote"))
    watch.user.git("remote", "add", "origin", str(tmp_path / "remote"))
    watch.before = watch.guard.stamp()
    watch.agent.git("fetch", "-q", "origin")
    assert [one for one in watch.found() if one.by_agent] == []
    watch.before = watch.guard.stamp()
    watch.agent.commit("work", **{"w.txt": "w"})
    watch.agent.git("push", "-q", "origin", "HEAD:refs/heads/main")
    assert [(one.name, one.by_agent) for one in watch.found()] == [("refs/remotes/origin/main", True)]


@pytest.mark.parametrize(
    "tool",
    [("config", "core.hooksPath"), ("Bash", "git config core.hooksPath /tmp/x"), ("Write", "{common}/config")],
)
def test_an_agent_that_says_it_changed_the_configuration_is_accused(watch: Watch, tool: tuple[str, str]) -> None:
    path = watch.user.path / ".git/config"
    old = path.read_bytes()
    watch.agent.git("config", "core.hooksPath", "/tmp/ü")
    new = path.read_bytes()
    event = ToolUsed(tool=tool[0], path=tool[1].format(common=watch.user.path / ".git"))
    (found,) = watch.undone([event])
    assert (found.kind, found.name, found.by_agent, found.restored) == ("config", "config", True, True)
    assert path.read_bytes() == old
    assert (watch.user.path / found.parked).read_bytes() == new


@pytest.mark.parametrize("hides", [False, True], ids=["on its branch", "elsewhere since"])
def test_what_an_agent_has_git_obey_in_its_worktree_is_its_doing_and_taken_away(watch: Watch, hides: bool) -> None:
    watch.user.git("worktree", "add", "-q", "--detach", str(watch.user.path.parent / "users"))
    own, users = (watch.user.path / ".git/worktrees" / name / "config.worktree" for name in ("run", "users"))
    own.write_text("[core]\n\tfsmonitor = /tmp/evil\n")
    users.write_text("[core]\n\tbare = false\n")
    if hides:
        watch.agent.git("checkout", "-q", "--detach")
    (found,) = watch.undone()
    assert (found.kind, found.name, found.by_agent) == ("config", "worktrees/run/config.worktree", True)
    assert found.restored
    assert not own.exists()
    assert users.exists()


@pytest.mark.parametrize("made", ["large", "link", "folder"])
def test_nothing_that_stands_for_such_a_file_is_overlooked(watch: Watch, made: str) -> None:
    own = watch.user.path / ".git/worktrees/run/config.worktree"
    elsewhere = watch.user.path.parent / "elsewhere"
    elsewhere.write_text("[core]\n\tfsmonitor = /tmp/evil\n")
    match made:
        case "large":
            own.write_text("#\n" * 1024 * 1024)
        case "link":
            own.symlink_to(elsewhere)
        case _:
            own.mkdir()
    (found,) = watch.undone()
    assert (found.name, found.by_agent, found.restored) == ("worktrees/run/config.worktree", True, True)
    assert not os.path.lexists(own)
    assert elsewhere.exists()


def test_git_itself_tells_on_an_agent_that_says_nothing(watch: Watch, tmp_path: Path) -> None:
    trace = tmp_path / "git.trace"
    silent = Repo(path=watch.agent.path, env=watch.agent.env | traced(trace))
    config, stashes = (watch.user.path / ".git/config").read_bytes(), watch.user.git("stash", "list", "--format=%H")
    silent.git("config", "core.fsmonitor", "/tmp/evil")
    silent.git("branch", "-q", "-D", "doomed")
    silent.git("tag", "-d", "v1")
    silent.git("stash", "drop", "-q")
    before = watch.user.refs()
    found = watch.guard.restore(watch.guard.compare(watch.before, own=(BRANCH,), tools=(), whose=Watched(trace=trace)))
    assert {(one.name, one.by_agent, one.restored) for one in found} == {
        ("config", True, True),
        ("refs/heads/doomed", True, True),
        ("refs/tags/v1", True, True),
        ("refs/stash", True, True),
    }
    assert (watch.user.path / ".git/config").read_bytes() == config
    assert watch.user.git("stash", "list", "--format=%H") == stashes
    assert set(watch.user.refs()) == {*before, "refs/heads/doomed", "refs/tags/v1", "refs/stash"}


@pytest.mark.parametrize(
    ("place", "words", "env"),
    [
        pytest.param("trees/run", (), {}, id="in its worktree"),
        pytest.param("repo/.git", (), {}, id="in the git directory"),
        pytest.param("repo/.git/hooks", (), {}, id="below it"),
        pytest.param(".", ("-C", "repo/.git"), {}, id="sent there"),
        pytest.param(".", ("-c", "x.y=z", "--git-dir=repo/.git"), {}, id="by an option"),
        pytest.param(".", ("--git-dir", "repo/.git"), {}, id="by an option and a word"),
        pytest.param(".", (), {"GIT_DIR": "repo/.git"}, id="by a variable"),
    ],
)
def test_wherever_a_command_was_started_it_is_known_whose_refs_it_moved(
    watch: Watch, tmp_path: Path, place: str, words: tuple[str, ...], env: dict[str, str]
) -> None:
    """It signs as the user does, so only what git wrote down tells."""
    trace, old = tmp_path / "git.trace", watch.user.head("feature")
    new = watch.user.commit("mine", **{"m.txt": "m"})
    watch.before = json.loads(json.dumps(watch.guard.stamp()))
    where = tmp_path / place
    forged = Repo(path=where, env=watch.user.env | traced(trace) | {"PWD": str(where)} | env)
    forged.git(*words, "update-ref", "refs/heads/feature", new)
    (found,) = watch.guard.restore(
        watch.guard.compare(watch.before, own=(BRANCH,), tools=(), whose=Watched(trace=trace))
    )
    assert (found.name, found.by_agent, found.restored) == ("refs/heads/feature", True, True)
    assert watch.user.head("feature") == old


def test_a_user_who_commits_while_an_agent_looks_at_their_branch_is_not_mentioned(watch: Watch, tmp_path: Path) -> None:
    trace = tmp_path / "git.trace"
    silent = Repo(path=watch.agent.path, env=watch.agent.env | traced(trace))
    silent.commit("work", **{"w.txt": "w"})
    mine = watch.user.commit("mine", **{"mine.txt": "m"})
    silent.git("fetch", "-q", ".", "main")
    silent.git("checkout", "-q", "main", "--", "mine.txt")
    silent.git("rebase", "-q", "--autostash", "main")
    silent.git("branch", "--list", "main")
    bare = tmp_path / "bare.git"
    silent.git("clone", "-q", "--bare", str(watch.user.path), str(bare))
    Repo(path=bare, env=silent.env | {"PWD": str(bare)}).git("update-ref", "refs/heads/main", f"{mine}~1")
    found = watch.guard.compare(
        watch.before, own=(BRANCH,), tools=(), whose=Watched(trace=trace, worktree=watch.agent.path, branch=BRANCH)
    )
    assert found == ()
    assert watch.user.head() == mine


def test_what_an_agent_does_to_other_repositories_is_no_evidence(watch: Watch, tmp_path: Path) -> None:
    """Test suites make repositories and configure them; meanwhile the user configures theirs."""
    trace = tmp_path / "git.trace"
    other = Repo(path=watch.agent.path / "fixture", env=watch.agent.env | traced(trace))
    other.path.mkdir()
    other.git("-c", "init.defaultBranch=main", "init", "-q")
    other.git("config", "user.name", "fixture")
    silent = Repo(path=watch.agent.path, env=other.env)
    silent.git("config", "user.name")
    silent.git("config", "--get", "user.name")
    watch.user.git("config", "user.nickname", "mine")
    with trace.open("a") as file:
        file.write('{"event":"start", torn\n')
    found = watch.guard.compare(watch.before, own=(BRANCH,), tools=(), whose=Watched(trace=trace))
    assert [(one.name, one.by_agent) for one in found] == [("config", False)]
    assert watch.guard.compare(watch.before, own=(), tools=(), whose=Watched(trace=tmp_path / "none")) == found


def test_hooks_an_agent_made_changed_or_removed_are_put_back(watch: Watch) -> None:
    hooks = watch.user.path / ".git/hooks"
    for name in ("pre-commit", "pre-push", "commit-msg"):
        (hooks / name).write_bytes(b"#!/bin/sh\n# \xff mine\n")
        (hooks / name).chmod(0o755)
    watch.before = json.loads(json.dumps(watch.guard.stamp()))
    (hooks / "pre-commit").write_text("#!/bin/sh\ncurl evil\n")
    (hooks / "pre-push").unlink()
    (hooks / "commit-msg").chmod(0o644)
    (hooks / "post-merge").write_text("#!/bin/sh\nnew\n")
    names = ("pre-commit", "pre-push", "commit-msg", "post-merge")
    found = watch.undone([ToolUsed(tool="hook", path=str(hooks / name)) for name in names])
    assert {one.name: (one.by_agent, one.restored) for one in found} == {f"hooks/{n}": (True, True) for n in names}
    for name in names[:3]:
        assert (hooks / name).read_bytes() == b"#!/bin/sh\n# \xff mine\n"
        assert (hooks / name).stat().st_mode & 0o777 == 0o755
    assert not (hooks / "post-merge").exists()
    kept = {one.name: one.parked for one in found}
    assert "curl evil" in (watch.user.path / kept["hooks/pre-commit"]).read_text()
    assert watch.found() == ()


def test_what_changed_again_meanwhile_is_left_alone(watch: Watch) -> None:
    watch.agent.git("config", "core.hooksPath", "/tmp/x")
    watch.agent.commit("work", **{"w.txt": "w"})
    watch.agent.git("branch", "-f", "feature")
    found = watch.found([ToolUsed(tool="config", path="core.hooksPath")])
    watch.user.git("config", "user.nickname", "later")
    watch.user.git("branch", "-f", "feature", "v1")
    mine = watch.user.refs()["refs/heads/feature"]
    assert [one.restored for one in watch.guard.restore(found)] == [False, False]
    assert watch.user.git("config", "user.nickname") == "later"
    assert watch.user.head("feature") == mine


def test_a_locked_configuration_is_not_written(watch: Watch) -> None:
    watch.agent.git("config", "core.hooksPath", "/tmp/x")
    watch.user.write(".git/config.lock", "")
    (found,) = watch.undone([ToolUsed(tool="config", path="core.hooksPath")])
    assert not found.restored


# --- files of the checkout ----------------------------------------------------------------------------


def test_files_are_laid_at_an_agents_door_only_by_its_own_tools(watch: Watch) -> None:
    names = ("a.txt", "by user.txt", "read.txt", "dir/new ü.txt")
    for name in names:
        watch.user.write(name, "changed")
    (watch.user.path / "b.txt").unlink()
    tools = [
        ToolUsed(tool="Edit", path=str(watch.user.path / "a.txt")),
        ToolUsed(tool="write", path=str(watch.user.path / "dir/new ü.txt")),
        ToolUsed(tool="delete", path=str(watch.user.path / "b.txt")),
        ToolUsed(tool="Read", path=str(watch.user.path / "read.txt")),
        ToolUsed(tool="Write", path=str(watch.agent.path / "a.txt")),
        ToolUsed(tool="Write", path="a.txt"),
    ]
    found = watch.undone(tools)
    assert {one.name for one in found} == {"a.txt", "dir/new ü.txt", "b.txt"}
    assert all(one.kind == "file" and one.by_agent and not one.restored for one in found)
    assert (watch.user.path / "a.txt").read_text() == "changed"


def test_a_tool_that_named_a_file_it_did_not_change_is_no_evidence(watch: Watch) -> None:
    watch.before["at"] = time.time_ns() + 10**9  # the files were made an instant ago
    assert watch.found([ToolUsed(tool="Edit", path=str(watch.user.path / "a.txt"))]) == ()


def test_the_checkout_names_what_differs_and_is_younger(watch: Watch, tmp_path: Path) -> None:
    watch.user.write("older.txt", "o")
    watch.user.write("a.txt", "before")
    time.sleep(0.02)  # the kernel's clock for files ticks every few milliseconds
    since = tmp_path / "since"
    since.write_text("")
    os.utime(watch.user.write("backdated.txt", "x"), (1, 1))
    watch.user.write("new\nline.txt", "n")
    (watch.user.path / "b.txt").unlink()
    named = watch.guard.checkout(since=since)
    assert set(named) == {"b.txt", "backdated.txt", "new\nline.txt"}
