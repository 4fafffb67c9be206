"""The landing modes by name. All that differs between them is asked here; a new mode joins by being listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from runplan.git.command import Git
    from runplan.landing.lander import Lander
    from runplan.settings.schema import RunSettings


class Place(Struct, frozen=True):
    """The repository that a lander works in."""

    git: Git
    root: Path
    common_dir: Path
    tool: Path  #: the repository that holds candidates
    env: Mapping[str, str]  #: of the user, for reaching a remote


class Mode(Struct, frozen=True):
    open: Callable[[Place, RunSettings], Lander] | None  #: None: not in this version
    uses_remote: bool  #: whether the target is a branch of the remote


def _cherry_pick(at: Place, run: RunSettings) -> Lander:
    from runplan.landing.cherry_pick import CherryPick

    ref = f"refs/heads/{run.target}"
    return CherryPick(at.git, ref=ref, root=at.root, common_dir=at.common_dir)


def _direct(at: Place, run: RunSettings) -> Lander:
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


MODES = {
    "cherry-pick": Mode(_cherry_pick, uses_remote=False),
    "direct": Mode(_direct, uses_remote=True),
    "pr": Mode(None, uses_remote=True),
}


def open_lander(at: Place, run: RunSettings) -> Lander:
    return _available(run.landing)(at, run)


def require_allowed(mode: str, run: RunSettings) -> None:
    """Refuse a mode that is not in this version, and a push to a protected target."""
    _available(mode)
    if MODES[mode].uses_remote and run.main_protected:
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
    return MODES[mode].uses_remote


def target_ref(run: RunSettings) -> str:
    """The ref that shows the target's tip: for landings that push, the tracking ref."""
    mode = MODES[run.landing]
    return f"refs/remotes/{run.remote}/{run.target}" if mode.open and mode.uses_remote else f"refs/heads/{run.target}"


def _available(mode: str) -> Callable[[Place, RunSettings], Lander]:
    if (found := MODES[mode].open) is not None:
        return found
    known = " or ".join(name for name, one in MODES.items() if one.open is not None)
    raise RefusedEarly(f"landing by {mode} is not in this version of runplan; use {known}")
