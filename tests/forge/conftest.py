"""A stand-in GitHub with one repository, and clients of it."""

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from github import Auth

from runplan.adapters.forge.access import Token, parse_remote
from runplan.adapters.forge.github import GitHub
from runplan.adapters.forge.github_calls import GitHubCalls
from runplan.adapters.forge.gitlab import GitLab
from runplan.adapters.forge.gitlab_calls import GitLabCalls
from tests.support.builders import a_plan
from tests.support.github.hub import Hub
from tests.support.github.server import StandIn
from tests.support.gitlab.hub import GitLabHub
from tests.support.gitlab.server import GitLabStandIn

#: The branch of a plan whose phases have landed.
BRANCH = "runplan/x/pr"
TRAILERS = "Runplan-Plan: plans/X.md\nRunplan-Phase: 1\nRunplan-Run: r1\nRunplan-Landing: r1.1"
CELLS = {"main": "⬚", "work": "⬚", BRANCH: "✅ Done"}


def git(*args: str, cwd: Path) -> str:
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.com")
    ran = subprocess.run(["git", *identity, *args], cwd=cwd, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@cache
def _model() -> Path:
    """A bare repository and a clone; the branches `work` and that of a plan are one commit ahead of main."""
    place = Path(tempfile.mkdtemp(prefix="runplan-tests-forge-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    bare, clone = place / "app.git", place / "clone"
    git("init", "-q", "--bare", "-b", "main", str(bare), cwd=place)
    git("config", "http.receivepack", "true", cwd=bare)
    git("init", "-q", "-b", "main", str(clone), cwd=place)
    for branch, file in (("main", "a.txt"), ("work", "b.txt"), (BRANCH, "1.txt")):
        if branch != "main":
            git("checkout", "-q", "-b", branch, "main", cwd=clone)
        (clone / "plans").mkdir(exist_ok=True)
        (clone / file).write_text(f"{file}\n", encoding="utf-8")
        (clone / "plans/X.md").write_bytes(a_plan({"1": CELLS[branch]}))
        git("add", file, "plans/X.md", cwd=clone)
        git("commit", "-q", "-m", f"add {file}", "-m", TRAILERS, cwd=clone)
    git("checkout", "-q", "main", cwd=clone)
    git("push", "-q", str(bare), "main", "work", BRANCH, cwd=clone)
    return place


@pytest.fixture
def place(tmp_path: Path) -> Path:
    shutil.copytree(_model(), tmp_path / "place")
    return tmp_path / "place"


@pytest.fixture
def hub(place: Path) -> Hub:
    return Hub(place / "app.git")


@pytest.fixture
def stand_in(hub: Hub) -> Iterator[StandIn]:
    with StandIn(hub) as running:
        yield running


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def forge(stand_in: StandIn, slept: list[float]) -> GitHub:
    address = parse_remote(stand_in.remote, {})
    assert address is not None
    calls = GitHubCalls(sleep=slept.append, now=lambda: 1000.0)
    return GitHub(address, Auth.Token("t0ken"), Token(value="t0ken", source=""), api=stand_in.api, calls=calls)


@pytest.fixture
def gitlab_hub(place: Path) -> GitLabHub:
    return GitLabHub(place / "app.git")


@pytest.fixture
def gitlab_server(gitlab_hub: GitLabHub) -> Iterator[GitLabStandIn]:
    with GitLabStandIn(gitlab_hub) as running:
        yield running


@pytest.fixture
def gitlab(gitlab_server: GitLabStandIn, slept: list[float]) -> GitLab:
    address = parse_remote(gitlab_server.remote, {})
    assert address is not None
    calls = GitLabCalls(sleep=slept.append, now=lambda: 1000.0)
    return GitLab(address, Token(value="t0ken", source=""), url=gitlab_server.address, calls=calls)
