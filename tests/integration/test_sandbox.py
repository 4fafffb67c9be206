"""Processes under bubblewrap as the shim sees them, and the paths that they cannot write."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from runplan.agents.invocation import Sandbox, sandbox_command
from runplan.daemon.links import load_key
from runplan.git.command import Git
from runplan.git.repository import Checkouts
from runplan.run.dispatch import Ending
from runplan.settings.places import key_directory, user_file
from tests.support.dispatching import PATIENCE_S, Stage, gone, stage, until
from tests.support.mounts import obstacle
from tests.support.repos import init_repo, isolated_env


@pytest.fixture(autouse=True)
def works() -> None:
    if why := obstacle():
        pytest.skip(why)


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def sandboxed_sh(on: Stage, script: str, **changes: object) -> str:
    bwrap = shutil.which("bwrap")
    assert bwrap
    return on.start(*sandbox_command(("sh", "-c", script), bwrap=bwrap, cwd=str(on.path)), **changes)


def test_last_words_within_the_grace_come_through(on: Stage) -> None:
    dispatch = sandboxed_sh(
        on, "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done", wall_s=1.0, grace_s=PATIENCE_S
    )

    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.TIMEOUT, 3, "on\nbye\n")


def test_a_process_that_ignores_signals_is_killed_with_its_children(on: Stage) -> None:
    dispatch = sandboxed_sh(
        on,
        "trap '' TERM; (setsid env -i sh -c 'sleep 30' &); sleep 30 & touch ready; while :; do sleep 0.01; done",
        grace_s=0.1,
    )
    until((on.path / "ready").exists)
    shim = on.shim(dispatch)
    family = [int(word) for word in _descendants(shim)]
    assert len(family) >= 4

    on.dispatches.end([dispatch], grace_s=0.2)

    assert on.outcome(dispatch).ending is Ending.ENDED
    assert all(gone(pid) for pid in family)


def _descendants(pid: int) -> list[str]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:  # it has ended
        return []
    return children + [deeper for child in children for deeper in _descendants(int(child))]


def test_bytes_moved_inside_are_a_sign_of_life_and_silence_is_silence(on: Stage) -> None:
    copies = "i=0; while test $i -lt 30; do head -c 1000000 /dev/zero >copy; sleep 0.05; i=$((i+1)); done"

    assert on.outcome(sandboxed_sh(on, copies, silence_s=1.0)).code == 0
    assert on.outcome(sandboxed_sh(on, "sleep 30", silence_s=0.3)).ending is Ending.SILENT


class Place:
    """A repository with a linked checkout, and a worktree with the repository of its agent."""

    def __init__(self, place: Path) -> None:
        self.repo = init_repo(place / "repo")
        self.repo.commit("Begin", None, a="a\n")
        self.linked = place / "linked"
        self.repo.git("worktree", "add", "-q", "-b", "other", str(self.linked))
        self.home = place / "home"
        self.git = self.repo.path / ".git"
        self.lanes = self.git / "runplan/lanes"
        self.trees = place / "trees"
        for path in (*self.own, self.lanes / "b.git", self.trees / "b", self.home):
            path.mkdir(parents=True)

    @property
    def own(self) -> tuple[Path, Path, Path]:
        """The places that a dispatch may write: its worktree, its repository, its folder."""
        return self.trees / "a", self.lanes / "a.git", self.git / "runplan/dispatch/r1.1/own"

    def sandbox(self, variables: Mapping[str, str] | None = None) -> Sandbox:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), **(variables or {})}
        # As if runplan was started in the linked checkout.
        checkouts = Checkouts(Git(self.linked, env=isolated_env()), self.git)
        return Sandbox(checkouts, worktrees=self.trees, env=env)

    def can_write(self, directory: Path) -> bool:
        worktree = self.own[0]
        argv = self.sandbox().wrap(("sh", "-c", f"echo x >'{directory}/x'"), worktree, self.own)
        return subprocess.run(argv, cwd=worktree, capture_output=True, check=False).returncode == 0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_dispatch_writes_its_own_places(place: Place) -> None:
    assert all(place.can_write(path) for path in (*place.own, place.home))


def test_checkouts_git_directory_other_worktrees_and_own_files_of_the_user_are_read_only(place: Place) -> None:
    runplan = place.git / "runplan"
    for path in (
        place.repo.path,
        place.linked,
        place.git,
        place.git / "objects",
        runplan,
        runplan / "dispatch/r1.1",
        place.lanes / "b.git",
        place.trees,
        place.trees / "b",
        place.home / ".config/runplan",  # which is made where it is not there
    ):
        assert not place.can_write(path), path


def test_the_key_of_links_and_the_settings_of_the_user_cannot_be_read(place: Place) -> None:
    """Whoever reads the key, or the address of a channel, could approve a change. A key may be made meanwhile."""
    env = {"HOME": str(place.home)}
    settings = user_file(env)
    settings.parent.mkdir(parents=True)
    settings.write_text('[notify]\nurls = ["ntfy://secret"]\n')
    load_key(key_directory(env))
    keys = key_directory(env)
    look = f"cat '{settings}' '{keys}'/*; touch made; until test -e go; do :; done; ls '{keys}'"
    argv = place.sandbox().wrap(("sh", "-c", look), place.own[0], place.own)
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    until((place.own[0] / "made").exists)
    (keys / "later.key").write_text("secret")
    (place.own[0] / "go").touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == b""
    assert (
        subprocess.run(place.sandbox().wrap(("cat", str(settings)), *place.own[:1], place.own), check=False).returncode
        == 0
    )


def test_the_keys_to_the_database_of_a_fleet_cannot_be_read(place: Place) -> None:
    named = {name: place.home / name.lower() for name in ("PGPASSFILE", "PGSERVICEFILE", "PGSSLKEY")}
    files = [place.home / ".pgpass", place.home / ".pg_service.conf", place.home / ".postgresql/postgresql.key"]
    files += [user_file({"HOME": str(place.home)}), *named.values()]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("hunter2")
    sandbox = place.sandbox({name: str(file) for name, file in named.items()})
    secret = {**os.environ, "RUNPLAN_FLEET_DSN": "postgresql://u:hunter2@h/db"}
    worker = subprocess.Popen(["sleep", "60"], env=secret)
    look = ("sh", "-c", f"cat {' '.join(map(str, files))} /proc/*/environ; ls /proc/{worker.pid}; true")
    try:
        read = subprocess.run(sandbox.wrap(look, place.own[0], place.own), capture_output=True, check=True)
    finally:
        worker.kill()
        worker.wait()
    assert b"hunter2" not in read.stdout
    assert b"cmdline" not in read.stdout


def test_no_parent_of_a_worktree_checkout_or_settings_can_be_renamed(place: Place) -> None:
    worktree = place.own[0]
    for path in (place.trees, place.trees.parent, place.trees.parent.parent, place.home / ".config"):
        argv = place.sandbox().wrap(("mv", str(path), f"{path}.moved"), worktree, place.own)
        assert subprocess.run(argv, capture_output=True, check=False).returncode
        assert worktree.is_dir()


def test_a_program_that_is_not_there_is_called_as_before(place: Place) -> None:
    assert place.sandbox().wrap(("no-such-agent",), place.own[0], place.own) == ("no-such-agent",)
