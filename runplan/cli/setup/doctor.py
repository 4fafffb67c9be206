"""runplan doctor and gc: check the setup, with a remedy for every problem; remove what ended runs left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins

from runplan.agents.budgets import unwatched_remedy
from runplan.agents.invocation import model_remedy
from runplan.checks.testcommand import Prerequisites
from runplan.cli.verb import Verb, json_argument
from runplan.errors import Exit, RunplanError, SettingsError
from runplan.git.repository import OLDEST_GIT
from runplan.text import command, escaped, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from runplan.agents.sandbox import Obstacle
    from runplan.cli.setup.discovery import Facts, RoleAgent
    from runplan.engine.context import RepositoryContext
    from runplan.git.removal import Kept, Removed
    from runplan.settings.schema import Settings


def _doctor(args: argparse.Namespace) -> Exit:
    checks = check(_examine(Path.cwd()))
    if args.json:
        print(json.dumps(to_builtins(checks), indent=2, ensure_ascii=False))
    else:
        print("\n".join(_line(each) for each in checks))
    return Exit.DONE if all(each.ok for each in checks) else Exit.USAGE


def _line(each: Check) -> str:
    line = f"{'ok  ' if each.ok else 'FAIL'}  {each.name:<12}{each.detail}"
    return line if each.ok else f"{line}\n      {'':<12}-> {each.remedy}"


# --- examination -------------------------------------------------------------------------------------------


def _examine(here: Path) -> Findings:
    from runplan.agents.sandbox import obstacle
    from runplan.cli.setup.discovery import is_writable, look_around, role_agents
    from runplan.engine.context import context_at, settings_note
    from runplan.engine.preflight import prompts_in_force, test_prerequisites
    from runplan.settings.load import environment
    from runplan.settings.places import worktree_root
    from runplan.settings.schema import Settings

    env = environment()
    facts = look_around(here, env=env)
    with context_at(here, env, lambda _root, _env: Settings()) as at:
        # With unusable settings, the rest is judged by the defaults.
        at, error, refusal = _with_settings(at)
        settings, root = at.settings, Path(facts.root)
        worktrees = worktree_root(root, settings, env)
        is_readable = not error and settings.run.target in facts.branches
        return Findings(
            facts=facts,
            settings=settings,
            worktrees=worktrees,
            is_writable=is_writable(worktrees),
            agents=role_agents(root, settings.agents, env=env),
            tests=test_prerequisites(at.with_landing("cherry-pick")) if is_readable else Prerequisites(),
            settings_error=error,
            settings_note=settings_note(at) if is_readable else "",
            obstacle=obstacle(env),
            refusal=refusal or (_refusal(at) if is_readable else ""),
            prompts={role: each.origin for role, each in prompts_in_force(at).items()} if is_readable else {},
        )


def _with_settings(at: RepositoryContext) -> tuple[RepositoryContext, str, str]:
    """The context with the settings that `start` would use, why they are invalid, and why it would refuse them."""
    from runplan.cli.control import prepare

    try:
        at = at.with_settings()
        return prepare.with_target_settings(at, []), "", ""
    except SettingsError as error:
        return at, str(error), ""
    except RunplanError as error:
        return at.with_committed_settings(), "", str(error)


def _refusal(at: RepositoryContext) -> str:
    """Why `start` would refuse every plan; "" for no reason."""
    from runplan.engine.preflight import require_agents, require_landable, require_test_command
    from runplan.git.repository import require_workable

    settings = at.settings
    try:
        require_landable(at)
        require_workable(at.repository, target=at.target, prefix=settings.run.branch_prefix)
        require_test_command(at)
        require_agents(at)
    except RunplanError as error:
        return str(error)
    return ""


# --- judgement ---------------------------------------------------------------------------------------------


class Check(Struct, frozen=True):
    name: str
    ok: bool
    detail: str
    remedy: str = ""  #: empty when ok


class Findings(Struct, frozen=True, kw_only=True):
    facts: Facts
    settings: Settings
    worktrees: Path
    is_writable: bool
    agents: Sequence[RoleAgent]
    tests: Prerequisites = Prerequisites()
    settings_error: str = ""
    settings_note: str = ""  #: which version of the settings file is used
    obstacle: Obstacle | None = None  #: why the sandbox does not work
    refusal: str = ""  #: why `start` would refuse
    prompts: Mapping[str, str] = {}  #: the file of each prompt in force


def check(found: Findings) -> tuple[Check, ...]:
    """Every check, in the order in which a run would fail."""
    checks = (
        _git(found.facts),
        _settings(found),
        _identity(found.facts),
        _target(found.facts, found.settings.run.target),
        _worktrees(found),
        *(_agent(each, in_dollars=found.settings.limits.in_dollars) for each in found.agents),
        _ok("prompts", "; ".join(f"{role}: {file}" for role, file in found.prompts.items()) or "those of runplan"),
        _sandbox(found.settings.agents.sandbox, found.obstacle),
        _tests(found),
        _setup(found),
    )
    return (*checks, _start(found.refusal)) if all(each.ok for each in checks) else checks


def _ok(name: str, detail: str) -> Check:
    return Check(name, True, detail)


def _fail(name: str, detail: str, remedy: str) -> Check:
    return Check(name, False, detail, remedy)


def _git(facts: Facts) -> Check:
    version = f"version {'.'.join(map(str, facts.git_version))}"
    if facts.git_version >= OLDEST_GIT:
        return _ok("git", version)
    return _fail("git", version, f"install git {'.'.join(map(str, OLDEST_GIT))} or newer")


def _settings(found: Findings) -> Check:
    if found.settings_error:
        return _fail("settings", found.settings_error, "correct it; see runplan config")
    return _ok("settings", found.settings_note or "every key is valid")


def _identity(facts: Facts) -> Check:
    if facts.identity is None:
        remedy = 'git config user.name "Your Name" && git config user.email you@example.org'
        return _fail("identity", "git has no user.name and user.email", remedy)
    signed = ", commits are signed" if facts.signs else ""
    return _ok("identity", f"{facts.identity.name} <{facts.identity.email}>{signed}")


def _target(facts: Facts, target: str) -> Check:
    if facts.empty:
        return _fail("target", "the repository has no commit yet", "git commit --allow-empty -m Start")
    if target in facts.branches:
        return _ok("target", f"branch {target}")
    remedy = f'set run.target = "{facts.default_branch}" in runplan.toml, or create it: '
    return _fail("target", f"there is no branch {target}", remedy + command("git", "branch", target))


def _worktrees(found: Findings) -> Check:
    if found.is_writable:
        return _ok("worktrees", str(found.worktrees))
    return _fail("worktrees", f"{found.worktrees} is not writable", "set run.worktrees to a writable directory")


def _agent(found: RoleAgent, *, in_dollars: bool) -> Check:
    role, agent, program, account = found.role, found.agent, found.program, found.account
    another = f"or name another agent: agents.{role}"
    if in_dollars and found.unwatched:
        return _fail(role, f"{agent} reports no costs, and [limits] are in dollars", unwatched_remedy(agent))
    if not found.found and found.file:
        return _fail(role, f"{agent}: there is no file {program}", f"write it, {another}")
    if not found.found:
        return _fail(role, f"{agent}: {program} was not found", f"install {program}, {another}")
    if account and account.lacks:
        return _fail(role, f"{agent} {account.lacks}", account.remedy or model_remedy(agent))
    if found.lacks:
        remedy = f"run {program} once and sign in, or set its key in this terminal"
        return _fail(role, f"{agent}: {found.lacks}", remedy)
    version = f" {found.version}" if found.version else ""
    return _ok(role, f"{agent} ({program}{version})" + (f"; {account.words}" if account else ""))


def _tests(found: Findings) -> Check:
    command, target, infrastructure = found.settings.tests.command, found.settings.run.target, found.facts.tests
    if command and (file := found.tests.missing_file):
        remedy = f"commit {file} on {target}, or set tests.command to another command"
        return _fail("tests", f"`{command}` needs {file}, which {target} does not have", remedy)
    if command and (program := found.tests.missing_program):
        remedy = f"install {program}, or set tests.command to another command"
        return _fail("tests", f"`{command}`: {program} was not found", remedy)
    if command:
        return _ok("tests", command)
    if infrastructure.present:
        remedy = f'add to runplan.toml, under [tests]: command = "{infrastructure.command}"'
        return _fail("tests", f"there are tests ({infrastructure.found}) but no test command", remedy)
    return _ok("tests", "none found: gates are skipped, and every report says so")


def _setup(found: Findings) -> Check:
    if found.settings.run.setup:
        return _ok("setup", found.settings.run.setup)
    if found.tests.setup is None:
        return _ok("setup", "none, and none seems to be needed")
    what, line = found.tests.setup
    detail = f"a fresh worktree has no {what.removeprefix('a ')}, and run.setup is empty"
    return _fail("setup", detail, f'add to runplan.toml, under [run]: setup = "{line}"')


def _start(refusal: str) -> Check:
    if not refusal:
        return _ok("start", "no further obstacle")
    what, _, remedy = refusal.partition("; ")
    return _fail("start", what, remedy or "runplan start prints the same")


def _sandbox(mode: str, obstacle: Obstacle | None) -> Check:
    if obstacle is None:
        return _ok("sandbox", "bubblewrap works" + (', but agents.sandbox = "none"' if mode == "none" else ""))
    detail = f"bubblewrap does not work: {obstacle.why}"
    if mode == "bwrap":
        return _fail("sandbox", detail, f'{obstacle.remedy}, or set agents.sandbox = "auto"')
    return _ok("sandbox", f"{detail}; agents run without it. To get it: {obstacle.remedy}")


# --- gc ----------------------------------------------------------------------------------------------------


def _gc_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only list")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _gc(args: argparse.Namespace) -> Exit:
    from runplan.engine.context import open_context, refuse_under_agent
    from runplan.engine.leftovers import collect

    if not args.dry_run:
        refuse_under_agent("gc")
    with open_context() as at:
        found, logs = collect(at, dry_run=args.dry_run)
    if args.json:
        rows = [{"answer": type(one).__name__.lower(), **to_builtins(one)} for one in (*found, *logs)]
        print(escaped(json.dumps(rows, ensure_ascii=False, indent=2)))
        return Exit.DONE
    for line in _leftovers(found, logs, "would remove" if args.dry_run else "removed"):
        print(plain(line))
    return Exit.DONE


def _leftovers(found: Sequence[Removed | Kept], logs: Sequence[Removed | Kept], verb: str) -> Iterator[str]:
    """One line for each leftover; logs are many, so those with the same answer share a line."""
    from runplan.git.removal import Kept

    for one in found:
        yield f"kept  {one.what}: {one.why}" if isinstance(one, Kept) else f"{verb}  {one.what}"
    by_reason: dict[str, list[str]] = {}
    for one in logs:
        by_reason.setdefault(one.why if isinstance(one, Kept) else "", []).append(one.what)
    for why, names in sorted(by_reason.items()):
        many = f"{len(names)} log{'' if len(names) == 1 else 's'} of agents and checks in {names[0].rpartition('/')[0]}"
        yield f"kept  {many}: {why}" if why else f"{verb}  {many}: their phases have landed"
    if not found and not logs:
        yield "Nothing is left over."


VERBS = {
    "doctor": Verb(
        run=_doctor,
        arguments=json_argument,
        EXAMPLES="""\
  runplan doctor             exit 0 when a run could start, 2 otherwise
  runplan doctor --json      the same for a script""",
    ),
    "gc": Verb(
        run=_gc,
        arguments=_gc_arguments,
        EXAMPLES="""\
  runplan gc --dry-run       list what would be removed and what is kept, and why
  runplan gc                 remove leftovers that are provably on the target""",
    ),
}
