"""Where landings happen, and what is asked before any work: whether the target can be landed on from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.errors import RefusedEarly
from runplan.landing import modes

if TYPE_CHECKING:
    from runplan.wiring.here import Here


def landing_place(at: Here) -> modes.Place:
    return modes.Place(at.repository.git, at.repository.root, at.repository.common_dir, at.state / "tool.git", at.env)


def require_landable(at: Here) -> None:
    """Refuse, before any work, what the way of landing could not end well with."""
    modes.require_ready(at.repository.git, at.settings.run, at.env)


def require_same_history(at: Here, plan: str) -> None:
    """Refuse to go on here with a plan whose phases landed in another copy of the target and are not here yet."""
    there = at.for_plan(plan)
    git = at.repository.git
    tip = git.tip(there.target)
    # Another branch is another matter: it may well lack what was landed so far.
    if there.target == at.target or tip is None or there.settings.run.target != at.settings.run.target:
        return
    if git.run("merge-base", "--is-ancestor", tip, at.target, ok=(0, 1)).code:
        run = at.settings.run
        from runplan.adapters.checkout import Checkouts

        checkouts = Checkouts(git, root=at.repository.root, common_dir=at.repository.common_dir)
        pull = checkouts.pull(at.local_target, run.remote)
        push = command("git", "push", run.remote, run.target)
        raise RefusedEarly(
            f"{plan} was landed on {there.target_name}, and {at.target_name} lacks something of that; "
            f"first run: {pull if modes.uses_remote(there.settings.run.landing) else push}"
        )
