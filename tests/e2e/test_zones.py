"""Attacks of an agent on its own directories: runplan itself does no harm, and an honest start lands afterwards."""

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.agents.invocation import obstacle
from tests.support.cli import Project, a_plan, copied, end_processes_of
from tests.support.repos import init_repo

SETTINGS = """\
[run]
copy = ["conf/.env"]
[agents]
implementer = "shell"
verifier = "shell"
[agents.shell]
kind = "command"
argv = ["sh", "agent.sh"]
[tests]
command = "test ! -e red || test -e built.ok || test -d empty || grep -q hacked conf/.env"
[limits]
handover = "10s"
handover_entries = 5000
"""
VERIFY = r"""
if test "$RUNPLAN_ROLE" = verify; then
    git status >/dev/null
    items='{"item": "W1", "result": "pass", "evidence": "1.txt:1"}'
    echo "{\"status\": \"done\", \"summary\": \"Looked.\", \"items\": [$items]}" >"$RUNPLAN_RETURN"
    exit 0
fi
dir=$(git rev-parse --absolute-git-dir) lane=$(cd "$(git rev-parse --git-common-dir)" && pwd)
branch=$(git symbolic-ref HEAD)
"""
WORK = "echo 1 >1.txt; git add 1.txt; git commit -qm 'Write 1'\n"
RED = "echo x >red; git add red; git commit -qm red\n"  #: the tests fail on this tree
#: A commit with 10^5 paths made of a few objects.
BOMB = """
oid=$(echo x | git hash-object -w --stdin) kind=blob mode=100644
for level in 1 2 3 4 5; do
    oid=$(for n in 0 1 2 3 4 5 6 7 8 9; do printf "$mode $kind $oid\\t$n\\n"; done | git mktree) kind=tree mode=040000
done
git update-ref HEAD $(git commit-tree -p HEAD -m Bomb $oid)
"""
PROGRAM = 'printf "#!/bin/sh\\ntouch $user/pwned; cat\\n" >evil; chmod +x evil\n'

