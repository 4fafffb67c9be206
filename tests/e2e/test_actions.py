"""A run inside GitHub Actions: the steps of docs/github-actions.yml, in a checkout as actions/checkout makes it."""

import os
import re
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # comes with apprise

from tests.support.cli import RUNPLAN, Project, Ran, run_program
from tests.support.documents import ROOT
from tests.support.github.server import Fault, StandIn, on_github
from tests.support.tools import write_script

TOKEN = "ghs_workflow"
JOB = yaml.safe_load((ROOT / "docs/github-actions.yml").read_text(encoding="utf-8"))["jobs"]["plan"]
VALUES = {"inputs.plan": "plans/X.md", "secrets.RUNPLAN_TOKEN || github.token": TOKEN, "secrets.ANTHROPIC_API_KEY": ""}
PHASES = ("1",)


class Runner:
    """A machine that runs the steps of a job, as GitHub Actions does."""

    def __init__(self, project: Project, server: StandIn, place: Path) -> None:
        self._server = server
        self.checkout = place / "work"
        self.summary = place / "summary.md"
        programs = place / "bin"
        for name in ("pip", "npm"):  # nothing is installed without a network
            write_script(programs / name, "")
        (programs / "runplan").symlink_to(RUNPLAN)
        given = {name: value for name, value in project.env.items() if not name.startswith(("GITHUB_", "GH_"))}
        self.env = given | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(place),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_SERVER_URL": server.address,
            "GITHUB_API_URL": server.api,
            "GITHUB_REPOSITORY": "acme/app",
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def git(self, *args: str) -> None:
        subprocess.run(["git", *args], cwd=self.checkout, env=self.env, check=True, capture_output=True)

    def check_out(self, given: dict[str, Any], *, is_detached: bool = False) -> None:
        """Do as actions/checkout: by default the token stays in the configuration, and one commit is fetched."""
        self.checkout.mkdir()
        self.git("init", "-q")
        self.git("remote", "add", "origin", self._server.remote)
        basic = b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        header = f"http.{self._server.address}/.extraheader"
        self.git("config", header, f"AUTHORIZATION: basic {basic}")
        if given.get("fetch-depth") == 0:
            self.git("fetch", "-q", "origin", "+refs/heads/*:refs/remotes/origin/*")
        else:
            tip = self._server.hub.tip("main")
            self.git("fetch", "-q", "--no-tags", "--depth=1", "origin", f"+{tip}:refs/remotes/origin/main")
        branch = ("--detach",) if is_detached else ("-B", "main")
        self.git("checkout", "-q", "--force", *branch, "refs/remotes/origin/main")
        if given.get("persist-credentials") is False:
            self.git("config", "--unset-all", header)

    def run(self, step: dict[str, Any]) -> Ran:
        given = {name: _evaluate(value) for name, value in step.get("env", {}).items()}
        return run_program(["bash", "-e", "-o", "pipefail", "-c", step["run"]], self.checkout, self.env | given)


def _evaluate(value: str) -> str:
    return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: VALUES[match[1]], value)


@pytest.fixture
def server(project: Project, tmp_path: Path) -> Iterator[StandIn]:
    with on_github(project, tmp_path) as running:
        running.hub.tokens = {TOKEN}
        yield running


@pytest.fixture
def runner(project: Project, server: StandIn, tmp_path: Path) -> Runner:
    return Runner(project, server, tmp_path / "runner")


STEPS = [step for step in JOB["steps"] if "run" in step]
(CHECKOUT,) = (step["with"] for step in JOB["steps"] if step.get("uses", "").startswith("actions/checkout@"))


@pytest.mark.parametrize(("given", "is_detached"), [(CHECKOUT, False), ({"fetch-depth": 0}, True)])
def test_the_example_works_a_plan(runner: Runner, server: StandIn, given: dict[str, Any], is_detached: bool) -> None:
    """Also with the credentials that actions/checkout keeps unless it is told not to."""
    runner.check_out(given, is_detached=is_detached)
    for step in STEPS:
        runner.run(step).exits(0)
    assert (server.hub.merges, server.hub.pulls[1].merged) == (1, True)
    assert "## Phase — 1 Step 1" in runner.summary.read_text()


@pytest.mark.parametrize(
    ("depth", "said", "expected"),
    [
        (1, "", "git fetch --unshallow origin; with actions/checkout set fetch-depth: 0"),
        (
            0,
            "GitHub Actions is not permitted to create or approve pull requests.",
            "the token may not open pull requests on acme/app; it needs write access to contents and pull requests: "
            "cannot open pull requests with this token: 403 GitHub Actions is not permitted",
        ),
    ],
)
def test_a_workflow_that_could_not_land_is_refused_before_any_work(
    runner: Runner, server: StandIn, depth: int, said: str, expected: str
) -> None:
    """The history is cut off, or the setting of the repository is off."""
    if said:
        server.faults.append(Fault(call="POST /pulls", kind="before", status=403, message=said))
    runner.check_out({"fetch-depth": depth})
    install, work, _ = STEPS
    runner.run(install).exits(0)
    runner.run(work).exits(2, expected)
    assert list(server.hub.branches()) == ["main"]
