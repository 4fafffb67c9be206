"""A zoo of misbehaving agents: each has its named outcome, and the user's repository is as it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import a_plan, copied, end_processes_of, processes_of, until, with_remote
from tests.support.repos import init_repo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.cli import Project

WORK = "echo 1 >1.txt; git add 1.txt; git commit -qm 'Write 1'"
SETTINGS = """\
[agents]
implementer = "beast"
verifier = "beast"
[agents.beast]
kind = "command"
argv = ["sh", "beast.sh"]
[limits]
silence = "1s"
"""
VERIFY = r"""
if test "$RUNPLAN_ROLE" = verify; then
    passed='{"item": "\1", "result": "pass", "evidence": "seen"}'
    items=$(sed -n "/^## Items/,/^## [^I]/s/^- \([A-Z]*[0-9]*\): .*/$passed/p" "$RUNPLAN_PROMPT" | paste -sd,)
    echo "{\"status\": \"done\", \"summary\": \"Looked.\", \"items\": [$items]}" >"$RUNPLAN_RETURN"
    exit 0
fi
"""


@dataclass(frozen=True)
class Beast:
    """What it does, and what comes of it."""

    does: str
    ends: str = "landed"  #: or the reason of the failure
    says: str = ""  #: stands in what a person is told, or in the report
    settings: str = ""
    keeps: tuple[str, ...] = field(default=())  #: refs that stay changed, because nothing is repaired


SHAPE = "--format=%(refname) %(objectname)%(symref)"
TOKEN = "ghp_" + 36 * "a"
LAND = "\n" + WORK
#: A child without the mark, in a session of its own and out of its control group, where it may leave that.
HIDES = """
env -i HOME="$HOME" PATH="$PATH" setsid sh -c '
for g in /sys/fs/cgroup /sys/fs/cgroup/unified; do [ ! -e $g/cgroup.controllers ] || echo 0 >$g/cgroup.procs; done
exec sleep 300' 2>/dev/null &
sleep 0.1"""
ZOO: dict[str, Beast] = {
    # --- processes ---
    "forks and exits": Beast(does="sleep 300 &" + LAND),
    "forks twice into a session of its own": Beast(does="setsid sh -c 'sleep 300 & sleep 300' &" + LAND),
    "leaves a child without an environment": Beast(does="env -i setsid sleep 300 &" + LAND),
    "leaves fifty children": Beast(does="for i in $(seq 50); do sleep 300 & done" + LAND),
    "leaves a child that holds its output": Beast(does="(sleep 300; echo late) &" + LAND),
    "ignores the request to end": Beast(does="trap '' TERM INT HUP; while :; do sleep 300; done", ends="silent"),
    "works in a process group of its own": Beast(does="setsid -w sh -c '" + WORK.replace("'", '"') + "'"),
    "kills its parent": Beast(does=WORK + "; kill -9 $PPID; sleep 300", ends="crashed"),
    "stops its parent": Beast(does=HIDES + "; kill -STOP $PPID; sleep 300", ends="timeout", settings='wall = "1s"\n'),
    "kills itself": Beast(does=WORK + "; kill -9 $$", ends="agent-failed", says="was killed by signal 9"),
    "sleeps for ever": Beast(does="sleep 300", ends="silent"),
    "works for ever": Beast(does="while :; do :; done", ends="timeout", settings='wall = "1s"\n'),
    "tries to start another run": Beast(does="runplan start X auto --foreground; runplan approve X" + LAND),
    # --- output ---
    "prints binary": Beast(does="head -c 300000 /dev/urandom" + LAND),
    "prints one line of a hundred megabytes": Beast(does="head -c 100000000 /dev/zero | tr '\\0' x" + LAND),
    "closes its output and goes on": Beast(does="exec >&- 2>&-" + LAND),
    "shouts on standard error": Beast(does="head -c 30000000 /dev/zero | tr '\\0' y >&2" + LAND),
    "returns rubbish": Beast(does="echo '{[' >\"$RUNPLAN_RETURN\"" + LAND),
    "says it is blocked": Beast(does="echo 'BLOCKER: no key'" + LAND, ends="blocked", says="no key"),
    "says it is blocked with what terminals obey": Beast(
        does=r"printf 'BLOCKER: \033]0;owned\007\033[31mred\033[2J \000nul\n'" + LAND,
        ends="blocked",
        says="blocked: red nul",
    ),
    "says it is blocked in three megabytes": Beast(
        does='{ printf "{\\"status\\": \\"blocked\\", \\"summary\\": \\"why "; head -c 3000000 /dev/zero | tr "\\0" x; '
        'printf "\\"}"; } >"$RUNPLAN_RETURN"' + LAND,
        ends="blocked",
        says="why xxx",
    ),
    "does nothing": Beast(does=":", ends="no-commits"),
    "fails after its work": Beast(does=WORK + "; exit 3", ends="agent-failed", says="exit code 3"),
    # --- the disk ---
    "fills its quota": Beast(does="ulimit -f 100; head -c 3000000 /dev/zero >big || exit 9", ends="agent-failed"),
    "leaves a huge file": Beast(does="head -c 6000000 /dev/zero >huge.bin", ends="tampered", says="huge.bin"),
    "writes into the user's checkout": Beast(does='echo mine >"$user/notes.txt"' + LAND),
    "takes away its own records": Beast(does=WORK + '; rm -rf "$(dirname "$RUNPLAN_PROMPT")"', ends="crashed"),
    # --- the user's repository, by its path ---
    "commits in the user's checkout": Beast(
        does='(cd "$user"; git commit -q --allow-empty -m Wrong)' + LAND,
        ends="guard-violated",
        says="refs/heads/main",
        keeps=("refs/heads/main",),
    ),
    "makes a tag in the user's repository": Beast(
        does='git -C "$user" tag v1' + LAND, says="refs/tags/v1 changed while", keeps=("refs/tags/v1",)
    ),
    "changes the user's configuration": Beast(
        does='git -C "$user" config core.editor vi' + LAND, says="/config changed while", keeps=("config",)
    ),
    "adds a hook to the user's repository": Beast(
        does='printf "#!/bin/sh\\nexit 1\\n" >"$user/.git/hooks/pre-commit"' + LAND,
        says="/hooks/pre-commit changed while",
        keeps=("hooks",),
    ),
    # --- its own repository (most of it: test_erring_agents.py) ---
    "leaves a lock": Beast(does=WORK + '; : >"$(git rev-parse --git-dir)/index.lock"'),
    "has git overlook a change": Beast(
        does="echo 0 >1.txt; git add .; git commit -qm 0; git update-index --skip-worktree 1.txt; echo 1 >1.txt"
    ),
    "makes its branch stand for the target": Beast(
        does="git symbolic-ref refs/heads/runplan/x/1 refs/heads/main" + LAND
    ),
    "takes away its repository": Beast(does=WORK + '; rm -rf "$(git rev-parse --git-common-dir)"'),
    "commits as somebody else": Beast(does=WORK + "; git commit -q --amend --no-edit --author='Eve <eve@example.org>'"),
    "rewrites what was there before": Beast(does="git reset -q --hard HEAD~1" + LAND, ends="off-base"),
    "makes a merge": Beast(
        does="git checkout -q -b side; echo s >s.txt; git add s.txt; git commit -qm s; git checkout -q -;"
        + WORK
        + "; git merge -q -m merged side; git branch -D side -q"
    ),
    # --- the work ---
    "edits the plan": Beast(
        does="echo more >>plans/X.md; git commit -qam plan" + LAND, ends="tampered", says="plans/X.md"
    ),
    "edits the settings": Beast(does="echo '# x' >>runplan.toml; git commit -qam set" + LAND, ends="tampered"),
    "leaves a secret": Beast(does="echo 'PASSWORD=hunter22hunter22' >.env" + LAND, ends="tampered", says=".env"),
    "commits a token": Beast(
        does=f"echo 'token {TOKEN}' >conf.txt; git add .; git commit -qm conf" + LAND,
        ends="tampered",
        says="conf.txt: seems to contain a GitHub token",
    ),
    "commits a token and takes it out again": Beast(
        does=f"echo {TOKEN} >conf.txt; git add .; git commit -qm conf; git rm -q conf.txt; git commit -qm out" + LAND,
        ends="tampered",
        says="conf.txt: seems to contain a GitHub token",
    ),
    "writes a token into a commit message": Beast(
        does=f"echo x >conf.txt; git add .; git commit -qm 'Use {TOKEN}'" + LAND,
        ends="tampered",
        says="a commit message: seems to contain a GitHub token",
    ),
    "names a file like a token": Beast(
        does=f"echo x >{TOKEN}.txt; git add .; git commit -qm name" + LAND,
        ends="tampered",
        says="[redacted].txt: its name contains a GitHub token",
    ),
    "leaves a file named like a token": Beast(
        does=f"echo x >{TOKEN}.txt" + LAND, ends="tampered", says="[redacted].txt"
    ),
    "leaves a repository inside": Beast(does="git init -q sub; touch sub/x" + LAND, ends="tampered", says="sub"),
    "adds a submodule": Beast(
        does='git -c protocol.file.allow=always submodule --quiet add "$user" sub; git commit -qm sub' + LAND,
    ),
    "links out of the tree": Beast(does="ln -s /etc/passwd link; git add link; git commit -qm link" + LAND),
    "mixes line ends": Beast(
        does="printf '* text=auto\\n' >.gitattributes; printf 'a\\r\\nb\\n' >mixed.txt; git add . 2>&1"
        + "; git commit -qm ends"
        + LAND
    ),
    "weakens the tests": Beast(does="git rm -q tests/test_x.py; git commit -qm less" + LAND, ends="tampered"),
}


BAD = ("\033", "\007", "\0")  #: what a terminal obeys


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The project every beast is let loose in."""
    from tests.support.cli import Project

    place = tmp_path_factory.mktemp("zoo")
    (place / "home").mkdir()
    repo = init_repo(place / "repo")
    repo.write("README.md", "hello\n")
    repo.commit("Before")
    repo.write("runplan.toml", SETTINGS)
    repo.write("plans/X.md", a_plan("1"))
    repo.write("tests/test_x.py", "def test_x():\n    assert True\n")
    repo.write("beast.sh", "exit 1\n")
    repo.write(".gitignore", "*.log\n")
    repo.commit("Begin")
    return Project(repo=repo, home=place / "home")


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    with_remote(made, tmp_path / "origin.git")
    yield made
    end_processes_of(made.home)


