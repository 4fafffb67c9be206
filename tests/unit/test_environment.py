"""What an agent sees of the caller's environment."""

from __future__ import annotations

import pytest

from runplan.agents.environment import agent_environment, own_environment
from runplan.errors import SettingsError
from runplan.settings.load import Layer
from tests.support.settings import settle

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
    caller = {"ANTHROPIC_API_KEY": "k", "GH_TOKEN": "t", "SSH_AUTH_SOCK": "s", "OTHER": "o"}

    made = agent_environment(caller, keep=("ANTHROPIC_API_KEY", "GH_TOKEN", "SSH_AUTH_SOCK", "ABSENT"), settings={})

    assert made == GIT | {"ANTHROPIC_API_KEY": "k"}


def test_what_git_and_runplan_obey_is_never_passed_on_and_refused_where_it_is_asked_for() -> None:
    for name in ("GIT_SSH_COMMAND", "GIT_CONFIG_PARAMETERS", "GIT_DIR", "RUNPLAN_RUN_LANDING", "RUNPLAN_DISPATCH"):
        assert agent_environment({name: "x"}, keep=(name,), settings={}) == GIT
        table = {"kind": "command", "argv": ["x"], "env": ["PAGER", name]}
        with pytest.raises(SettingsError, match=f"{name} cannot be passed on: runplan sets"):
            settle([Layer(origin="runplan.toml", values={"agents": {"mine": table}})])


def test_settings_go_over_the_caller_but_not_over_the_identity() -> None:
    made = agent_environment(
        {"TERM": "xterm"}, keep=(), settings={"TERM": "dumb", "NO_COLOR": "1", "GIT_AUTHOR_NAME": "someone"}
    )

    assert made == GIT | {"TERM": "dumb", "NO_COLOR": "1"}


def test_our_own_processes_beside_an_agent_see_what_an_interpreter_needs() -> None:
    kept = dict.fromkeys(("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "PYTHONPATH", "RUNPLAN_DISPATCH"), "x")
    assert (
        own_environment(
            {**kept, "GH_TOKEN": "t", "XDG_TOKEN": "t", "LC_TOKEN": "t", "RUNPLAN_WORD": "w", "GIT_DIR": "g"}
        )
        == kept
    )
