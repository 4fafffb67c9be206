"""The landing modes by name. All that differs between them is asked here; a new mode is one module and one case."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan import names
from runplan.errors import RefusedEarly

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from runplan.forge.address import Access
    from runplan.forge.github import GitHub
    from runplan.forge.model import Repository
    from runplan.git.command import Git
    from runplan.git.remote import Remote, SignIn
    from runplan.gitfacts import Oid
    from runplan.landing.direct import Direct
    from runplan.landing.lander import Lander
    from runplan.landing.pull_request import PlanPlace
    from runplan.settings.schema import RunSettings, Settings


class Place(Struct, frozen=True):
    """The repository that a lander works in."""

    git: Git
    root: Path
    common_dir: Path
    tool: Path  #: the repository that holds candidates
    env: Mapping[str, str]  #: of the user, for reaching a remote
    plan: PlanPlace


def open_lander(at: Place, settings: Settings) -> Lander:
    run = settings.run
    match run.landing:
        case "cherry-pick":
            from runplan.landing.cherry_pick import CherryPick

            return CherryPick(at.git, ref=f"refs/heads/{run.target}", root=at.root, common_dir=at.common_dir)
        case "direct":
            return _direct(at, run)
        case _:
            return _pull_request(at, settings)


def _direct(at: Place, run: RunSettings, sign_in: SignIn | None = None) -> Direct:
    from runplan.landing.direct import Direct

    remote = _remote(at.git, run, run.target, at.env, sign_in, at.common_dir)
    return Direct(at.git, remote, root=at.root, tool=at.tool)


def _remote(
    git: Git,
    run: RunSettings,
    branch: str,
    env: Mapping[str, str],
    sign_in: SignIn | None = None,
    common_dir: Path | None = None,
) -> Remote:
    from runplan.git.remote import Remote

    common = common_dir or Path(git.text("rev-parse", "--path-format=absolute", "--git-common-dir"))
    return Remote(git, name=run.remote, branch=branch, common_dir=common, caller=env, sign_in=sign_in)


def _pull_request(at: Place, settings: Settings) -> Lander:
    from runplan.forge.github import open_forge
    from runplan.landing.pull_request import PullRequestLander

    run = settings.run
    branch = names.pull_branch(run.branch_prefix, at.plan.slug)
    access = _access(at.git, run, at.env)
    sign_in = _sign_in(access)
    return PullRequestLander(
        at.git,
        _remote(at.git, run, branch, at.env, sign_in, at.common_dir),
        target=_direct(at, run, sign_in),
        tool=at.tool,
        plan=at.plan,
        settings=settings.pull_request,
        forge=functools.cache(lambda: open_forge(access(), at.env)),
    )


def _access(git: Git, run: RunSettings, env: Mapping[str, str]) -> Callable[[], Access]:
    """The token for the forge; looked for when it is needed, once."""
    from runplan.forge.github import find_access

    return functools.cache(lambda: find_access(git, remote=run.remote, env=env))


def _sign_in(access: Callable[[], Access]) -> Callable[[], tuple[str, ...]]:
    from runplan.forge.github import git_settings

    return lambda: git_settings(access())


def require_allowed(mode: str, run: RunSettings) -> None:
    """Refuse a push to a protected target."""
    if mode == "direct" and run.main_protected:
        raise RefusedEarly(
            f"protected: {run.target} does not accept pushes (run.main_protected); land by pr, "
            "or by cherry-pick and push when it is allowed"
        )


def require_ready(git: Git, run: RunSettings, env: Mapping[str, str]) -> None:
    """Refuse, before any work, an unreachable remote or commits that are not pushed, where the mode needs them."""
    if not uses_remote(run.landing):
        return
    from runplan.git import remote

    if not concludes(run.landing):
        remote.require(_remote(git, run, run.target, env))
        return
    from runplan.forge.github import open_forge

    access = _access(git, run, env)
    require_writable(open_forge(access(), env).repository())
    remote.require(_remote(git, run, run.target, env, _sign_in(access)))


def require_writable(there: Repository) -> None:
    if not there.can_push:
        raise RefusedEarly(f"the token may not push to {there.name}; landing by pr needs write access")


def forge_of(git: Git, run: RunSettings, env: Mapping[str, str]) -> GitHub:
    from runplan.forge.github import open_forge

    return open_forge(_access(git, run, env)(), env)


def own_branch(git: Git, run: RunSettings, slug: str, env: Mapping[str, str]) -> Remote:
    """The branch of a plan's pull request."""
    branch = names.pull_branch(run.branch_prefix, slug)
    return _remote(git, run, branch, env, _sign_in(_access(git, run, env)))


def fetch_branch(git: Git, run: RunSettings, slug: str, env: Mapping[str, str]) -> Oid | None:
    """Fetch the branch of a plan's pull request, if the remote has it; else forget it."""
    there = own_branch(git, run, slug, env)
    tip = there.fetch()
    if tip is None and git.tip(there.ref) is not None:
        git.run("update-ref", "-d", there.ref)
    return tip


def uses_remote(mode: str) -> bool:
    """Whether the target is a branch of the remote, so that landing needs the remote and its credentials."""
    return mode != "cherry-pick"


def concludes(mode: str) -> bool:
    """Whether something is left to do when every phase has landed."""
    return mode == "pr"


def target_ref(run: RunSettings) -> str:
    """The ref that shows the target's tip: for landings that push, the tracking ref."""
    return f"refs/remotes/{run.remote}/{run.target}" if uses_remote(run.landing) else f"refs/heads/{run.target}"
