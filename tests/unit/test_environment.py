"""Variables: those an agent gets, those sent to the daemon, and those a run needs."""

import pytest
from msgspec.structs import replace

from runplan.adapters.agents.environment import (
    agent_environment,
    for_a_run,
    for_the_daemon,
    needed_by_a_run,
    own_environment,
)
from runplan.adapters.configuration.load import Layer
from runplan.domain.errors import SettingsError
from runplan.domain.settings.schema import AgentsSettings, AgentTable
from tests.support.builders import settle

GIT = {
    "GIT_AUTHOR_NAME": "runplan agent",
    "GIT_AUTHOR_EMAIL": "agent@runplan.invalid",
    "GIT_COMMITTER_NAME": "runplan agent",
    "GIT_COMMITTER_EMAIL": "agent@runplan.invalid",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "GIT_NO_REPLACE_OBJECTS": "1",
}

PASSED = """
    PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_ALL LC_CTYPE TERM TZ TMPDIR XDG_CACHE_HOME
"""
DROPPED = """
    GH_TOKEN GITHUB_TOKEN GITLAB_TOKEN SSH_AUTH_SOCK SSH_AGENT_PID GIT_ASKPASS GIT_DIR GIT_INDEX_FILE
    ANTHROPIC_API_KEY AWS_SECRET_ACCESS_KEY EDITOR PYTHONPATH LD_PRELOAD RUNPLAN_DISPATCH RUNPLAN_ROLE
    path LC XDG PATHS
"""


@pytest.mark.parametrize(
    ("name", "kept"), [(name, True) for name in PASSED.split()] + [(name, False) for name in DROPPED.split()]
)
def test_a_name_is_passed_on_only_when_it_is_on_the_list(name: str, kept: bool) -> None:
    made = agent_environment({name: "value"}, keep=(), settings={})
    assert made == (GIT | {name: "value"} if kept else GIT)


def test_names_to_keep_are_added_but_never_the_keys_to_the_forge() -> None:
    caller = {"ANTHROPIC_API_KEY": "k", "GH_TOKEN": "t", "SSH_AUTH_SOCK": "s", "SSH_ASKPASS": "a", "OTHER": "o"}
    keep = ("ANTHROPIC_API_KEY", "GH_TOKEN", "SSH_AUTH_SOCK", "SSH_ASKPASS", "ABSENT")
    made = agent_environment(caller, keep=keep, settings={})
    assert made == GIT | {"ANTHROPIC_API_KEY": "k"}


def test_variables_of_git_and_runplan_are_never_passed_on() -> None:
    for name in ("GIT_SSH_COMMAND", "GIT_CONFIG_PARAMETERS", "GIT_DIR", "RUNPLAN_RUN_LANDING", "RUNPLAN_DISPATCH"):
        assert agent_environment({name: "x"}, keep=(name,), settings={}) == GIT
        table = {"kind": "command", "argv": ["x"], "env": ["PAGER", name]}
        with pytest.raises(SettingsError, match=f"{name} is set by runplan itself"):
            settle([Layer(origin="runplan.toml", values={"agents": {"mine": table}})])


def test_settings_go_over_the_caller_but_not_over_the_identity() -> None:
    settings = {"TERM": "dumb", "NO_COLOR": "1", "GIT_AUTHOR_NAME": "someone"}
    made = agent_environment({"TERM": "xterm"}, keep=(), settings=settings)
    assert made == GIT | {"TERM": "dumb", "NO_COLOR": "1"}


