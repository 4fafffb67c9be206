"""The doctor's judgement: what stands in the way of a run, each with its remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.agents.budgets import unwatched_remedy
from runplan.settings.facts import Bench, model_remedy
from runplan.text import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runplan.agents.sandbox import Obstacle
    from runplan.settings.config import Settings
    from runplan.settings.facts import Cast, Facts, Place

#: The first git with `merge-tree --write-tree`.
OLDEST_GIT = (2, 38)
_WELL = Bench()


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""  #: what to do; empty when ok


def check(
    facts: Facts,
    settings: Settings,
    *,
    place: Place,
    cast: Sequence[Cast],
    bench: Bench = _WELL,
    unusable: str = "",
    note: str = "",
    leftovers: Sequence[str] = (),
    cgroup: str = "",
    obstacle: Obstacle | None = None,
    refused: str = "",
) -> tuple[Check, ...]:
    """Every check in the order a run would meet them.

    `unusable` says why the settings cannot be read, `note` which version of them is used; `cgroup` is where dispatches
    get control groups, "" for nowhere; `obstacle` keeps the sandbox from working; `refused` is what `start` itself
    would say.
    """
    found = (
        _git(facts),
        _settings(unusable, note),
        _identity(facts),
        _target(facts, settings.run.target),
        _worktrees(place),
        *(_agent(each, settings) for each in cast),
        _processes(cgroup),
        _sandbox(settings.agents.sandbox, obstacle),
        _tests(facts, settings, bench),
        _setup(settings, bench),
        _leftovers(leftovers),
    )
    return (*found, _start(refused)) if all(each.ok for each in found) else found


def _git(facts: Facts) -> Check:
    told = ".".join(map(str, facts.git_version))
    oldest = ".".join(map(str, OLDEST_GIT))
    return Check(
        name="git",
        ok=facts.git_version >= OLDEST_GIT,
        detail=f"version {told}",
        remedy="" if facts.git_version >= OLDEST_GIT else f"install git {oldest} or newer",
    )


def _settings(unusable: str, note: str) -> Check:
    if unusable:
        return Check(name="settings", ok=False, detail=unusable, remedy="correct it; see runplan config")
    return Check(name="settings", ok=True, detail=note or "every key is understood")


def _identity(facts: Facts) -> Check:
    if facts.identity is None:
        remedy = 'git config user.name "Your Name" && git config user.email you@example.org'
        return Check(name="identity", ok=False, detail="git does not know who you are", remedy=remedy)
    signed = ", commits are signed" if facts.signs else ""
    return Check(name="identity", ok=True, detail=f"{facts.identity.name} <{facts.identity.email}>{signed}")


def _target(facts: Facts, target: str) -> Check:
    if facts.empty:
        remedy = "git commit --allow-empty -m Start"
        return Check(name="target", ok=False, detail="the repository has no commit yet", remedy=remedy)
    if target in facts.branches:
        return Check(name="target", ok=True, detail=f"branch {target}")
    making = command("git", "branch", target)
    remedy = f'set run.target = "{facts.default_branch}" in runplan.toml, or make it: {making}'
    return Check(name="target", ok=False, detail=f"there is no branch {target}", remedy=remedy)


def _worktrees(place: Place) -> Check:
    if place.writable:
        return Check(name="worktrees", ok=True, detail=place.path)
    remedy = "set run.worktrees to a directory you may write in"
    return Check(name="worktrees", ok=False, detail=f"{place.path} cannot be written", remedy=remedy)


def _agent(cast: Cast, settings: Settings) -> Check:
    if settings.limits.in_dollars and cast.unwatched:
        detail = f"{cast.agent} tells no dollars, and [limits] are in dollars"
        return Check(name=cast.role, ok=False, detail=detail, remedy=unwatched_remedy(cast.agent))
    if cast.found and cast.account and cast.account.lacks:
        detail = f"{cast.agent} {cast.account.lacks}"
        return Check(name=cast.role, ok=False, detail=detail, remedy=cast.account.remedy or model_remedy(cast.agent))
    if cast.found and cast.lacks:
        remedy = f"run {cast.program} once and sign in, or set its key in this terminal"
        return Check(name=cast.role, ok=False, detail=f"{cast.agent}: {cast.lacks}", remedy=remedy)
    if cast.file and not cast.found:
        remedy = f"write it, or name another agent: agents.{cast.role}"
        return Check(name=cast.role, ok=False, detail=f"{cast.agent}: there is no file {cast.program}", remedy=remedy)
    if cast.found:
        version = f" {cast.version}" if cast.version else ""
        account = f"; {cast.account.words}" if cast.account else ""
        return Check(name=cast.role, ok=True, detail=f"{cast.agent} ({cast.program}{version}){account}")
    remedy = f"install {cast.program}, or name another agent: agents.{cast.role}"
    detail = f"{cast.agent}: {cast.program} was not found"
    return Check(name=cast.role, ok=False, detail=detail, remedy=remedy)


def _tests(facts: Facts, settings: Settings, bench: Bench) -> Check:
    command, target = settings.tests.command, settings.run.target
    if command and bench.missing:
        detail = f"`{command}` needs {bench.missing}, which {target} does not have"
        remedy = f"commit {bench.missing} on {target}, or set tests.command to another one"
        return Check(name="tests", ok=False, detail=detail, remedy=remedy)
    if command and bench.program:
        remedy = f"install {bench.program}, or set tests.command to another one"
        return Check(name="tests", ok=False, detail=f"`{command}`: {bench.program} was not found", remedy=remedy)
    if command:
        return Check(name="tests", ok=True, detail=command)
    if facts.tests.present:
        remedy = f'add to runplan.toml, under [tests]: command = "{facts.tests.command}"'
        detail = f"there are tests ({facts.tests.found}) but no test command"
        return Check(name="tests", ok=False, detail=detail, remedy=remedy)
    return Check(name="tests", ok=True, detail="none found: gates are skipped, and every report says so")


def _setup(settings: Settings, bench: Bench) -> Check:
    if settings.run.setup:
        return Check(name="setup", ok=True, detail=settings.run.setup)
    if bench.needs is None:
        return Check(name="setup", ok=True, detail="none, and nothing was found that needs one")
    what, line = bench.needs
    detail = f"a fresh worktree has no {what.removeprefix('a ')}, and run.setup is empty"
    return Check(name="setup", ok=False, detail=detail, remedy=f'add to runplan.toml, under [run]: setup = "{line}"')


def _start(refused: str) -> Check:
    if not refused:
        return Check(name="start", ok=True, detail="refuses nothing else")
    what, _, helps = refused.partition("; ")
    return Check(name="start", ok=False, detail=what, remedy=helps or "runplan start says the same")


def _sandbox(mode: str, obstacle: Obstacle | None) -> Check:
    if obstacle is None:
        off = ', but is switched off: agents.sandbox = "none"' if mode == "none" else ""
        return Check(name="sandbox", ok=True, detail=f"bubblewrap works{off}")
    detail = f"bubblewrap does not work: {obstacle.why}"
    if mode == "bwrap":
        remedy = f'{obstacle.remedy}, or set agents.sandbox = "auto"'
        return Check(name="sandbox", ok=False, detail=detail, remedy=remedy)
    return Check(name="sandbox", ok=True, detail=f"{detail}; agents run without it. To get it: {obstacle.remedy}")


def _processes(cgroup: str) -> Check:
    """Either is well: without a group only who wants to hide is not found."""
    used = f"each dispatch has a control group of its own, below {cgroup}"
    unused = "no control group: what an agent leaves is found by its parents and its mark"
    return Check(name="processes", ok=True, detail=used if cgroup else unused)


def _leftovers(leftovers: Sequence[str]) -> Check:
    """They keep no run from starting."""
    if not leftovers:
        return Check(name="leftovers", ok=True, detail="none")
    shown = ", ".join(leftovers[:5]) + (f" and {len(leftovers) - 5} more" if len(leftovers) > 5 else "")
    return Check(name="leftovers", ok=True, detail=f"{shown}; remove them: runplan gc")