def standing(project: Project) -> dict[str, str]:
    """What of the user's repository no agent may change."""
    git = project.path / ".git"
    hooks = sorted(path for path in (git / "hooks").iterdir() if not path.name.endswith(".sample"))
    refs = {
        name: oid
        for name, oid in (line.split(" ", 1) for line in project.repo.git("for-each-ref", SHAPE).splitlines())
        if "runplan" not in name
    }
    return refs | {
        "HEAD": (git / "HEAD").read_text(),
        "config": (git / "config").read_text(),
        "hooks": str([(path.name, path.read_text()) for path in hooks]),
        "stash": project.repo.git("stash", "list"),
    }


@pytest.mark.parametrize("name", ZOO)
def test_a_beast_has_its_named_outcome_and_the_repository_is_as_it_was(project: Project, name: str) -> None:
    beast = ZOO[name]
    project.repo.write("beast.sh", f"user={project.path}\n{VERIFY}\n{beast.does}\n")
    project.repo.write("runplan.toml", SETTINGS + beast.settings + '[tests]\ncommand = "true"\n')
    project.repo.commit("Let it loose")
    project.repo.git("push", "-q", "origin", "main")
    project.repo.git("fetch", "-q", "origin")
    before = standing(project)

    ran = project.start("1", "auto")

    landed = beast.ends == "landed"
    assert ran.code == (0 if landed else 1), ran.err
    if not landed:
        assert ran.last == f"runplan: failed: {beast.ends}", ran.err
    assert ("1.txt" in project.repo.git("ls-tree", "--name-only", "main").split()) is landed
    told = ran.err + project.runplan("report", "X").out
    assert beast.says in told
    shown = told + project.runplan("logs", "X").out + project.runplan("explain", "X").out
    assert not any(sign in shown for sign in BAD)
    assert TOKEN not in told
    assert len(told) < 100_000
    until(lambda: processes_of(project.home) == [])
    ignored = {"refs/heads/main", *beast.keeps} if landed else set(beast.keeps)
    changed = {what for what, was in before.items() if standing(project).get(what) != was} - ignored
    assert changed == set(), told
    left = [one for one in project.leftovers() if not one.startswith(("refs/heads/runplan/", "refs/runplan/parked/"))]
    # A repository inside is the one thing that cannot be kept aside, so the worktree stays, and is named.
    assert bool(left) is (name == "leaves a repository inside")


def test_the_zoo_has_at_least_thirty_kinds() -> None:
    assert len(ZOO) >= 30
