"""The landing modes by name. All that differs between them is asked here; a new mode is one module and one case."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from runplan.adapters.forge.protocol import Forge, PullRequest
from runplan.adapters.git.command import Git
from runplan.adapters.git.remote import Remote, require as require_remote
from runplan.adapters.git.repository import Repository
from runplan.adapters.git.zones import Zones
from runplan.domain import names
from runplan.domain.errors import NotAllowed, RefusedEarly, Unreachable
from runplan.domain.gitfacts import Oid
from runplan.domain.plan.model import Plan
from runplan.domain.settings.schema import RunSettings, Settings, uses_remote
from runplan.domain.text import command
from runplan.engine.landing.direct import Direct
from runplan.engine.landing.lander import Lander, Sighting
from runplan.engine.landing.pull_request import PlanPlace, PullRequestLander
from runplan.engine.landing.stack import TOP, Stack, list_groups
from runplan.engine.landing.swap import CherryPick


def open_landers(
    here: Repository, settings: Settings, env: Mapping[str, str], *, tool: Path, plan: PlanPlace, zones: Zones | None
) -> tuple[Lander, Lander | None]:
    """The lander of a plan, and that of its phases with `Execution: direct`; None where they may not be pushed.

    `tool` holds candidates, `zones` has the sandbox for files that land in a checkout.
    """
    run = settings.run
    if not uses_remote(run.landing):
        lander = CherryPick(here.git, ref=f"refs/heads/{run.target}", common_dir=here.common_dir, zones=zones)
        direct = Direct(here.git, open_target(here, settings, env), tool=tool, on_local=True)
        return lander, None if run.main_protected else direct
    how = settings.pull_request

    def forge() -> Forge:  # its token is looked for when it is needed, once
        plan.seen.forge = plan.seen.forge or open_forge(here.git, run, env)
        return plan.seen.forge

    remote = _open_remote(here, run, run.target, env, forge)
    target = Direct(here.git, remote, tool=tool)
    if not run.concludes:
        return target, None if run.main_protected else target

    def open_group(group: str) -> PullRequestLander:
        remote = _open_remote(here, run, names.pull_branch(run.branch_prefix, plan.slug, group), env, forge)
        seen = plan.seen.groups.setdefault(group, Sighting()) if group else plan.seen
        place = replace(plan, seen=seen, issues=() if group else plan.issues)  # the last one closes them
        return PullRequestLander(
            here.git, remote, target=target, tool=tool, plan=place, settings=how, forge=forge, group=group, stack=stack
        )

    stack = Stack[PullRequestLander](open_group) if how.stack else None
    return stack.of(TOP) if stack else open_group(TOP), None


def _open_remote(
    here: Repository, run: RunSettings, branch: str, env: Mapping[str, str], forge: Callable[[], Forge] | None = None
) -> Remote:
    """A branch of the remote; git signs in with the token for the forge, where the run lands by one."""
    find_forge = forge or cache(partial(open_forge, here.git, run, env))
    sign_in = (lambda: find_forge().git_settings()) if run.concludes else None
    return Remote(here.git, name=run.remote, branch=branch, common_dir=here.common_dir, caller=env, sign_in=sign_in)


def open_target(here: Repository, settings: Settings, env: Mapping[str, str]) -> Remote:
    return _open_remote(here, settings.run, settings.run.target, env)


def require_allowed(mode: str, run: RunSettings, *, is_fleet: bool = False) -> None:
    """Refuse a push to a protected target, and a fleet that would land in a checkout."""
    if is_fleet and not uses_remote(mode):
        why = f"{mode} lands in a checkout of one machine, and a fleet's workers push to the remote"
        add = "add the word direct or pr to start, or set run.landing in runplan.toml and push it"
        raise RefusedEarly(f"{why}; {add}")
    if mode == "direct" and run.main_protected:
        why = f"protected: {run.target} does not accept pushes (run.main_protected)"
        raise RefusedEarly(f"{why}; land by pr, or by cherry-pick and push when it is allowed")


def require_ready(here: Repository, settings: Settings, env: Mapping[str, str]) -> tuple[str, ...]:
    """Refuse, before any work, a remote on which the landing mode could not succeed; remarks for the user."""
    run = settings.run
    if not uses_remote(run.landing):
        return ()
    forge = cache(partial(open_forge, here.git, run, env))
    remarks: tuple[str, ...] = ()
    if run.concludes and (here.common_dir / "shallow").exists():
        deepen = command("git", "fetch", "--unshallow", run.remote)
        why = "this clone is shallow, and landing by pr needs the commits that branch and target share"
        raise RefusedEarly(f"{why}; fetch them: {deepen}; with actions/checkout set fetch-depth: 0")
    if run.concludes:
        try:
            remarks = require_mergeable(forge(), settings)
        except NotAllowed as error:
            raise Unreachable(f"{error}; check the token from {forge().token_source}") from None
    require_remote(_open_remote(here, run, run.target, env, forge))
    return remarks


def require_mergeable(forge: Forge, settings: Settings) -> tuple[str, ...]:
    """Refuse a repository in which the token cannot open or merge pull requests; remarks on what is different."""
    there = forge.read_repository()
    run = settings.run
    if there.is_archived:
        raise RefusedEarly(f"{there.name} is archived, so it accepts no changes; unarchive it first")
    if not there.can_push:
        raise RefusedEarly(f"the token may not push to {there.name}; landing by pr needs write access")
    try:
        if not {"repo", "public_repo"}.intersection(there.scopes):  # such a token may do what its owner may
            forge.require_may_open(run.target)
    except NotAllowed as error:
        needs = "it needs write access to contents and pull requests"
        raise RefusedEarly(f"the token may not open pull requests on {there.name}; {needs}: {error}") from None
    target = forge.read_target(run.target)
    wanted = settings.pull_request.method
    method = target.choose_method(wanted)
    remarks: list[str] = []
    if not method and not target.queue:
        why = f"{there.name} allows no method to merge into {run.target}"
        rules = "its settings and the rules of the branch exclude each other; allow merge, squash or rebase in both"
        raise RefusedEarly(f"{why}: {rules}")
    if method != wanted and not target.queue:
        remarks.append(f"{run.target} does not allow {wanted}, so pull requests are merged by {method}")
    if target.unread:
        remarks.append(f"the token may not read {', '.join(target.unread)}: their results are not waited for")
    address = forge.address
    if there.name.lower() != address.full_name.lower():
        url = f"{address.web}/{there.name}.git" if address.web else f"git@{address.host}:{there.name}.git"
        update = command("git", "remote", "set-url", run.remote, url)
        remarks.append(f"{address.full_name} was renamed to {there.name}; update the remote: {update}")
    return tuple(remarks)


def open_forge(git: Git, run: RunSettings, env: Mapping[str, str]) -> Forge:
    from runplan.adapters.forge.access import find_forge  # 12 ms, and most runs land without a forge

    return find_forge(git, remote=run.remote, env=env)


def own_branch(here: Repository, run: RunSettings, slug: str, env: Mapping[str, str]) -> Remote:
    return _open_remote(here, run, names.pull_branch(run.branch_prefix, slug), env)


def fetch_branch(here: Repository, run: RunSettings, slug: str, env: Mapping[str, str]) -> Oid | None:
    """Fetch the branch of a plan's pull request, if the remote has it; else forget it."""
    there = own_branch(here, run, slug, env)
    tip = there.fetch()
    if tip is None and here.git.tip(there.ref) is not None:
        here.git.run("update-ref", "-d", there.ref)
    return tip


