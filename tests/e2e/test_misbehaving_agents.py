"""Agents that misbehave: every run ends with a named outcome, and the user's repository stays as it was."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Project, copied, end_processes_of, processes_of, until, with_remote
from tests.support.hostile import a_hostile_project, differences, landed_since, play, standing

WORK = "echo 1 >1.txt; git add 1.txt; git commit -qm 'Write 1'\n"
TOKEN = "ghp_" + 36 * "a"
TERMINAL_CODES = ("\033", "\007", "\0")


@dataclass(frozen=True)
class Agent:
    """The actions of an agent, and how its run ends."""

    script: str
    reason: str = ""  #: "" when the phase lands
    says: str = ""  #: part of the messages or the report
    changes: tuple[str, ...] = ()  #: files of the user's repository that differ afterwards; nothing is repaired
    parks_nothing: bool = False  #: whether the worktree stays because git cannot keep its content


#: A tree with one file in a directory, as a commit on the branch.
ODD_TREE = """
blob=$(echo x | git hash-object -w --stdin); inner=$(printf "100644 blob $blob\\tpost\\n" | git mktree)
whole=$( (git ls-tree HEAD; printf "040000 tree $inner\\t.git\\n") | git mktree)
git update-ref HEAD $(git commit-tree -p HEAD -m Odd $whole)
"""
GIT_DIRS = "dir=$(git rev-parse --git-dir); common=$(git rev-parse --git-common-dir); branch=$(git symbolic-ref HEAD)\n"

AGENTS = {
    # --- its own repository ---
    "changes refs, tags, configuration and hooks, and pushes": Agent(
        WORK + "git tag -a v2 -m v2; git tag -d v1; git branch -D main\n"
        "git config user.name Somebody; git config core.bare true; git config alias.st status\n"
        'h=$(git rev-parse --git-path hooks); mkdir -p "$h"; printf "#!/bin/sh\\nexit 1\\n" >"$h/pre-commit"\n'
        'chmod +x "$h/pre-commit"; git push -q origin HEAD:main; git push -q --force origin main\n'
        "runplan start X auto --foreground; runplan approve X; exit 0\n"
    ),
    "collects garbage and deletes all refs": Agent(
        WORK + "git reflog expire --expire=now --all; git gc -q --prune=now; git repack -adq; git worktree prune\n"
        "git for-each-ref --format='delete %(refname)' | git update-ref --stdin\n"
    ),
    "commits on main": Agent("git checkout -q main\n" + WORK),
    "removes its worktree": Agent(WORK + 'git worktree remove -f -f "$PWD"\n'),
    "removes its repository": Agent(WORK + 'rm -rf "$(git rev-parse --git-common-dir)"\n'),
    "damages its HEAD and leaves a lock": Agent(
        GIT_DIRS + WORK + 'echo junk >"$dir/HEAD"; touch "$dir/index.lock"; echo more >2.txt\n'
    ),
    "starts a new history": Agent(WORK + "git checkout -q --orphan new; git commit -qm All\n"),
    "leaves its work uncommitted": Agent(
        "echo 1 >1.txt; printf x >\"$(printf 'caf\\351.txt')\"; git add .; git stash; git stash pop\n"
    ),
    "stashes its work": Agent("echo 1 >1.txt; git add 1.txt; git stash\n", "no-commits"),
    "merges what others pushed": Agent(WORK + "git merge -q --no-edit origin/main\n", "off-base", "Theirs"),
    # --- the user's repository, by its path ---
    "changes tags, configuration and hooks of the user's repository": Agent(
        'git -C "$user" tag v3; git -C "$user" config core.editor vi\n'
        'printf "#!/bin/sh\\nexit 1\\n" >"$user/.git/hooks/pre-commit"\n' + WORK,
        says="refs/tags/v3 changed while",
        changes=("refs/tags/v3", "config", "hooks/pre-commit"),
    ),
    # --- processes and output ---
    "leaves processes behind": Agent(
        "sleep 300 &\nsetsid sh -c 'sleep 300 & sleep 300' &\nenv -i setsid sleep 300 &\n(sleep 300; echo late) &\n"
        "for i in $(seq 20); do sleep 300 & done\n" + WORK
    ),
    "floods its output": Agent(
        "head -c 300000 /dev/urandom; head -c 9000000 /dev/zero | tr '\\0' x\n"
        "head -c 9000000 /dev/zero | tr '\\0' y >&2; exec >&- 2>&-\n"
        'rm -f "$RUNPLAN_RETURN"; mkdir "$RUNPLAN_RETURN"\n' + WORK
    ),
    "prints terminal codes": Agent(
        r"""printf '{"status":"failed","summary":"\\u001b]0;own\\u0007\\u001b[31mred \\u0000nul"}' >$RUNPLAN_RETURN"""
        + f"\n{WORK}",
        "agent-failed",
        "reported a failure: red nul",
    ),
    "deletes its own records": Agent(WORK + 'rm -rf "$(dirname "$RUNPLAN_PROMPT")"\n', "crashed"),
    # --- the work ---
    "commits a token and removes it again": Agent(
        f"echo {TOKEN} >conf.txt; git add .; git commit -qm conf; git rm -q conf.txt; git commit -qm out\n" + WORK,
        says="one commit lands instead of single ones, in which conf.txt: seems to contain a GitHub token",
    ),
    "names a file like a token": Agent(
        f"{WORK}echo x >>{TOKEN}.txt; git add .; git commit -qm name\n", "tampered", "[redacted].txt: its name contains"
    ),
    "leaves a repository inside": Agent(
        "git init -q sub; touch sub/x\n" + WORK, "agent-failed", "sub", parks_nothing=True
    ),
    "commits a directory named .git": Agent(ODD_TREE, "agent-failed", "invalid path '.git/post'"),
    "loses the commit of its branch": Agent(
        f'{GIT_DIRS}{WORK}echo {"1" * 40} >"$common/$branch"\n', "agent-failed", "cannot be read"
    ),
    "puts a file where the report goes": Agent(
        WORK + "echo x >>reports; git add reports; git commit -qm Reports\n",
        "tampered",
        "reports: is in the way of reports/plan-x.md",
    ),
    "writes content that a filter refuses": Agent(
        "echo '*.txt filter=f' >.gitattributes; echo bad >1.txt\n", "agent-failed", "clean filter 'f' failed"
    ),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One phase; the user has a tag, a branch, a stash, a filter and a remote with a foreign commit."""
    place = tmp_path_factory.mktemp("model")
    made = a_hostile_project(place, '[tests]\ncommand = "true"\n', **{".gitignore": "*.log\n"})
    repo = made.repo
    repo.git("tag", "v1")
    repo.git("branch", "topic")
    repo.write("README.md", "edited\n")
    repo.git("stash")
    for key, value in (("required", "true"), ("clean", "sh -c '! grep bad'"), ("smudge", "cat")):
        repo.git("config", f"filter.f.{key}", value)
    with_remote(made, place / "origin.git")
    theirs = repo.git("commit-tree", "-p", "main", "-m", "Theirs", "main^{tree}")
    repo.git("push", "-q", "origin", f"{theirs}:refs/heads/main")
    return made


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    yield made
    end_processes_of(made.home)


