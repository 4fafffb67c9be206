"""Agents behind bubblewrap, seen from the shim; and which folders of the user each may write."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.agents import module_of
from runplan.adapters.calling import Agents
from runplan.core.config import Layer
from runplan.core.dispatch import Ending, Role
from runplan.core.sandbox import Room, wrapped
from tests.support.dispatching import PATIENCE_S, Stage, gone, stage, until
from tests.support.repos import init_repo
from tests.support.samples import FOLDERS, expected
from tests.support.sandboxes import obstacle
from tests.support.settings import settle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    if why := obstacle():
        pytest.skip(why)
    with stage(tmp_path) as made:
        yield made


def shut_in(on: Stage, script: str, **changes: object) -> str:
    bwrap = shutil.which("bwrap")
    assert bwrap
    room = Room(writable=(str(on.path),))
    argv = wrapped(("sh", "-c", script), room, bwrap=bwrap, cwd=str(on.path), root=os.geteuid() == 0)
    return on.start(*argv, **changes)


def test_last_words_within_the_grace_come_through(on: Stage) -> None:
    dispatch = shut_in(
        on, "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done", wall_s=1.0, grace_s=PATIENCE_S
    )

    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.TIMEOUT, 3, "on\nbye\n")


def test_who_does_not_listen_is_killed_with_all_it_started(on: Stage) -> None:
    dispatch = shut_in(
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
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = file.read().split()
    return children + [deeper for child in children for deeper in _descendants(int(child))]


def test_bytes_moved_inside_are_a_sign_of_life_and_silence_is_silence(on: Stage) -> None:
    copies = "i=0; while test $i -lt 20; do head -c 1000000 /dev/zero >copy; sleep 0.05; i=$((i+1)); done"

    assert on.outcome(shut_in(on, copies, silence_s=0.5)).code == 0
    assert on.outcome(shut_in(on, "sleep 30", silence_s=0.3)).ending is Ending.SILENT


@pytest.mark.parametrize("name", FOLDERS)
def test_each_may_write_its_own_folders_wherever_they_are(name: str, tmp_path: Path) -> None:
    calls, state = expected(name)["calls"], module_of(name).state

    assert state({"HOME": str(tmp_path)}) == tuple(tmp_path / path for path in calls.get("state", ()))
    moved = [str(path) for path in state({"HOME": str(tmp_path), calls["private"]: "/else"})]
    assert any(path.startswith("/else") for path in moved) is ("state" in calls)


def test_claudes_file_beside_its_folder_is_writable_when_it_is_there(tmp_path: Path) -> None:
    (tmp_path / ".claude.json").write_text("{}")

    assert tmp_path / ".claude.json" in module_of("claude").state({"HOME": str(tmp_path)})


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("role", [Role.IMPLEMENT, Role.VERIFY])
def test_the_users_own_folder_is_made_and_given_only_to_who_has_none_of_its_own(
    tmp_path: Path, role: Role, private: bool
) -> None:
    repo = init_repo(tmp_path / "repo")
    repo.write("a", "a\n")
    repo.commit("Begin")
    repo.git("worktree", "add", "-q", "-b", "runplan/x/1", str(tmp_path / "tree"))
    directory = tmp_path / "repo/.git/runplan/dispatch/r1.1"
    directory.mkdir(parents=True)
    (directory / "prompt.md").write_text("Do it.")
    tables = {"sandbox": "bwrap", "codex": {"private": private, "writable": ["~/cache"]}}
    settings = settle([Layer(origin="x", values={"agents": tables})]).settings.agents
    caller = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "TMPDIR": "/elsewhere"}
    agents = Agents(settings, root=repo.path, plan="plans/x.md", run="r1", caller=caller)

    argv, env, _ = agents.launch(
        "codex",
        dispatch="r1.1",
        role=role,
        phase="1",
        attempt=1,
        cycle=1,
        directory=directory,
        worktree=tmp_path / "tree",
    )

    writable = {argv[at + 1] for at, word in enumerate(argv) if word == "--bind"}
    git = tmp_path / "repo/.git"
    own = {git / "objects", git / "refs/heads/runplan/x", git / "logs/refs/heads/runplan/x", git / "worktrees/tree"}
    expected = {directory, tmp_path / "home/cache", *(() if private else (tmp_path / "home/.codex",))}
    expected |= {tmp_path / "tree", *own} if role is Role.IMPLEMENT else set()
    assert writable == {str(path) for path in expected}
    assert env["TMPDIR"] == "/tmp"
    assert "--dangerously-bypass-approvals-and-sandbox" in argv
    assert (tmp_path / "home/.codex").is_dir() is not private