def _list_branches(settings: Settings, slug: str, plan: Plan | None) -> dict[str, str]:
    """The branches of a plan's pull requests by group, the lowest of a stack first."""
    groups = list_groups(plan) if plan and settings.pull_request.stack else [TOP]
    return {group: names.pull_branch(settings.run.branch_prefix, slug, group) for group in groups}


def list_open(forge: Forge, settings: Settings, slug: str, plan: Plan | None) -> Iterator[tuple[str, PullRequest]]:
    for group, branch in _list_branches(settings, slug, plan).items():
        pull = forge.find_pull_request(branch=branch, base=settings.run.target)
        if pull is not None and pull.is_open:
            yield group, pull


def fetch_merged(
    here: Repository, settings: Settings, slug: str, env: Mapping[str, str], plan: Plan
) -> tuple[PullRequest, ...]:
    """The merged pull requests of a plan, newest first, with their commits; () for another way of landing."""
    if not settings.run.concludes:
        return ()
    forge = open_forge(here.git, settings.run, env)
    there = own_branch(here, settings.run, slug, env)
    branches = reversed(_list_branches(settings, slug, plan).values())
    pulls = [pull for branch in branches for pull in forge.list_merged(branch)]
    fetch = there.fetch_ref
    return tuple(pull for pull in pulls if here.git.known(pull.head) or fetch(f"{pull.refs}/{pull.number}/head"))
