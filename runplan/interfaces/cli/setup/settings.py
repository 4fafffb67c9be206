"""runplan init and config: write a runplan.toml that fits the repository, and print the settings."""

from __future__ import annotations

import argparse

from runplan.app.operations.model import Caller
from runplan.app.operations.upkeep import SKILL, Initialized, choose_agents, init, read_settings
from runplan.app.views.inspection import Facts
from runplan.domain.decoding import as_json
from runplan.domain.names import PLAN_FILE
from runplan.domain.text import command, committing, toml_value
from runplan.interfaces.cli.terminal import say


def run_config(args: argparse.Namespace) -> None:
    settings = read_settings(Caller(say=say))
    if args.json:
        print(as_json(settings))
        return
    shown = [(setting.key, toml_value(setting.value), setting.origin) for setting in settings]
    keys, values, _ = (max(map(len, column)) for column in zip(*shown, strict=True))
    for key, value, origin in shown:
        print(f"{key:<{keys}}  {value:<{values}}  {origin}")


def run_init(args: argparse.Namespace) -> None:
    written = init(Caller(), skill=args.skill)
    if written.facts is not None:
        print(_describe_settings(written, written.facts))
        return
    commit = committing(SKILL, "Skill for runplan")
    print(f"wrote {written.file}\n\nNext: /run-plan PLAN in your agent; then commit it: {commit}")


def _describe_settings(written: Initialized, facts: Facts) -> str:
    roles = choose_agents(facts.installed)
    agents = f"{roles['agents.implementer']} implements, {roles['agents.verifier']} verifies" if roles else ""
    identity = facts.identity and f"{facts.identity.name} <{facts.identity.email}>"
    specs = (path.removesuffix(f"/{PLAN_FILE}") for path in written.specs)
    tools = facts.toolchain
    rows = (
        ("repository", facts.root),
        ("target", facts.default_branch or "no branch yet"),
        ("identity", identity or "git has no user.name and user.email"),
        ("set-up", tools.setup or "none; a fresh worktree has only committed files"),
        ("tests", tools.tests or "no test command found; set tests.command"),
        *([("", written.unnamed)] if written.unnamed else []),
        ("agents", agents or "none of the known agents is installed; name any command under [agents] in the file"),
        ("sandbox", written.sandbox),
        *(("spec", command("runplan", "start", folder, "finish", "auto")) for folder in specs),
        ("wrote", str(written.file)),
    )
    table = "\n".join(f"{name:<12}{value}".replace("\n", f"\n{'':<12}") for name, value in rows)
    return f"{table}\n\nNext: runplan doctor; then commit it: {committing(written.file.name, 'Settings of runplan')}"