@pytest.mark.matrix
@pytest.mark.parametrize("name", AGENTS)
def test_a_misbehaving_agent_has_a_named_outcome_and_the_repository_stays_as_it_was(
    project: Project, name: str
) -> None:
    agent = AGENTS[name]
    play(project, agent.script)
    before, tip = standing(project), project.repo.head("main")
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, f"runplan: failed: {agent.reason}") if agent.reason else ran.code == 0, ran.err
    assert ("1.txt" in project.repo.git("ls-tree", "--name-only", "main").split()) is (not agent.reason)
    shown = ran.err + project.runplan("report", "X").out
    assert agent.says in shown
    assert TOKEN not in shown
    assert len(shown) < 100_000
    if "prints" in name:
        shown += project.runplan("logs", "X").out + project.runplan("explain", "X").out
    assert not any(code in shown for code in TERMINAL_CODES)
    until(lambda: processes_of(project.home) == [])
    foreign = {f".git/{name}" for name in agent.changes}
    assert differences(before, standing(project)) == landed_since(project, tip) | foreign, shown
    kept = ("refs/heads/runplan/", "refs/runplan/parked/")
    assert bool([one for one in project.leftovers() if not one.startswith(kept)]) is agent.parks_nothing
    project.repo.git("fsck", "--strict")


def test_a_stop_that_git_refuses_says_so_and_can_be_repeated(project: Project) -> None:
    play(project, WORK)
    assert project.start("1", "auto", TEST_KILL="before WorkTaken").code == -9
    in_the_way = "refs/heads/runplan/x/1/mine"
    project.repo.git("update-ref", in_the_way, "HEAD")
    refused = project.runplan("stop", "X")
    assert (refused.code, "then stop it again" in refused.err) == (5, True), refused.err
    project.repo.git("update-ref", "-d", in_the_way)
    assert project.runplan("stop", "X").code == 0
    assert project.runplan("status", "X", "--json").json["run"]["state"] == "stopped"


@pytest.mark.promise
def test_a_change_whose_commits_are_gone_is_not_approved(project: Project) -> None:
    play(project, WORK)
    assert project.start("1").code == 4
    for ref in project.leftovers():
        if ref.startswith("refs/"):
            project.repo.git("update-ref", "-d", ref)
    project.repo.git("gc", "-q", "--prune=now")
    for place in ("tool.git", "lanes"):
        shutil.rmtree(project.path / ".git/runplan" / place)
    ran = project.runplan("approve", "X")
    assert ran.last == "runplan: failed: no-commits", ran.err
