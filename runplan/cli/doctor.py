"""runplan doctor: what stands in the way of a run, each with its remedy."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from runplan.core.config import settle
from runplan.core.doctor import check
from runplan.core.errors import Exit, SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from runplan.core.doctor import Check

HELP = "check git, settings, agents and tests; say what to mend"
EXAMPLES = """\
  runplan doctor             exit 0 when a run could start, 2 otherwise
  runplan doctor --json      the same for a script"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> Exit:
    checks = _examine(Path.cwd())
    if args.json:
        print(json.dumps([asdict(each) for each in checks], indent=2, ensure_ascii=False))
    else:
        print("\n".join(_told(each) for each in checks))
    return Exit.DONE if all(each.ok for each in checks) else Exit.USAGE


def _examine(here: Path) -> tuple[Check, ...]:
    from runplan.adapters.discovery import cast, look_around, worktree_place
    from runplan.adapters.settings import environment, kinds, load, worktree_root

    env = environment()
    facts = look_around(here, env=env)
    root, unusable = Path(facts.root), ""
    try:
        settings = load(root, env=env, flags={}).settings
    except SettingsError as error:  # one finding among others: the rest is judged by the defaults
        settings, unusable = settle([], kinds=kinds()).settings, str(error)
    return check(
        facts,
        settings,
        place=worktree_place(worktree_root(root, settings, env)),
        cast=cast(root, settings.agents, env=env),
        unusable=unusable,
        leftovers=[] if unusable or facts.empty else _leftovers(),
        cgroup=_cgroup(env),
    )


def _cgroup(env: Mapping[str, str]) -> str:
    """Where the daemon divides its control group for dispatches, or a run in this terminal would; "" for nowhere."""
    from runplan.adapters.cgroups import home
    from runplan.adapters.places import state_directory
    from runplan.adapters.singleton import holder

    daemon = holder(state_directory(env))
    return home(daemon.pid if daemon else None)


def _leftovers() -> list[str]:
    """What `runplan gc` would take away; what is kept aside on purpose is no fault."""
    from runplan.core.gitfacts import Removed
    from runplan.wiring.here import here
    from runplan.wiring.leftovers import collect

    with here() as at:
        found, _ = collect(at, dry_run=True)  # logs are history, and no fault
        return [one.what for one in found if isinstance(one, Removed)]


def _told(each: Check) -> str:
    line = f"{'ok  ' if each.ok else 'FAIL'}  {each.name:<12}{each.detail}"
    return line if each.ok else f"{line}\n      {'':<12}-> {each.remedy}"
