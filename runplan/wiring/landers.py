"""Which way of landing is done by which lander; a new way joins by being listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.ports import Lander
    from runplan.wiring.here import Here

    Deliver = Callable[[str, str], None]
    Make = Callable[[Here, Callable[[str], None], Deliver], Lander]


def _cherry_pick(at: Here, point: Callable[[str], None], deliver: Deliver) -> Lander:
    from runplan.adapters.landers.cherry_pick import CherryPick

    repository = at.repository
    return CherryPick(
        repository.git,
        ref=at.local_target,
        root=repository.root,
        common_dir=repository.common_dir,
        point=point,
        deliver=deliver,
    )


def _direct(at: Here, point: Callable[[str], None], deliver: Deliver) -> Lander:
    from runplan.adapters.landers.direct import Direct

    repository, run = at.repository, at.settings.run
    return Direct(
        repository.git,
        remote=run.remote,
        branch=run.target,
        root=repository.root,
        common_dir=repository.common_dir,
        caller=at.env,
        point=point,
        deliver=deliver,
    )


LANDERS: dict[str, Make] = {"cherry-pick": _cherry_pick, "direct": _direct}


def require_landable(at: Here) -> None:
    """Refuse, before any work, what the way of landing could not end well with."""
    if at.settings.run.landing == "direct":
        from runplan.adapters import remote

        run = at.settings.run
        remote.require(at.repository.git, remote=run.remote, branch=run.target, caller=at.env)


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
            f"first run: {pull if there.settings.run.landing == 'direct' else push}"
        )
