"""The landing modes by name. All that differs between them is asked here; a new mode is one module and one case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.landing.lander import Lander
    from runplan.settings.schema import RunSettings

AVAILABLE = ("cherry-pick", "direct")  #: in this version


class Place(Struct, frozen=True):
    """The repository that a lander works in."""

    git: Git
    root: Path
    common_dir: Path
    tool: Path  #: the repository that holds candidates
    env: Mapping[str, str]  #: of the user, for reaching a remote


def open_lander(at: Place, run: RunSettings) -> Lander:
    match run.landing:
        case "direct":
            from runplan.landing.direct import Direct

            return Direct(
                at.git,
                remote=run.remote,
                branch=run.target,
                root=at.root,
                common_dir=at.common_dir,
                tool=at.tool,
                caller=at.env,
            )
        case _:
            from runplan.landing.cherry_pick import CherryPick

            return CherryPick(at.git, ref=f"refs/heads/{run.target}", root=at.root, common_dir=at.common_dir)


def require_allowed(mode: str, run: RunSettings) -> None:
    """Refuse a mode that is not in this version, and a push to a protected target."""
    if mode not in AVAILABLE:
        raise RefusedEarly(f"landing by {mode} is not in this version of runplan; use {' or '.join(AVAILABLE)}")
    if uses_remote(mode) and run.main_protected:
        raise RefusedEarly(
            f"protected: {run.target} does not accept pushes (run.main_protected); land by cherry-pick "
            "and push when it is allowed, or ask for the rule to be lifted"
        )


def require_ready(git: Git, run: RunSettings, env: Mapping[str, str]) -> None:
    """Refuse, before any work, an unreachable remote or commits that are not pushed, where the mode needs them."""
    if uses_remote(run.landing):
        from runplan.git import remote

        remote.require(git, remote=run.remote, branch=run.target, caller=env)


def uses_remote(mode: str) -> bool:
    """Whether the target is a branch of the remote, so that landing needs the remote and its credentials."""
    return mode != "cherry-pick"


def target_ref(run: RunSettings) -> str:
    """The ref that shows the target's tip: for landings that push, the tracking ref."""
    remote = uses_remote(run.landing) and run.landing in AVAILABLE
    return f"refs/remotes/{run.remote}/{run.target}" if remote else f"refs/heads/{run.target}"
