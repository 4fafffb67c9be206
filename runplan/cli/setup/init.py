"""runplan init: write a runplan.toml that fits the repository."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from runplan.errors import Exit, RefusedEarly
from runplan.settings.text import init_text
from runplan.text import committing

if TYPE_CHECKING:
    import argparse

    from runplan.ops.discovery import Facts

EXAMPLES = """\
  runplan init        finds the default branch, the test command and the agents; never overwrites"""


_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or use any command as an agent: see [agents.local] below.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # it takes none


def run(_args: argparse.Namespace) -> Exit:
    from runplan.engine.context import refuse_under_agent
    from runplan.ops.discovery import look_around
    from runplan.settings.load import environment
    from runplan.settings.places import repository_file

    refuse_under_agent("init")
    facts = look_around(Path.cwd(), env=environment())
    root = Path(facts.root)
    if (there := repository_file(root)) is not None:
        raise _already(there)
    path = root / "runplan.toml"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(settings_text(facts))
    except FileExistsError:
        raise _already(path) from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None
    print(_summary(facts, path))
    return Exit.DONE


def _already(path: Path) -> RefusedEarly:
    return RefusedEarly(f"{path} exists and was not changed; see runplan config")


def settings_text(facts: Facts) -> str:
    """The runplan.toml that fits the repository; keys for which nothing was found are commented out."""
    found: dict[str, object] = dict(_roles(facts.installed))
    if facts.default_branch:
        found["run.target"] = facts.default_branch
    if facts.remotes and "origin" not in facts.remotes:
        found["run.remote"] = facts.remotes[0]
    if facts.tests.command:
        found["tests.command"] = facts.tests.command
    return init_text(found, agents_note="" if facts.installed else _NO_AGENT.format(known=", ".join(facts.known)))


def _roles(installed: tuple[str, ...]) -> dict[str, str]:
    """The agent of each role. The verifier is another agent than the implementer if two are installed."""
    if not installed:
        return {}
    first, second = installed[0], installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def _summary(facts: Facts, path: Path) -> str:
    roles = _roles(facts.installed)
    agents = f"{roles['agents.implementer']} implements, {roles['agents.verifier']} verifies" if roles else ""
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("tests", facts.tests.command or "no test command found; set tests.command"),
        ("agents", agents or "none of the known agents is installed; see [agents] in the file for any command"),
        ("wrote", str(path)),
    )
    table = "\n".join(f"{name:<12}{value}" for name, value in rows)
    return f"{table}\n\nNext: runplan doctor; then commit it: {committing(path.name, 'Settings of runplan')}"
