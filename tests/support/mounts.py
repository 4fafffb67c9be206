"""Full and read-only disks in a mount namespace; whether bubblewrap works."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from runplan.adapters.sandbox.bubblewrap import find_obstacle
from tests.support import inject
from tests.support.cli import RUNPLAN, Project, Ran, run_program

#: As root a mount namespace is enough; others may be root of a user namespace, where the machine allows that.
WAYS = (("unshare", "--mount"), ("unshare", "--mount", "--map-root-user"))


@cache
def way() -> tuple[str, ...]:
    """How a process gets mounts of its own here; the test is skipped where that is not allowed."""
    for words in WAYS:
        tried = ["sh", "-c", "mount -t tmpfs none /mnt"]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([*words, *tried], capture_output=True, check=False).returncode == 0:
                return words
    pytest.skip("neither root nor user namespaces: no file system can be mounted to be full or read-only")


@dataclass
class Inside:
    """A project seen from within a mount namespace that lives as long as the test."""

    project: Project
    holder: subprocess.Popen[bytes]

    def sh(self, script: str, *args: str | Path) -> str:
        ran = self._run("sh", "-euc", script, "sh", *map(str, args)).exits(0)
        return ran.out

    def start(self, *words: str, **env: str) -> Ran:
        command = [sys.executable, "-P", "-c", inject.RUN] if inject.KILL in env else [str(RUNPLAN)]
        return self._run(*command, "start", "X", *words, "--foreground", **env)

    def runplan(self, *words: str) -> Ran:
        return self._run(str(RUNPLAN), *words)

    def _run(self, *command: str, **env: str) -> Ran:
        user = ["--user", "--preserve-credentials"] if "--map-root-user" in way() else []
        enter = ["nsenter", f"--target={self.holder.pid}", "--mount", *user]
        # The directory is entered by name from within: what lies below a mount is not what lies on it.
        there = ["sh", "-c", 'cd "$0" && exec "$@"', str(self.project.path)]
        return run_program([*enter, *there, *command], Path.cwd(), {**self.project.env, **env})


@contextlib.contextmanager
def inside(project: Project) -> Iterator[Inside]:
    """A namespace with no mounts of its own yet."""
    holder = subprocess.Popen([*way(), "sh", "-c", "echo; read _"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    holder.stdout.readline()
    try:
        yield Inside(project=project, holder=holder)
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def small_disk(there: Inside, directory: Path, *, kilobytes: int = 16_000) -> None:
    """Give the directory a disk of its own, with all it holds."""
    there.sh(
        """mkdir -p "$1"; aside=$(mktemp -d -p "${1%/*}"); cp -a "$1/." "$aside"
        mount -t tmpfs -o size="$2"k none "$1"; cp -a "$aside/." "$1"; rm -r "$aside" """,
        directory,
        str(kilobytes),
    )


def fill(there: Inside, directory: Path) -> None:
    """Leave not a byte."""
    there.sh('cat /dev/zero > "$1/ballast" 2> /dev/null || true', directory)


def make_room(there: Inside, directory: Path) -> None:
    there.sh('rm "$1/ballast"', directory)


def read_only(there: Inside, directory: Path) -> None:
    there.sh('mkdir -p "$1"; mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"', directory)


def writable(there: Inside, directory: Path) -> None:
    there.sh('umount --lazy "$1"', directory)


def obstacle() -> str:
    found = find_obstacle({"PATH": os.environ["PATH"]})
    return f"the sandbox does not work here: {found.problem}; {found.remedy}" if found else ""
