"""runplan init and config: write a runplan.toml that fits the repository, and print the settings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from runplan.adapters.configuration.load import environment
from runplan.adapters.configuration.places import repository_file
from runplan.adapters.store.files import LARGEST, read_bounded
from runplan.adapters.store.location import hide_password
from runplan.app.health import check_sandbox
from runplan.app.views.inspection import Facts, inspect_repository, known_agents
from runplan.domain.checks.runners.naming import foresee_unnamed
from runplan.domain.errors import RefusedEarly
from runplan.domain.names import PLAN_FILE
from runplan.domain.settings.schema import KEYS, SECTIONS, USER_SECTIONS, Settings
from runplan.domain.text import as_json, command, committing, toml_value
from runplan.engine.loop.context import context_at, open_context, settings_note, spec_plans

#: Claude Code and opencode read it there.
SKILL = ".claude/skills/run-plan/SKILL.md"

_NO_AGENT = """\
# None of the known agents ({known}) was found on PATH.
# Install one, or use any command as an agent: see [agents.local] below.
"""


def run_config(args: argparse.Namespace) -> None:
    with open_context() as context:
        loaded = context.committed_settings()
        if note := settings_note(context):
            print(f"runplan: {note}", file=sys.stderr)
    redacted = {key: _redact_value(key, value) for key, value in loaded.values.items()}
    if args.json:
        print(as_json([{"key": key, "value": value, "origin": loaded.origins[key]} for key, value in redacted.items()]))
        return
    shown = {key: toml_value(value) for key, value in redacted.items()}
    keys = max(map(len, shown))
    values = max(map(len, shown.values()))
    for key, value in shown.items():
        print(f"{key:<{keys}}  {value:<{values}}  {loaded.origins[key]}")


def _redact_value(key: str, value: object) -> object:
    """The value as it is shown: addresses without the parts that may be secret."""
    if key == "notify.webhook" and value:
        address = urlsplit(str(value))
        return f"{address.scheme}://{address.hostname}/…"
    if key == "fleet.dsn":
        return hide_password(str(value))
    return [_redact_target(entry) for entry in value] if key == "notify.urls" and isinstance(value, list) else value


def _redact_target(entry: object) -> object:
    """Only the scheme is shown: the host in tgram:// or ntfy:// is a secret."""
    if isinstance(entry, dict):
        return entry | {"url": _redact_target(entry["url"])}
    return f"{str(entry).partition(':')[0]}://…"


def run_init(args: argparse.Namespace) -> None:
    with context_at(Path.cwd(), environment(), lambda _root, _env: Settings()) as context:
        if args.skill:
            path = context.root / SKILL
            _create_file(path, _read_shipped_skill())
            commit = committing(SKILL, "Skill for runplan")
            print(f"wrote {path}\n\nNext: /run-plan PLAN in your agent; then commit it: {commit}")
            return
        facts = inspect_repository(context)
        path = repository_file(context.root) or context.root / "runplan.toml"
        _create_file(path, settings_text(facts))
        print(_describe_settings(facts, path, sandbox=check_sandbox(context).detail))


def _create_file(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RefusedEarly(f"{path} exists and was not changed; move it away to have it written again") from None
    except OSError as error:
        raise RefusedEarly(f"{path}: cannot be written: {error.strerror}") from None


def _read_shipped_skill() -> str:
    package = Path(__file__).parents[3]
    skills = (folder / "config" / SKILL.removeprefix(".claude/") for folder in (package, package.parent))
    return next(path for path in skills if path.is_file()).read_text(encoding="utf-8")


def settings_text(facts: Facts) -> str:
    """The runplan.toml that fits the repository; keys for which nothing was found are commented out."""
    values: dict[str, object] = dict(_choose_agents(facts.installed))
    if facts.default_branch:
        values["run.target"] = facts.default_branch
    if facts.remotes and "origin" not in facts.remotes:
        values["run.remote"] = facts.remotes[0]
    if facts.toolchain.setup:
        values["run.setup"] = facts.toolchain.setup
    if facts.toolchain.tests:
        values["tests.command"] = facts.toolchain.tests
    values |= {f"tests.{key}": found for key in ("junit", "paths") if (found := getattr(facts.toolchain, key))}
    if facts.variables and (facts.toolchain.setup or facts.toolchain.tests):
        values["tests.env"] = facts.variables
    return settings_document(
        _INIT_HEAD, values, "" if facts.installed else _NO_AGENT.format(known=", ".join(known_agents()))
    )


def _choose_agents(installed: tuple[str, ...]) -> dict[str, str]:
    """The agent of each role. The verifier is another agent than the implementer if two are installed."""
    if not installed:
        return {}
    first = installed[0]
    second = installed[min(1, len(installed) - 1)]
    return {"agents.implementer": first, "agents.verifier": second, "agents.planner": first}


def _describe_settings(facts: Facts, path: Path, sandbox: str) -> str:
    roles = _choose_agents(facts.installed)
    agents = f"{roles['agents.implementer']} implements, {roles['agents.verifier']} verifies" if roles else ""
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    specs = (path.removesuffix(f"/{PLAN_FILE}") for path in spec_plans(Path(facts.root)))
    tools = facts.toolchain
    root = Path(facts.root)
    unnamed = foresee_unnamed(tools.tests, tools.junit, lambda name: read_bounded(root / name, largest=LARGEST))
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("set-up", tools.setup or "none; a fresh worktree has only committed files"),
        ("tests", tools.tests or "no test command found; set tests.command"),
        *([("", unnamed)] if unnamed else []),
        ("agents", agents or "none of the known agents is installed; name any command under [agents] in the file"),
        ("sandbox", sandbox),
        *(("spec", command("runplan", "start", folder, "finish", "auto")) for folder in specs),
        ("wrote", str(path)),
    )
    table = "\n".join(f"{name:<12}{value}".replace("\n", f"\n{'':<12}") for name, value in rows)
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

_INIT_HEAD = """\
# Settings of runplan for this repository, written by `runplan init`.
# Commented lines show the default. `runplan config` prints every value and its origin.
"""


def settings_document(head: str, values: Mapping[str, object], agents_note: str = "") -> str:
    """A runplan.toml with these values; all other keys are commented out."""
    parts = [head]
    for section in SECTIONS:
        if section not in USER_SECTIONS and (lines := keys_text(section, values)):
            note = agents_note if section == "agents" else ""
            parts.append(f"[{section}]\n{note}{lines}{_EXAMPLES.get(section, '')}")
    return "\n".join(parts)


def keys_text(section: str, values: Mapping[str, object]) -> str:
    lines = []
    for key in (key for key in KEYS if key.section == section):
        comment = "" if key.path in values else "# "
        written = f"{comment}{key.name} = {toml_value(values.get(key.path, key.written))}"
        lines.append(f"{written:<{_COLUMN}}  # {key.why}\n")
    return "".join(lines)
