"""Real agents call `runplan mcp` against a scripted model: a plan is made, approved, started and landed from inside.

Run by `make test-agents`. A program that is not installed is skipped, with the reason.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.agents.clis import BIN, CLIS, GOAL, PROPOSED
from tests.agents.modelserver import ModelServer
from tests.agents.scenario import TREE, Run, Say, Scenario, Serve, Turn
from tests.support.cli import RUNPLAN, Project, a_project as scripted_project
from tests.support.daemons import none_left
from tests.support.planning import planning_project

pytestmark = pytest.mark.timeout(300)

PROMPT = "Make a plan with runplan, and work on its first phase."
ADD = ("runplan", "--", "runplan", "mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """How a program is told of the server, and is run without a person."""

    add: tuple[str, ...] = ADD  #: after `mcp add`; as docs/mcp.md says
    run: tuple[str, ...]
    allow: tuple[str, ...] = ()  #: what lets its model answer for the person
    env: tuple[tuple[str, str], ...] = ()


#: Without a person some of them begin before the server is connected, unless they are told to wait.
CALLERS = {
    "claude": Caller(
        add=("-s", "user", *ADD),
        run=("claude", "--allowedTools", "mcp__runplan__plan,mcp__runplan__start,mcp__runplan__follow"),
        allow=("--allowedTools", "mcp__runplan"),
        env=(("MCP_CONNECTION_NONBLOCKING", "0"), ("MCP_CONNECT_TIMEOUT_MS", "60000")),
    ),
    "codex": Caller(
        run=("codex", "exec", "--skip-git-repo-check", "-c", "mcp_servers.runplan.required=true"),
        allow=("-c", 'mcp_servers.runplan.tools.approve.approval_mode="approve"'),
    ),
    "gemini": Caller(add=("-s", "user", "runplan", "runplan", "mcp"), run=("gemini", "--approval-mode", "yolo")),
    "opencode": Caller(run=("opencode", "run", "--auto", "-m", "openai/gpt-4o")),
}
GEMINI = '{"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"disableAutoUpdate": true}}'


@pytest.fixture(params=list(CALLERS))
def name(request: pytest.FixtureRequest) -> str:
    if missing := CLIS[request.param].missing:
        pytest.skip(missing)
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with none_left(tmp_path / "home"):
        yield planning_project(scripted_project(tmp_path, "1"))


def approved(plan: str) -> tuple[Serve, ...]:
    """Wait for the change or the plan, look at it, approve it, and wait for the end."""
    return (
        Serve("follow", {"plan": plan}),
        Serve("diff", {"plan": plan}),
        Serve("approve", {"plan": plan, "tree": TREE}),
        Serve("follow", {"plan": plan}),
    )


def run_program(
    name: str, project: Project, server: ModelServer, *, allow: tuple[str, ...], prompt: str = PROMPT
) -> str:
    """Add the server as docs/mcp.md says, and have the program work on the prompt."""
    cli = CLIS[name]
    caller = CALLERS[name]
    trusted = json.dumps({str(project.path): "TRUST_FOLDER"})
    files = {**cli.home, ".gemini/settings.json": GEMINI, ".gemini/trustedFolders.json": trusted}
    for file, text in files.items():
        (project.home / file).parent.mkdir(parents=True, exist_ok=True)
        (project.home / file).write_text(text, encoding="utf-8")
    env = {
        **project.env,
        "PATH": f"{BIN}:{RUNPLAN.parent}:{os.environ['PATH']}",
        "PWD": str(project.path),
        "TERM": "dumb",
        **dict(caller.env),
        **cli.environment(server),
    }
    provider = f'{{name="scripted", base_url="{server.url}/v1", wire_api="responses", env_key="{cli.key}"}}'
    model = ("-c", 'model_provider="scripted"', "-c", f"model_providers.scripted={provider}", "-m", cli.model)
    more = {"claude": ("-p", prompt), "codex": (*model, prompt), "gemini": ("-p", prompt)}.get(name, (prompt,))
    output = ""
    for words in ((name, "mcp", "add", *caller.add), (*caller.run, *allow, *more)):
        ran = subprocess.run(
            words, cwd=project.path, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=150, check=False
        )
        output = ran.stdout.decode() + ran.stderr.decode()
        assert ran.returncode == 0, output
    return output


def test_a_plan_is_made_started_and_approved_from_inside(
    project: Project, name: str, record_property: Callable[[str, object], None]
) -> None:
    turns: tuple[Turn, ...] = (
        Serve("plan", {"goal": GOAL, "quick": True}),
        *approved(PROPOSED),
        Serve("start", {"plan": PROPOSED, "options": ["1"]}),
        *approved(PROPOSED),
        Say("Phase 1 has landed."),
    )
    began_s = time.monotonic()
    with ModelServer(Scenario(parts={PROMPT: turns})) as server:
        output = run_program(name, project, server, allow=CALLERS[name].allow)
    landed = project.landed()
    took = f"{time.monotonic() - began_s:.1f}"
    for key, value in (("cli", name), ("case", "mcp"), ("seconds", took), ("outcome", f"landed {landed}")):
        record_property(key, value)
    assert landed == ["plan", "1"], "\n".join((output, *server.results))
    answers = [body for kind, body in project.events(PROPOSED) if kind == "Answered"]
    assert [(answer["approved"], answer["by"]) for answer in answers] == [(True, "Uma User (mcp)")] * 2
    assert "Phase 1 has landed." in output


@pytest.mark.parametrize("name", ["claude", "codex"], indirect=True)
def test_a_program_that_is_not_allowed_to_approve_does_not(project: Project, name: str) -> None:
    """They ask for each tool that is said to change things; without a person the answer is no."""
    turns = (
        Serve("start", {"plan": "X", "options": ["1"]}),
        Serve("follow", {"plan": "X"}),
        Serve("approve", {"plan": "X", "tree": "0" * 40}),
        Say("I may not."),
    )
    with ModelServer(Scenario(parts={PROMPT: turns})) as server:
        run_program(name, project, server, allow=())
    asked = [text for text in server.results if "the change was replaced" not in text]
    assert len(asked) == 3, server.results
    assert "approv" in asked[-1] or "permission" in asked[-1], asked
    assert project.landed() == []


@pytest.mark.parametrize("name", ["claude"], indirect=True)
def test_the_skill_is_a_command_of_the_program(project: Project, name: str) -> None:
    """The words of the skill, with the arguments, reach the model."""
    assert project.runplan("init", "--skill").code == 0
    part = "# Run a plan"
    turns = (Run("runplan status"), Say("Plan X has one phase."))
    with ModelServer(Scenario(parts={part: turns})) as server:
        output = run_program(name, project, server, allow=("--allowedTools", "Bash(runplan *)"), prompt="/run-plan X 1")
    assert "Plan X has one phase." in output
    assert any("Arguments: X 1" in seen.body.decode() for seen in server.seen if seen.part == part)
    assert any("plans/X.md" in text for text in server.results), server.results