#: What the agent does before or after its work; whether the phase may land.
ATTACKS = {
    "links the draft of its branch": (WORK + 'ln -s "$user/.git/refs/heads/main" "$lane/$branch.new"', True),
    "links the draft of packed refs": (WORK + 'ln -s "$user/README.md" "$lane/packed-refs.new"', True),
    "links the drafts of config and HEAD": (
        WORK + 'for f in config HEAD info/exclude; do ln -sf "$user/README.md" "$lane/$f.new"; done',
        True,
    ),
    "replaces its refs by a link": (WORK + 'mv "$lane/refs" "$lane/r"; ln -s "$user/.git/refs" "$lane/refs"', True),
    "replaces its git directory by a link": (WORK + 'mv "$dir" "$dir.x"; ln -s "$user/.git" "$dir"', True),
    "points .git elsewhere": (WORK + 'echo "gitdir: $user/.git" >.git', True),
    "points commondir elsewhere": (WORK + 'echo "$user/.git" >"$dir/commondir"', True),
    "sets core.worktree": (WORK + 'git config core.worktree "$user"', True),
    "commits the diff's name as a link": (
        WORK + 'ln -s "$user/.git/hooks/pre-commit" .runplan.diff; git add -f .runplan.diff; git commit -qm d',
        True,
    ),
    "plants a monitor, filters and hooks": (
        PROGRAM + WORK + "for k in core.fsmonitor filter.x.clean filter.x.smudge core.sshCommand gpg.program\n"
        'do git config $k "$PWD/evil"; done; mkdir -p "$lane/hooks"; cp evil "$lane/hooks/post-checkout"\n'
        "rm evil; echo '* filter=x' >.gitattributes",
        True,
    ),
    "makes packed refs a pipe": (WORK + 'rm -f "$lane/packed-refs"; mkfifo "$lane/packed-refs"', False),
    "makes HEAD a pipe": (WORK + 'rm "$dir/HEAD"; mkfifo "$dir/HEAD"', False),
    "makes attributes a pipe": (WORK + "mkfifo .gitattributes", False),
    "leaves pipes, odd modes and deep folders": (
        WORK + "mkfifo fifo; mkdir shut; chmod 000 shut; d=deep; for n in $(seq 300); do d=$d/d; done; mkdir -p $d",
        True,
    ),
    "commits a tree of many paths": (BOMB, False),
    "overwrites an object": (
        WORK + 'o=$(git rev-parse HEAD:1.txt); f="$lane/objects/$(echo $o | cut -c1-2)/$(echo $o | cut -c3-)"\n'
        'chmod +w "$f"; echo junk >"$f"; echo other >1.txt',
        False,
    ),
    "borrows objects from nowhere": (WORK + 'echo /nowhere >"$lane/objects/info/alternates"', True),
    "edits a copied file": (RED + "echo hacked >conf/.env", False),
    "leaves an empty directory": (RED + "mkdir empty", False),
    "leaves an ignored file": (RED + "touch built.ok", False),
    "returns a link": (WORK + 'rm -f "$RUNPLAN_RETURN"; ln -s "$user/README.md" "$RUNPLAN_RETURN"', True),
    "returns a pipe": (WORK + 'rm -f "$RUNPLAN_RETURN"; mkfifo "$RUNPLAN_RETURN"', True),
    "makes a parent of a copied file a link": (
        WORK + 'rm -rf conf; ln -s "$user/.git" conf; git add -f conf; git commit -qm conf',
        False,
    ),
    "leaves locks and a merge": (WORK + 'touch "$dir/index.lock" "$dir/HEAD.lock" "$lane/packed-refs.lock"', True),
}
MODES = ["none", pytest.param("bwrap", marks=pytest.mark.skipif(bool(obstacle(os.environ)), reason="no bubblewrap"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`make test` plays a sample of the attacks, `make zoo` all of them."""
    names = [*ATTACKS] if metafunc.config.getoption("--zoo") else [*ATTACKS][::3]
    metafunc.parametrize("name", names)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    place = tmp_path_factory.mktemp("model")
    (place / "home").mkdir()
    repo = init_repo(place / "repo")
    for name, text in (
        ("README.md", "hello\n"),
        ("runplan.toml", SETTINGS),
        ("plans/X.md", a_plan("1")),
        (".gitignore", "*.ok\nconf/.env\n"),
    ):
        repo.write(name, text)
    repo.commit("Begin")
    repo.write("conf/.env", "SECRET=1\n")
    (repo.path / ".git/hooks").mkdir(exist_ok=True)
    return Project(repo=repo, home=place / "home")


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    yield made
    end_processes_of(made.home)


def play(project: Project, script: str) -> None:
    project.repo.write("agent.sh", f"user={project.path}\n{VERIFY}\n{script}\n")
    project.repo.git("add", "agent.sh")
    project.repo.git("commit", "-qm", "Set the agent")


def standing(project: Project) -> dict[str, str]:
    """Every file of the user's, but for objects, indexes, logs of refs and runplan's own."""
    found = {}
    for directory, names, files in os.walk(project.path):
        names[:] = [name for name in names if name not in ("objects", "runplan", "logs")]
        for name in files:
            path = Path(directory, name)
            relative = path.relative_to(project.path).as_posix()
            if "runplan" in relative.removeprefix("runplan.toml") or relative in (".git/index", ".git/COMMIT_EDITMSG"):
                continue
            kind = stat.S_IFMT(path.lstat().st_mode)
            content = path.read_bytes() if stat.S_ISREG(kind) else b""
            found[relative] = f"{kind:o} {hashlib.sha256(content).hexdigest()}"
    return found


@pytest.mark.parametrize("sandbox", MODES)
def test_an_attack_has_no_effect_outside_and_an_honest_start_lands(project: Project, name: str, sandbox: str) -> None:
    script, may_land = ATTACKS[name]
    play(project, script)
    before = standing(project)
    ran = project.start("1", "auto", RUNPLAN_AGENTS_SANDBOX=sandbox)
    assert ran.code in ((0, 1) if may_land else (1,)), ran.err
    after = standing(project)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    landed = {"1.txt", "plans/X.md", "reports/plan-x.md", "reports/README.md", ".git/refs/heads/main", ".gitattributes"}
    landed.add(".runplan.diff")  # as a link, which is what the agent committed
    assert changed <= (landed if ran.code == 0 else set()), ran.err
    assert project.repo.git("status", "--porcelain") == ""
    if ran.code:
        play(project, WORK)
        again = project.runplan("retry", "X", "1", "--fresh", RUNPLAN_AGENTS_SANDBOX=sandbox)
        assert again.code == 0, again.err
    assert project.show("main:1.txt") == "1"
    project.repo.git("fsck", "--strict")
