"""runplan doctor: what stands in the way of a run, each with its remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from runplan.errors import Exit, RunplanError, SettingsError
from runplan.ops.doctor import Findings, check

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from runplan.engine.context import RepositoryContext
    from runplan.ops.doctor import Check

HELP = "check git, settings, agents and tests; say what to mend"
EXAMPLES = """\
  runplan doctor             exit 0 when a run could start, 2 otherwise
  runplan doctor --json      the same for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    checks = _examine(Path.cwd())
    if args.json:
        print(json.dumps([to_builtins(each) for each in checks], indent=2, ensure_ascii=False))
    else:
        print("\n".join(_told(each) for each in checks))
    return Exit.DONE if all(each.ok for each in checks) else Exit.USAGE


def _examine(here: Path) -> tuple[Check, ...]:
    from runplan.agents.sandbox import obstacle
    from runplan.checks.testcommand import Prerequisites
    from runplan.engine.context import context_at, settings_note
    from runplan.engine.preflight import test_prerequisites
    from runplan.ops.discovery import look_around, role_agents, worktree_place
    from runplan.settings.load import environment
    from runplan.settings.places import worktree_root
    from runplan.settings.schema import Settings

    env = environment()
    facts = look_around(here, env=env)
    with context_at(here, env, lambda _root, _env: Settings()) as at:
        # What makes the settings unusable is one finding among others: the rest is judged by the defaults.
        at, unusable, refused = _settled(at)
        settings, root = at.settings, Path(facts.root)
        reads = not unusable and settings.run.target in facts.branches
        found = Findings(
            facts=facts,
            settings=settings,
            place=worktree_place(worktree_root(root, settings, env)),
            agents=role_agents(root, settings.agents, env=env),
            tests=test_prerequisites(at.towards("cherry-pick")) if reads else Prerequisites(),
            settings_error=unusable,
            settings_note=settings_note(at) if reads else "",
            leftovers=[] if unusable or facts.empty else _leftovers(),
            cgroup=_cgroup(env),
            obstacle=obstacle(env),
            refusal=refused or (_refusal(at) if reads else ""),
        )
    return check(found)


def _settled(at: RepositoryContext) -> tuple[RepositoryContext, str, str]:
    """The place with the settings that a start would use; why they cannot be used, and what it would refuse in them."""
    from runplan.cli.control import prepare

    try:
        at = at.with_settings()
        return prepare.with_target_settings(at, []), "", ""
    except SettingsError as error:
        return at, str(error), ""
    except RunplanError as error:
        return at.with_committed_settings(), "", str(error)


def _refusal(at: RepositoryContext) -> str:
    """What `start` would say before it looks at a plan; "" for nothing."""
    from runplan.engine.admission import require_test_command
    from runplan.engine.preflight import infrastructure, require_agents, require_landable
    from runplan.git.discovery import require_workable

    settings = at.settings
    try:
        require_landable(at)
        require_workable(at.repository, target=at.target, prefix=settings.run.branch_prefix)
        require_test_command(settings, infrastructure(at.repository.git, at.tip()))
        require_agents(at)
    except RunplanError as error:
        return str(error)
    return ""


def _cgroup(env: Mapping[str, str]) -> str:
    """Where the daemon divides its control group for dispatches, or a run in this terminal would; "" for nowhere."""
    from runplan.daemon.singleton import holder
    from runplan.settings.places import state_directory
    from runplan.supervise.cgroups import parent_of

    daemon = holder(state_directory(env))
    return parent_of(daemon.pid if daemon else "self")


def _leftovers() -> list[str]:
    """What `runplan gc` would take away; what is kept aside on purpose is no fault."""
    from runplan.engine.context import open_context
    from runplan.engine.leftovers import collect
    from runplan.git.removal import Removed

    with open_context() as at:
        found, _ = collect(at, dry_run=True)  # logs are history, and no fault
        return [one.what for one in found if isinstance(one, Removed)]


def _told(each: Check) -> str:
    line = f"{'ok  ' if each.ok else 'FAIL'}  {each.name:<12}{each.detail}"
    return line if each.ok else f"{line}\n      {'':<12}-> {each.remedy}"