def test_shim_and_spawner_get_the_variables_of_the_interpreter() -> None:
    kept = dict.fromkeys(("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "RUNPLAN_DISPATCH"), "x")
    dropped = {"GH_TOKEN": "t", "XDG_TOKEN": "t", "LC_TOKEN": "t", "RUNPLAN_WORD": "w", "GIT_DIR": "g"}
    assert own_environment({**kept, **dropped}) == kept


# --- sent to the daemon ---------------------------------------------------------------------------------


def agents(
    implementer: str = "claude",
    verifier: str = "codex",
    *tables: AgentTable,
    fallback: str = "",
    planner: str = "claude",
) -> AgentsSettings:
    roles = {"implementer": implementer, "verifier": verifier, "planner": planner, "fallback": fallback}
    return replace(AgentsSettings(tables={table.name: table for table in tables}), **roles)


TRAVELS = """
    PATH HOME USER SHELL LANG LC_ALL TZ TMPDIR XDG_CONFIG_HOME XDG_RUNTIME_DIR SSH_AUTH_SOCK GIT_ASKPASS GIT_SSH_COMMAND
    GIT_CONFIG_GLOBAL ANTHROPIC_API_KEY ANTHROPIC_BASE_URL CLAUDE_CONFIG_DIR OPENAI_API_KEY CODEX_HOME https_proxy
    VIRTUAL_ENV JAVA_HOME RUNPLAN_RUN_LANDING RUNPLAN_TESTS_COMMAND
"""
STAYS = """
    GH_TOKEN GITHUB_TOKEN GITLAB_TOKEN AWS_SECRET_ACCESS_KEY GEMINI_API_KEY DATABASE_URL GIT_DIR GIT_INDEX_FILE
    GIT_WORK_TREE LD_PRELOAD PYTHONPATH RUNPLAN_AGENT RUNPLAN_DISPATCH RUNPLAN_ROLE RUNPLAN_RUN path
"""


@pytest.mark.parametrize(
    ("name", "travels"), [(name, True) for name in TRAVELS.split()] + [(name, False) for name in STAYS.split()]
)
def test_a_variable_is_sent_only_when_it_is_on_the_list(name: str, travels: bool) -> None:
    assert for_a_run({name: "value"}, agents()) == ({name: "value"} if travels else {})


def test_every_agent_of_the_run_gets_its_own_names() -> None:
    local = AgentTable(name="local", kind="command", argv=("x",), env=("LOCAL_KEY",))
    caller = {"GEMINI_API_KEY": "g", "LOCAL_KEY": "l", "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    sent = for_a_run(caller, agents("local", "script", local, fallback="gemini"))
    assert sent == {"GEMINI_API_KEY": "g", "LOCAL_KEY": "l"}


@pytest.mark.parametrize("name", ["PATH", "SSH_AUTH_SOCK", "PYTHONPATH"])
def test_a_daemon_is_started_without_keys_and_settings(name: str) -> None:
    dropped = dict.fromkeys(("ANTHROPIC_API_KEY", "RUNPLAN_RUN_LANDING", "GH_TOKEN"), "x")
    assert for_the_daemon({name: "x", **dropped}) == {name: "x"}


def test_only_variables_that_were_sent_are_needed() -> None:
    sent = {"ANTHROPIC_API_KEY": "a", "PATH": "p", "SSH_AUTH_SOCK": "s", "OPENAI_API_KEY": ""}
    assert needed_by_a_run(sent, agents(), pushes=False) == ("ANTHROPIC_API_KEY",)
    assert needed_by_a_run(sent, agents(), pushes=True) == ("ANTHROPIC_API_KEY", "SSH_AUTH_SOCK")
    assert needed_by_a_run({}, agents(), pushes=True) == ()


def test_variables_named_by_a_table_are_needed() -> None:
    local = AgentTable(name="local", kind="command", argv=("x",), env=("LOCAL_KEY", "OTHER"))
    assert needed_by_a_run({"LOCAL_KEY": "l"}, agents("local", "local", local), pushes=False) == ("LOCAL_KEY",)


def test_variables_of_the_checks_are_sent_and_needed() -> None:
    caller = {"DATABASE_URL": "postgres://x", "GITHUB_TOKEN": "t", "OTHER": "o"}
    sent = for_a_run(caller, agents(), checks=("DATABASE_URL",))
    assert sent == {"DATABASE_URL": "postgres://x"}
    assert needed_by_a_run(sent, agents(), pushes=False, checks=("DATABASE_URL", "UNSET")) == ("DATABASE_URL",)


def test_settings_given_as_variables_are_kept_with_the_run_and_so_not_needed() -> None:
    sent = {"RUNPLAN_LIMITS_WALL": "1h", "RUNPLAN_RUN_TARGET": "dev", "RUNPLAN_RUN": "r1"}
    assert needed_by_a_run(sent, agents(), pushes=False) == ()


def test_a_run_sends_no_planner_and_needs_none_of_its_keys() -> None:
    caller = {"ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    local = AgentTable(name="local", kind="command", argv=("x",))
    cast = agents("local", "codex", local, planner="claude")
    assert for_a_run(caller, cast) == {"OPENAI_API_KEY": "o"}
    assert needed_by_a_run(caller, cast, pushes=False) == ("OPENAI_API_KEY",)
