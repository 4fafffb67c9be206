"""A project whose agent is a shell script, and what of the user's differs after a run."""

import hashlib
import os
import stat
from pathlib import Path

import runplan
from tests.support.cli import Project, a_plan
from tests.support.repos import init_repo

PACKAGE = Path(runplan.__file__).parent
#: The verifier passes everything.
PASSES = r"""
git status >/dev/null
items="{\"item\": \"W1\", \"result\": \"pass\", \"evidence\": \"$RUNPLAN_PHASE.txt:1\"}"
echo "{\"status\": \"done\", \"summary\": \"Looked.\", \"items\": [$items]}" >"$RUNPLAN_RETURN"
"""
AGENTS = """\
[agents]
implementer = "shell"
verifier = "shell"
[agents.shell]
kind = "command"
argv = ["sh", "agent.sh"]
"""
#: runplan's own, git's objects, which fsck checks, and what git writes besides.
NOT_COMPARED = frozenset(
    f".git/{name}" for name in ("runplan", "objects", "logs", "refs/runplan", "refs/heads/runplan", "COMMIT_EDITMSG")
)


def a_hostile_project(place: Path, settings: str, **files: str) -> Project:
    """A plan of two phases with these files; `play` sets the agent."""
    (place / "home").mkdir()
    repo = init_repo(place / "repo")
    for name, text in {"README.md": "hello\n", "plans/X.md": a_plan("1", "2"), **files}.items():
        repo.write(name, text)
    repo.commit("Before")
    repo.write("runplan.toml", AGENTS + settings)
    repo.commit("Begin")
    (repo.path / ".git/hooks").mkdir(exist_ok=True)
    return Project(repo=repo, home=place / "home")


def play(project: Project, script: str, verifier: str = "") -> None:
    """Set the script of the verifier, and that of all other roles."""
    judge = f'if test "$RUNPLAN_ROLE" = verify; then\n{verifier or PASSES}\nexit 0\nfi\n'
    project.commit_file("agent.sh", f"user={project.path} package={PACKAGE}\n{judge}{script}\n")


def standing(project: Project) -> dict[str, str]:
    """Every file of the user's: kind, mode and content."""
    files = {}
    waiting = [""]  # no recursion: an agent's folders may be deep
    while waiting:
        folder = waiting.pop()
        for entry in os.scandir(project.path / folder):
            name = f"{folder}{entry.name}"
            mode = entry.stat(follow_symlinks=False).st_mode
            if name in NOT_COMPARED:
                continue
            if stat.S_ISDIR(mode):
                waiting.append(f"{name}/")
                continue
            content = Path(entry.path).read_bytes() if stat.S_ISREG(mode) else b""
            target = Path(entry.path).readlink() if stat.S_ISLNK(mode) else ""
            files[name] = f"{mode:o} {hashlib.sha256(content).hexdigest()} {target}"
    return files


def differences(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def landed_since(project: Project, tip: str) -> set[str]:
    """The files that the landings on main since the commit have changed, with those of git; empty without a landing."""
    changed = {*project.repo.git("diff", "-z", "--no-renames", "--name-only", tip, "main").split("\0")} - {""}
    return changed | {".git/refs/heads/main", ".git/index"} if changed else set()
