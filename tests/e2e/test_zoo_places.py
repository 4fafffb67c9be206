"""Beasts that put links, pipes and folders where git keeps its files: named at once, and nobody waits for them."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, end_processes_of, until
from tests.support.sandboxes import obstacle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = """\
[agents]
implementer = "sh"
verifier = "judge"
sandbox = "{sandbox}"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
[agents.judge]
kind = "script"
script = "agent.toml"
[tests]
command = "sh check.sh"
"""
#: W is the worktree, E its entry, C the repository, H the user's home; only the first attempt is a beast.
BEGIN = """\
W=$PWD; E=$(git rev-parse --absolute-git-dir); C=$(cd "$(git rev-parse --git-common-dir)" && pwd); H={home}
echo 1 >1.txt
test "$RUNPLAN_ATTEMPT" = 1 || exit 0
"""


@dataclass(frozen=True)
class Beast:
    does: str
    names: str  #: stands in what a person is told
    shut_in: bool = True  #: tried in a sandbox as well
    ends: str = "guard-violated"


def pipe(place: str, *, shut_in: bool = False, names: str = "") -> Beast:
    made = f'rm -rf "{place}"; mkdir -p "$(dirname "{place}")"; mkfifo "{place}"'
    return Beast(does=made, names=names or f"a named pipe in the place of {place.partition('/')[2]}", shut_in=shut_in)


OWN = "refs/heads/runplan/x"
ZOO = {
    "has its index stand for the user's": Beast(
        does='rm "$E/index"; ln -s ../../index "$E/index"', names="a symbolic link to ../../index in the place of"
    ),
    "has its logs stand for the user's files": Beast(
        does=f'rm -f "$E/logs/HEAD" "$C/logs/{OWN}/1"; ln -s "$H/.bashrc" "$E/logs/HEAD"; '
        f'ln -s "$H/.profile" "$C/logs/{OWN}/1"',
        names=f"in the place of logs/{OWN}/1",
    ),
    "has its messages stand for the user's files": Beast(
        does='for n in COMMIT_EDITMSG ORIG_HEAD runplan-index runplan-shown; do ln -sf "$H/$n" "$E/$n"; done',
        names="COMMIT_EDITMSG",
        shut_in=False,
    ),
    "has its worktree stand for the user's": Beast(
        does='cd /; rm -rf "$W"; ln -s "$H/mine" "$W"', names="/mine in the place of /", shut_in=False
    ),
    "sends git round for ever": Beast(
        does=f'ln -s . "$C/{OWN}/loop"; ln -s ../../.. "$C/{OWN}/up"', names=f"in the place of {OWN}/loop"
    ),
    "has a rebase stand for a folder of the user's": Beast(
        does='ln -sfn "$H/gold" "$E/rebase-merge"', names="/gold in the place of"
    ),
    "makes a folder of its HEAD": Beast(
        does='rm "$E/HEAD"; mkdir "$E/HEAD"', names="a folder in the place of", shut_in=False
    ),
    "makes folders of locks": Beast(does='mkdir "$E/index.lock"', names="a folder in the place of", shut_in=False),
    "names another repository": Beast(
        does='cp -a "$C" "$H/.cache/evil"; echo "$H/.cache/evil" >"$E/commondir"', names="taken apart", shut_in=False
    ),
    "names another worktree": Beast(does='echo /nowhere/.git >"$E/gitdir"', names="taken apart", shut_in=False),
    "makes a pipe of its link": pipe("$W/.git", names="/.git"),
    "makes a pipe of its entry's link": pipe("$E/gitdir", names="gitdir"),
    "makes a pipe of its HEAD": pipe("$E/HEAD", shut_in=True, names="/HEAD"),
    "makes a pipe of its index": pipe("$E/index", names="/index"),
    "makes a pipe of its log": pipe("$E/logs/HEAD", names="/logs/HEAD"),
    "makes a pipe of its message": pipe("$E/COMMIT_EDITMSG", names="/COMMIT_EDITMSG"),
    "makes a pipe of our index": pipe("$E/runplan-index", names="/runplan-index"),
    "makes a pipe of its branch": pipe(f"$C/{OWN}/1"),
    "makes a pipe beside its branch": pipe(f"$C/{OWN}/zz", shut_in=True),
    "makes a pipe of its branch's log": pipe(f"$C/logs/{OWN}/1"),
    "makes a pipe of the user's HEAD": pipe("$C/HEAD"),
    "makes a pipe of the packed refs": pipe("$C/packed-refs"),
    "makes a pipe of the target": pipe("$C/refs/heads/main"),
    "makes a pipe of the stash's log": pipe("$C/logs/refs/stash"),
    "makes a pipe of a store": pipe("$C/objects/info/alternates"),
    "makes a pipe of a lock": pipe("$C/HEAD.lock"),
}
CASES = [
    pytest.param(name, box, id=f"{name}{', shut in' if box == 'bwrap' else ''}")
    for name, beast in ZOO.items()
    for box in (("none", "bwrap") if beast.shut_in else ("none",))
]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = a_project(tmp_path, "1")
    made.commit_file("check.sh", "true\n")
    (made.home / ".bashrc").write_text("# mine\n")
    (made.home / "gold").mkdir()
    (made.home / "gold/bar").write_text("gold")
    made.repo.git("worktree", "add", "-q", "-b", "mine", str(made.home / "mine"))
    yield made
    end_processes_of(made.home)


def let_loose(project: Project, does: str, *, sandbox: str = "none") -> None:
    if sandbox == "bwrap" and (why := obstacle()):
        pytest.skip(why)
    (project.home / "agent.sh").write_text(BEGIN.format(home=project.home) + does + "\n")
    project.commit_file("runplan.toml", SETTINGS.format(home=project.home, sandbox=sandbox))


def theirs(project: Project) -> dict[str, object]:
    """What is the user's: files byte by byte, and where their refs are."""
    git = project.path / ".git"
    files = [git / "HEAD", git / "index", git / "config", git / "logs/HEAD", git / "logs/refs/heads/main"]
    files += [path for path in project.home.rglob("*") if path.is_file() and ".cache" not in path.parts]
    refs = {name: oid for name, oid in project.repo.refs().items() if "runplan" not in name}
    return {**refs, **{str(path): path.read_bytes() for path in files}}


