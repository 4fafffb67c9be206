"""A stand-in GitHub with one repository, and a client of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from github import Auth

from runplan.forge.address import parse_remote
from runplan.forge.github import GitHub
from runplan.forge.retry import Calls
from tests.support.github.hub import Hub
from tests.support.github.server import StandIn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _git(*args: str, cwd: Path) -> None:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A repository with the branches main and work; work is one commit ahead."""
    bare, clone = tmp_path / "app.git", tmp_path / "clone"
    _git("init", "-q", "--bare", "-b", "main", str(bare), cwd=tmp_path)
    _git("config", "http.receivepack", "true", cwd=bare)
    _git("clone", "-q", str(bare), str(clone), cwd=tmp_path)
    _git("checkout", "-q", "-b", "main", cwd=clone)
    for branch, file in (("main", "a.txt"), ("work", "b.txt")):
        if branch != "main":
            _git("checkout", "-q", "-b", branch, cwd=clone)
        (clone / file).write_text(f"{file}\n", encoding="utf-8")
        _git("add", file, cwd=clone)
        _git("commit", "-q", "-m", f"add {file}", cwd=clone)
        _git("push", "-q", "origin", branch, cwd=clone)
    return Hub(bare)


@pytest.fixture
def stand_in(hub: Hub) -> Iterator[StandIn]:
    with StandIn(hub) as running:
        yield running


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def forge(stand_in: StandIn, slept: list[float]) -> GitHub:
    address = parse_remote(stand_in.remote)
    assert address is not None
    calls = Calls(sleep=slept.append, now=lambda: 1000.0)
    return GitHub(address, Auth.Token("t0ken"), api=stand_in.api, calls=calls)
