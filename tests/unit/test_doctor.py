"""The doctor's judgement: each fault by name, with its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.agents.adapter import Account
from runplan.agents.sandbox import Obstacle
from runplan.checks.testcommand import Infrastructure, Prerequisites
from runplan.cli.setup.discovery import Facts, RoleAgent
from runplan.cli.setup.doctor import Check, Findings, check
from runplan.gitfacts import Identity
from runplan.settings.schema import AgentsSettings, CheckSettings, LimitSettings, RunSettings, Settings

FACTS = Facts(
    root="/home/uma/app",
    git_version=(2, 39, 5),
    branches=("main", "next"),
    default_branch="main",
    identity=Identity(name="Uma", email="uma@example.org"),
    signs=False,
    remotes=("origin",),
    known=("claude",),
    installed=("claude",),
    tests=Infrastructure(found="Makefile", command="make test"),
)
TESTED = Settings(tests=CheckSettings(command="make test"))
NODE = Prerequisites(setup=("node_modules", "npm ci"))
OBSTACLE = Obstacle(why="no", remedy="apt install it")


def agent(**fields: Any) -> RoleAgent:
    default = RoleAgent(role="verifier", agent="codex", program="codex", found=True)
    return replace(default, **fields)


HEALTHY = Findings(
    facts=FACTS,
    settings=TESTED,
    worktrees=Path("/home/uma/worktrees"),
    is_writable=True,
    agents=[agent(role="implementer", agent="claude", program="claude")],
)


def found_with(**fields: Any) -> Findings:
    facts = {name: fields.pop(name) for name in Facts.__struct_fields__ if name in fields and name != "tests"}
    return replace(HEALTHY, **{"facts": replace(FACTS, **facts)} | fields)


def faults(found: Findings) -> list[Check]:
    checks = check(found)
    assert all(bool(each.remedy) is not each.ok for each in checks)
    return [each for each in checks if not each.ok]


def account(**fields: str) -> Account:
    return Account(**{"login": "", "address": "", "model": "", "bill": ""} | fields)


def test_a_healthy_repository_has_no_fault() -> None:
    assert faults(HEALTHY) == []
    names = [each.name for each in check(HEALTHY)]
    assert names[:5] == ["git", "settings", "identity", "target", "worktrees"]
    assert names[5:] == ["implementer", "prompts", "sandbox", "tests", "setup", "start"]


@pytest.mark.parametrize(
    ("fields", "name", "detail", "remedy"),
    [
        ({"git_version": (2, 37, 9)}, "git", "version 2.37.9", "install git 2.38 or newer"),
        (
            {"identity": None},
            *("identity", "git has no user.name and user.email"),
            'git config user.name "Your Name" && git config user.email you@example.org',
        ),
        ({"branches": ()}, "target", "the repository has no commit yet", "git commit --allow-empty -m Start"),
        (
            {"branches": ("master",), "default_branch": "master"},
            *("target", "there is no branch main"),
            'set run.target = "master" in runplan.toml, or create it: git branch main',
        ),
        (
            {"settings_error": "runplan.toml: invalid TOML: Invalid value"},
            *("settings", "runplan.toml: invalid TOML: Invalid value", "correct it; see runplan config"),
        ),
        (
            {"worktrees": Path("/nope"), "is_writable": False},
            *("worktrees", "/nope is not writable", "set run.worktrees to a writable directory"),
        ),
        (
            {"settings": Settings()},
            *("tests", "there are tests (Makefile) but no test command"),
            'add to runplan.toml, under [tests]: command = "make test"',
        ),
        (
            {"tests": Prerequisites(missing_file="Makefile")},
            *("tests", "`make test` needs Makefile, which main does not have"),
            "commit Makefile on main, or set tests.command to another command",
        ),
        (
            {"tests": Prerequisites(missing_program="make")},
            *("tests", "`make test`: make was not found"),
            "install make, or set tests.command to another command",
        ),
        (
            {"tests": NODE},
            *("setup", "a fresh worktree has no node_modules, and run.setup is empty"),
            'add to runplan.toml, under [run]: setup = "npm ci"',
        ),
        (
            {"settings": replace(TESTED, agents=AgentsSettings(sandbox="bwrap")), "obstacle": OBSTACLE},
            *("sandbox", "bubblewrap does not work: no", 'apt install it, or set agents.sandbox = "auto"'),
        ),
        (
            {"refusal": "landing by pr is not in this version of runplan; use cherry-pick or direct"},
            *("start", "landing by pr is not in this version of runplan", "use cherry-pick or direct"),
        ),
    ],
)
def test_a_fault_is_named_with_its_remedy(fields: dict[str, Any], name: str, detail: str, remedy: str) -> None:
    assert faults(found_with(**fields)) == [Check(name, False, detail, remedy)]


@pytest.mark.parametrize(
    ("fields", "detail", "remedy"),
    [
        (
            {"agent": "local", "program": "tools/agent", "found": False},
            *("local: tools/agent was not found", "install tools/agent, or name another agent: agents.verifier"),
        ),
        (
            {"agent": "judge", "program": "judge.toml", "found": False, "file": True},
            *("judge: there is no file judge.toml", "write it, or name another agent: agents.verifier"),
        ),
        (
            {"lacks": "no key and no login was found"},
            "codex: no key and no login was found",
            "run codex once and sign in, or set its key in this terminal",
        ),
        (
            {"agent": "mini", "account": account(lacks="has no model")},
            *("mini has no model", 'set model = "..." under [agents.mini] in runplan.toml'),
        ),
        (
            {"account": account(lacks="needs K", remedy="set K in this terminal")},
            "codex needs K",
            "set K in this terminal",
        ),
    ],
)
def test_an_agent_that_cannot_run_is_named_with_its_role(fields: dict[str, Any], detail: str, remedy: str) -> None:
    assert faults(found_with(agents=[agent(**fields)])) == [Check("verifier", False, detail, remedy)]


def test_an_agent_without_costs_is_a_fault_where_limits_are_in_dollars() -> None:
    in_dollars = replace(TESTED, limits=LimitSettings(usd=1.0))
    (fault,) = faults(found_with(settings=in_dollars, agents=[agent(unwatched=True)]))
    assert fault.detail == "codex reports no costs, and [limits] are in dollars"


def test_start_is_checked_last() -> None:
    """A refusal that follows from another fault is not repeated."""
    assert [each.name for each in faults(found_with(identity=None, refusal="the same"))] == ["identity"]


@pytest.mark.parametrize(
    ("fields", "name", "detail"),
    [
        ({"git_version": (2, 38)}, "git", "version 2.38"),
        ({"signs": True}, "identity", "Uma <uma@example.org>, commits are signed"),
        ({"agents": [agent(version="0.166.0")]}, "verifier", "codex (codex 0.166.0)"),
        (
            {"agents": [agent(account=account(login="K", address="https://gw", model="big", bill="K, by use"))]},
            *("verifier", "codex (codex); login K; address https://gw; model big; billed to K, by use"),
        ),
        (
            {
                "settings": Settings(),
                "facts": replace(FACTS, tests=Infrastructure(found="", command="")),
            },
            *("tests", "none found: gates are skipped, and every report says so"),
        ),
        ({"tests": NODE, "settings": replace(TESTED, run=RunSettings(setup="npm ci"))}, "setup", "npm ci"),
        ({}, "sandbox", "bubblewrap works"),
        (
            {"settings": replace(TESTED, agents=AgentsSettings(sandbox="none"))},
            *("sandbox", 'bubblewrap works, but agents.sandbox = "none"'),
        ),
        (
            {"obstacle": OBSTACLE},
            *("sandbox", "bubblewrap does not work: no; agents run without it. To get it: apt install it"),
        ),
    ],
)
def test_a_check_that_passes_says_what_it_saw(fields: dict[str, Any], name: str, detail: str) -> None:
    (shown,) = [each for each in check(found_with(**fields)) if each.name == name]
    assert (shown.ok, shown.detail) == (True, detail)