@pytest.mark.parametrize(("name", "sandbox"), CASES)
def test_it_is_named_within_seconds_and_the_next_attempt_lands(project: Project, name: str, sandbox: str) -> None:
    beast = ZOO[name]
    let_loose(project, beast.does, sandbox=sandbox)
    before, began = theirs(project), time.monotonic()

    ran = project.start("1", "auto")

    assert (ran.code, ran.last) == (1, f"runplan: failed: {beast.ends}"), ran.err
    assert beast.names in ran.err
    assert time.monotonic() - began < 60
    assert theirs(project) == before
    again = project.start("1", "auto")
    assert again.code == 0, again.err
    assert project.landed() == ["1"]


def test_what_the_checks_put_there_is_named_as_theirs(project: Project) -> None:
    let_loose(project, "")
    project.commit_file("check.sh", 'test -e 1.txt || exit 0; mkfifo "$(git rev-parse --absolute-git-dir)/ORIG"\n')
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert "the gate command put a named pipe in the place of worktrees/" in ran.err


def test_who_takes_over_after_a_crash_finds_it_too(project: Project) -> None:
    let_loose(project, f'rm "$E/index"; mkfifo "$E/index" "$C/{OWN}/zz"; touch "$H/.cache/done"; sleep 300')
    (project.home / ".cache").mkdir(exist_ok=True)
    first = project.popen("start", "X", "1", "auto", "--foreground")
    until(lambda: (project.home / ".cache/done").exists())
    first.kill()
    first.communicate()
    for pid in (int(one.name) for one in _sleepers(project)):
        os.kill(pid, signal.SIGKILL)
    ran = project.start("1", "auto")
    assert (ran.code, ran.last) == (1, "runplan: failed: guard-violated"), ran.err
    assert f"a named pipe in the place of {OWN}/zz" in ran.err


def _sleepers(project: Project) -> list[Path]:
    from pathlib import Path

    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "cwd").readlink().is_relative_to(project.home)
            if inside and b"sleep\x00300" in (process / "cmdline").read_bytes():
                found.append(process)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("place", [".gitignore", "deep/er/.gitattributes"])
def test_a_pipe_among_its_files_holds_nobody_up(project: Project, place: str) -> None:
    let_loose(project, f'mkdir -p "$(dirname {place})"; rm -f {place}; mkfifo {place}; echo 2 >deep.txt')
    began = time.monotonic()
    ran = project.start("1", "auto")
    assert ran.code == 0, ran.err
    assert project.landed() == ["1"]
    assert time.monotonic() - began < 60
