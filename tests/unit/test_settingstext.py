"""Settings as text: what is written can be read back, and the shipped file equals the code."""

import tomllib
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.configuration.load import Layer
from runplan.app.operations.upkeep import keys_text, settings_document, settings_text
from runplan.app.views.inspection import RepositoryFacts
from runplan.domain.decoding import to_json
from runplan.domain.gitfacts import Identity
from runplan.domain.run.events import RunStarted
from runplan.domain.run.recorded import from_json
from runplan.domain.settings.schema import KEYS, USER_SECTIONS, NotifySettings
from runplan.domain.settings.toolchain import Toolchain, detect
from runplan.domain.text import toml_value
from tests.support.builders import settle, started

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "config" / "runplan.toml"
DEFAULTS = """\
# Every setting of runplan with its default. Copy the lines that you want to change into runplan.toml.
"""
USER = """\
# In your user file only; in a repository's file they are an error.
"""
FOUND = RepositoryFacts(
    root="/home/uma/app",
    git_version="git version 2.39.5",
    default_branch="trunk",
    identity=Identity(name="Uma", email="uma@example.org"),
    remotes=("upstream", "fork"),
    installed=("codex", "aider"),
    variables=("HTTPS_PROXY",),
    toolchain=detect(["Makefile", ".gitmodules"], {"Makefile": "test:\n\ttrue\n"}),
)


def defaults_text() -> str:
    """The text of config/runplan.toml."""
    own = {key.path: key.written for key in KEYS if key.section not in USER_SECTIONS}
    user = [f"# [{section}]\n{keys_text(section, {})}" for section in USER_SECTIONS]
    return "\n".join((settings_document(DEFAULTS, own), USER, *user))


def test_the_shipped_settings_file_is_the_one_the_code_writes() -> None:
    """Update it: python -c 'from tests.unit.test_settingstext import *; SHIPPED.write_text(defaults_text())'"""
    assert SHIPPED.read_text(encoding="utf-8") == defaults_text()


def test_the_shipped_settings_file_sets_every_key_to_its_default_and_says_why() -> None:
    values = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
    own = {key.path for key in KEYS if key.section not in USER_SECTIONS}
    tables = {**values, "agents.container": values["agents"].pop("container")}
    assert {f"{section}.{name}" for section, table in tables.items() for name in table} == own
    values["agents"]["container"] = tables["agents.container"]
    assert settle([Layer(origin="shipped", values=values)]).settings == settle([]).settings
    assert all(f"# {key.why}\n" in defaults_text() for key in KEYS)


def test_init_sets_what_was_found_and_leaves_the_rest_commented() -> None:
    text = settings_text(FOUND)
    assert tomllib.loads(text) == {
        "run": {"target": "trunk", "remote": "upstream", "setup": "git submodule update --init --recursive"},
        "agents": {"implementer": "codex", "verifier": "aider", "planner": "codex", "container": {}},
        "tests": {"command": "make test", "env": ["HTTPS_PROXY"]},
        "try": {},
        "limits": {},
        "pull_request": {},
        "issues": {},
        "plan": {},
        "paths": {},
    }
    assert '# landing = "cherry-pick"' in text
    assert "sign off changes" not in text
    assert '# sign_off = ["web/**"]\n' in settings_text(replace(FOUND, interfaces=("web/**",)))
    settle([Layer(origin="runplan.toml", values=tomllib.loads(text))])


def test_init_text_means_the_defaults_when_its_comments_are_taken_away() -> None:
    """Every commented line is a line that could be set."""
    lines = [
        line.removeprefix("# ") if line.startswith("# ") and " = " in line and "  # " in line else line
        for line in settings_text(replace(FOUND, installed=())).splitlines()
    ]
    values = tomllib.loads("\n".join(lines))
    assert settle([Layer(origin="all", values=values)]).settings.limits == settle([]).settings.limits
    assert values["agents"]["implementer"] == "claude"


def test_one_agent_alone_plays_every_role() -> None:
    agents = tomllib.loads(settings_text(replace(FOUND, installed=("claude",))))["agents"]
    assert {agents[role] for role in ("implementer", "verifier", "planner")} == {"claude"}


def test_without_any_agent_init_says_so_and_shows_a_command() -> None:
    text = settings_text(replace(FOUND, installed=()))
    assert tomllib.loads(text)["agents"] == {"container": {}}
    assert "None of the known agents (claude, codex," in text
    assert '# kind = "command"' in text
    assert '# implementer = "claude"' in text


def test_init_leaves_missing_values_commented() -> None:
    nothing = replace(FOUND, default_branch="", remotes=(), installed=(), toolchain=Toolchain())
    values = tomllib.loads(settings_text(nothing))
    assert values.pop("agents") == {"container": {}}
    assert not any(values.values())


@pytest.mark.parametrize("value", ['a"b\\c\n\x7fä', True, 0, 0.5, "", ["a", "b c"], []])
def test_any_value_survives_being_written(value: object) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value


def test_settings_kept_with_a_run_are_restored_without_those_of_the_user() -> None:
    values = {
        "run": {"copy": [".env"], "parallel": 3},
        "agents": {"verifier": "own", "own": {"kind": "command", "argv": ["judge", "-v"], "env": ["KEY"]}},
        "tests": {"command": "make test", "timeout": "5m", "env": ["JAVA_HOME"]},
        "notify": {"webhook": "https://example.org/secret"},
    }
    settings = settle([Layer(origin="all", values=values)]).settings
    text = to_json(replace(started(), settings=settings.of_project))
    assert "secret" not in text
    begun = from_json("RunStarted", text)
    assert isinstance(begun, RunStarted)
    assert begun.kept == replace(settings, notify=NotifySettings())
