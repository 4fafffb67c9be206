"""runplan init and config: write a runplan.toml that fits the repository, and print the settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.cli.terminal import as_json, json_argument
from runplan.errors import Exit, RefusedEarly
from runplan.plan.specs import FOLDERS, PLAN_FILE
from runplan.settings.schema import KEYS, SECTIONS, USER_SECTIONS
from runplan.text import command, committing

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from runplan.cli.setup.discovery import Facts
    from runplan.settings.schema import Key

EXAMPLES = {
    "init": "  runplan init        finds the default branch, the test command and the agents; never overwrites",
    "config": """\
  runplan config                              every key, value and origin
  RUNPLAN_RUN_LANDING=pr runplan config       the effect of a variable
  runplan config --json                       the same for a script""",
}
config_arguments = json_argument
_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or use any command as an agent: see [agents.local] below.
"""


def run_config(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, settings_note

    with open_context() as at:
        loaded = at.committed_settings()
        if note := settings_note(at):
            print(f"runplan: {note}", file=sys.stderr)
    if args.json:
        print(
            as_json(
                [{"key": key, "value": value, "origin": loaded.origins[key]} for key, value in loaded.values.items()]
            )
        )
        return Exit.DONE
    shown = {key: toml(value) for key, value in loaded.values.items()}
    keys, values = max(map(len, shown)), max(map(len, shown.values()))
    for key, value in shown.items():
        print(f"{key:<{keys}}  {value:<{values}}  {loaded.origins[key]}")
    return Exit.DONE


def run_init(_args: argparse.Namespace) -> Exit:
    from runplan.cli.setup.discovery import look_around
    from runplan.engine.context import refuse_under_agent
    from runplan.settings.load import environment
    from runplan.settings.places import repository_file

    refuse_under_agent("init")
    facts = look_around(Path.cwd(), env=environment())
    root = Path(facts.root)
    path = repository_file(root) or root / "runplan.toml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_text(facts))
    except FileExistsError:
        raise RefusedEarly(f"{path} exists and was not changed; see runplan config") from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None
    print(_summary(facts, path))
    return Exit.DONE


def settings_text(facts: Facts) -> str:
    """The runplan.toml that fits the repository; keys for which nothing was found are commented out."""
    found: dict[str, object] = dict(_roles(facts.installed))
    if facts.default_branch:
        found["run.target"] = facts.default_branch
    if facts.remotes and "origin" not in facts.remotes:
        found["run.remote"] = facts.remotes[0]
    if facts.tests.command:
        found["tests.command"] = facts.tests.command
    return _document(_INIT_HEAD, found, "" if facts.installed else _NO_AGENT.format(known=", ".join(facts.known)))


def _roles(installed: tuple[str, ...]) -> dict[str, str]:
    """The agent of each role. The verifier is another agent than the implementer if two are installed."""
    if not installed:
        return {}
    first, second = installed[0], installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def _specs(facts: Facts) -> list[tuple[str, str]]:
    """The spec folders that a start accepts as plans."""
    root = Path(facts.root)
    found = [file.parent.relative_to(root) for place in FOLDERS for file in sorted(root.glob(f"{place}/*/{PLAN_FILE}"))]
    return [("spec", command("runplan", "start", str(folder), "finish", "auto")) for folder in found]


def _summary(facts: Facts, path: Path) -> str:
    roles = _roles(facts.installed)
    agents = f"{roles['agents.implementer']} implements, {roles['agents.verifier']} verifies" if roles else ""
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("tests", facts.tests.command or "no test command found; set tests.command"),
        ("agents", agents or "none of the known agents is installed; name any command under [agents] in the file"),
        *_specs(facts),
        ("wrote", str(path)),
    )
    table = "\n".join(f"{name:<12}{value}" for name, value in rows)
    return f"{table}\n\nNext: runplan doctor; then commit it: {committing(path.name, 'Settings of runplan')}"


# --- settings as TOML ---------------------------------------------------------------------------------------

_COLUMN = 34  # where the reasons begin

_EXAMPLES = {
    "agents": """
# Any command can be an agent; name it above.
# [agents.local]
# kind = "command"
# argv = ["python3", "tools/agent.py"]
""",
    "tests": """
# Further commands that have to pass on every change; those with parallel = true run at the same time.
# [gates.lint]
# command = "ruff check"
# timeout = "30m"
# parallel = true
""",
}

_DEFAULTS_HEAD = """\
# Every setting of runplan with its default. Copy the lines that you want to change into runplan.toml.
"""

_USER_HEAD = """\
# In your user file only; in a repository's file they are an error.
"""

_INIT_HEAD = """\
# Settings of runplan for this repository, written by `runplan init`.
# Commented lines show the default. `runplan config` prints every value and its origin.
"""


def toml(value: object) -> str:
    """One value as TOML writes it (a JSON string is a TOML basic string)."""
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(toml(part) for part in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def defaults_text() -> str:
    own = {key.path: key.written for key in KEYS if key.section not in USER_SECTIONS}
    user = [f"# [{section}]\n{_lines(section, {})}" for section in USER_SECTIONS]
    return "\n".join((_document(_DEFAULTS_HEAD, own), _USER_HEAD, *user))


def _document(head: str, values: Mapping[str, object], agents_note: str = "") -> str:
    """A runplan.toml with these values; all other keys are commented out."""
    parts = [head]
    for section in SECTIONS:
        if section not in USER_SECTIONS and (lines := _lines(section, values)):
            note = agents_note if section == "agents" else ""
            parts.append(f"[{section}]\n{note}{lines}{_EXAMPLES.get(section, '')}")
    return "\n".join(parts)


def _lines(section: str, values: Mapping[str, object]) -> str:
    return "".join(_line(key, values) for key in KEYS if key.section == section)


def _line(key: Key, values: Mapping[str, object]) -> str:
    comment = "" if key.path in values else "# "
    written = f"{comment}{key.name} = {toml(values.get(key.path, key.written))}"
    return f"{written:<{_COLUMN}}  # {key.why}\n"
