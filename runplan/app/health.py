"""Checks the setup, with a remedy for every problem."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from enum import StrEnum
from importlib.util import find_spec
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runplan.adapters.agents import invocation
from runplan.adapters.agents.adapter import first_set
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.configuration.places import worktree_root
from runplan.adapters.forge.access import find_forge, forge_kind, read_address
from runplan.adapters.git.command import PARTIAL_CLONE
from runplan.adapters.git.config import is_partial_clone, read_listing
from runplan.adapters.git.repository import NO_IDENTITY, require_git, require_target, require_workable
from runplan.adapters.notify.apprise_child import INSTALL
from runplan.adapters.notify.channels import Channel, list_channels, list_failures
from runplan.adapters.sandbox.container import Container, find_engine, try_image
from runplan.adapters.sandbox.engines import CONTAINER, describe_view, require_sandbox
from runplan.adapters.sandbox.view import Places
from runplan.adapters.store.location import hide_password
from runplan.adapters.store.protocol import load_postgres, open_store
from runplan.app.operations import runs
from runplan.app.operations.model import Caller
from runplan.app.views.inspection import RepositoryFacts, inspect_repository
from runplan.app.views.journal import LINES_SHOWN
from runplan.domain.checks.results import from_text
from runplan.domain.checks.secrets import redact_text
from runplan.domain.errors import NotAllowed, RefusedEarly, RunplanError
from runplan.domain.run import events as e
from runplan.domain.run.kinds import Reason, Role
from runplan.domain.settings import toolchain
from runplan.domain.settings.schema import Settings, TrySettings, uses_remote
from runplan.domain.text import counted, elapsed, plain, toml_value
from runplan.engine.landing import modes
from runplan.engine.loop import preflight
from runplan.engine.loop.advance import rehearse_phase
from runplan.engine.loop.context import RepositoryContext, context_at, find_fleet, settings_note
from runplan.engine.loop.repository import open_repository
from runplan.hosts.foreground import Interruption

UNCONFINED = "An agent can do what you can: write your checkout, end runplan's processes, run `runplan approve`"


class State(StrEnum):
    OK = "ok"
    WARN = "WARN"  #: a run can start
    FAIL = "FAIL"


class SetupCheck(Struct, frozen=True):
    name: str
    state: State
    detail: str
    remedy: str = ""  #: empty when ok

    @property
    def ok(self) -> bool:
        return self.state is not State.FAIL


#: The detail of a check that is ok; or that of a warning, and its remedy.
Look: TypeAlias = str | tuple[str, str]


def examine(caller: Caller, *, runs_once: bool = False) -> list[SetupCheck]:
    """Every check of the repository; `runs_once`: also set-up and tests, in a fresh worktree."""
    with context_at(caller.cwd, caller.env, lambda _root, _env: Settings()) as context:
        checks = _run_checks(context)
        return [*checks, _rehearse(caller, context, checks)] if runs_once else checks


def _run_checks(context: RepositoryContext) -> list[SetupCheck]:
    """Every check, in the order in which a run would fail; those that need settings or a target only with them."""
    facts = inspect_repository(context)
    git = _run_check("git", _check_git, facts, context)
    person = _failed_check("identity", RefusedEarly(NO_IDENTITY))
    if facts.identity is not None:
        person = SetupCheck("identity", State.OK, f"{facts.identity.name} <{facts.identity.email}>")
    try:
        context = runs.with_target_settings(context.with_settings(), "")
        note, _, remedy = settings_note(context).partition(". ")
    except RunplanError as error:
        return [git, _failed_check("settings", error), person]
    target = _run_check("target", _check_target, context)
    worktrees = _run_check("worktrees", _check_worktrees, context)
    settings = SetupCheck("settings", State.WARN if remedy else State.OK, note or "every key is valid", remedy)
    checks = [git, settings, person, target, worktrees]
    if context.settings.fleet.dsn:
        context = replace(context, fleet=find_fleet(context.repository, context.settings))
        checks.append(_run_check("fleet", _check_fleet, context))
    checks += [_run_check(role, _check_agent, context, role, name) for role, name in context.settings.agents.dispatched]
    planner = _run_check("planner", _check_agent, context, "planner", context.settings.agents.planner)
    words = f"`runplan plan` cannot work: {planner.detail}"
    checks.append(planner if planner.ok else replace(planner, state=State.WARN, detail=words))
    checks.append(_run_check("sandbox", _check_sandbox, context))
    if channels := list_channels(context.settings.notify, context.env):
        checks.append(_run_check("notify", _check_channels, context, channels))
    if target.ok:
        local = context.with_landing("cherry-pick")  # the remote of others is asked last
        for name, look in (("prompts", _check_prompts), ("tests", _check_tests), ("setup", _check_setup)):
            checks.append(_run_check(name, look, local))
        if context.settings.trial != TrySettings():
            checks.append(_run_check("trial", _check_trial, local))
    if context.settings.run.concludes:
        checks += _check_forge(context)
    return [*checks, _run_check("start", _check_start, context)] if all(check.ok for check in checks) else checks


def _run_check(name: str, look: Callable[..., Look], *about: object) -> SetupCheck:
    try:
        answer = look(*about)
    except RunplanError as error:
        return _failed_check(name, error)
    if isinstance(answer, str):
        return SetupCheck(name, State.OK, answer)
    return SetupCheck(name, State.WARN, *answer)


def _failed_check(name: str, error: RunplanError) -> SetupCheck:
    """A refusal, split into the problem and its remedy at the first semicolon that is not in a quoted command."""
    text = str(error).removeprefix("agent-missing: ").removeprefix(f"agents.{name}: ")
    parts = re.match(r"((?:`[^`]*`|(?!; ).)*)(?:; (.*))?", text, re.DOTALL)
    assert parts is not None
    return SetupCheck(name, State.FAIL, parts[1], parts[2] or "correct it; see runplan config")


def _check_git(facts: RepositoryFacts, context: RepositoryContext) -> Look:
    require_git(facts.git_version)
    version = f"version {facts.git_version.removeprefix('git version ')}"
    if left_out := context.repository.left_out:
        return "\n".join((version, *left_out)), "move the included file out of the checkout if runplan's git needs it"
    return version


def _check_target(context: RepositoryContext) -> str:
    require_target(context.repository, context.local_target)
    return f"branch {context.settings.run.target}"


def _check_worktrees(context: RepositoryContext) -> str:
    place = worktree_root(context.root, context.settings, context.env)
    nearest = next(directory for directory in (place, *place.parents) if directory.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise RefusedEarly(f"{place} is not writable; set run.worktrees to a writable directory")
    return str(place)


def _check_fleet(context: RepositoryContext) -> Look:
    """The database answers, has this version and knows the repository; a worker takes plans."""
    assert context.fleet is not None
    with closing(open_store(context.fleet)) as store:
        count = len(store.list_host_labels())
    about = f"{hide_password(context.fleet.dsn)}, version {load_postgres().SCHEMA_VERSION}"
    if count:
        return f"{about}; {counted(count, 'living worker')}"
    return f"{about}; no worker takes plans", "start one on a host: runplan worker"


def _check_agent(context: RepositoryContext, role: str, name: str) -> str:
    table = context.settings.agents.agent(name)
    in_dollars = context.settings.limits.in_dollars
    agents = context.settings.agents
    invocation.require_agent(agents, table, role, root=context.root, caller=context.env, in_dollars=in_dollars)
    program = invocation.program_of(table)
    agent = agent_of(table.kind)
    keys = agent.keys_for(table.model)
    if keys and not first_set(context.env, *keys, *table.env) and not agent.is_configured(context.env):
        lacks = f"neither {' nor '.join(keys)} is set" if len(keys) > 1 else f"{keys[0]} is not set"
        remedy = f"run {program} once and sign in, or set its key in this terminal"
        raise RefusedEarly(f"{name}: {lacks}, and there is no login; {remedy}")
    is_inside = agents.sandbox_of(name) == CONTAINER
    version = "" if is_inside else invocation.version_of(table, context.env)
    account = f"; {redact_text(agent.describe_account(table, context.env))}" if agent.program else ""
    return f"{name} ({f'{program} {version}'.rstrip()}){account}"


def check_sandbox(context: RepositoryContext) -> SetupCheck:
    """What the processes of a run see and may write on this machine, with the settings of the checkout."""
    return _run_check("sandbox", lambda: _check_sandbox(context.with_settings()))


def _check_sandbox(context: RepositoryContext) -> Look:
    agents = context.settings.agents
    if set(agents.sandboxes.values()) == {"none"}:
        return f'off: agents.sandbox = "none". {UNCONFINED}'
    obstacle = require_sandbox(agents, context.settings.tests, context.env)
    if agents.has_containers:
        settings = agents.container
        engine = find_engine(settings, context.env)
        image = preflight.prepare_image(context)
        wanted = preflight.list_image_programs(context)
        took_s, missing = try_image(Container(engine, settings, context.env, Places(image=image)), wanted)
        name = settings.image or f"built from {settings.build}"
        about = f"{engine.name} works. The image {name} starts in {took_s:.1f} s"
        if not missing:
            return f"{about} and has {', '.join(wanted)}"
        return f"{about} and lacks {', '.join(missing)}", "install them in the image"
    if obstacle is None:
        return "\n".join(describe_view(context.env, tests=invocation.home_use(context.settings.tests)))
    remedy = f'{obstacle.remedy}, or turn this off: agents.sandbox = "none"'
    return f"{obstacle.problem}. {UNCONFINED}", remedy


def _check_channels(context: RepositoryContext, channels: Sequence[Channel]) -> Look:
    """The channels of notifications, and the last failure of each that has not worked since."""
    if context.settings.notify.urls and find_spec("apprise") is None:
        return "Apprise is not installed", INSTALL
    if failures := list_failures(context.env, channels):
        lines = (f"{failure.channel} failed at {failure.at}: {plain(failure.why)}" for failure in failures)
        return "\n".join(lines), "correct it in your settings, then run: runplan notify --test"
    return ", ".join(channel.name for channel in channels)


def _check_prompts(context: RepositoryContext) -> str:
    places: dict[str, list[str]] = {}
    for role, prompt in preflight.require_prompts(context).items():
        places.setdefault(prompt.origin.replace(f"{role}.md", "*.md"), []).append(role)
    return "; ".join(f"{place}: {', '.join(roles)}" for place, roles in places.items())


def _check_tests(context: RepositoryContext) -> Look:
    unnamed = preflight.require_test_command(context)
    line = context.settings.tests.command
    other = "or set tests.command to another command"
    if file := toolchain.missing_file(line, preflight.project_files(context)[0]):
        target = context.target_name
        raise RefusedEarly(f"`{line}` needs {file}, which {target} does not have; commit {file} on {target}, {other}")
    _require_programs(context, line, other)
    if unnamed:
        return f"{line}\n{unnamed}", "name JUnit files that it writes in tests.junit"
    if line or context.settings.gates.tables:
        return line or f"none; gates: {', '.join(context.settings.gates.tables)}"
    return "no tests are run, and every report says so", "set tests.command in runplan.toml"


def _check_setup(context: RepositoryContext) -> Look:
    line = context.settings.run.setup
    _require_programs(context, line, "or set run.setup to another command")
    if line:
        return line
    files, texts = preflight.project_files(context)
    need = toolchain.needed_setup([*files, *context.settings.run.copy], texts, context.settings.tests.command)
    if need is None:
        return "none, and none seems to be needed"
    remedy = f"add to runplan.toml, under [run]: setup = {toml_value(need.setup)}"
    if need.is_certain:
        raise RefusedEarly(f"a fresh worktree has no {need.what}, and run.setup is empty; {remedy}")
    return f"run.setup is empty, so tests use the {need.what} that are installed here", remedy


def _check_trial(context: RepositoryContext) -> Look:
    trial = context.settings.trial
    if not trial.serve or not trial.paths:
        lacking = "serve" if not trial.serve else "paths"
        return f"try.{lacking} is empty, so nothing is tried", f"set try.{lacking} in runplan.toml"
    _require_programs(context, trial.serve, "or set try.serve to another command")
    agent = context.settings.agents.trial or context.settings.agents.judges[0]
    return f"{agent} tries changes of {', '.join(trial.paths)}; served by: {trial.serve}"


def _require_programs(context: RepositoryContext, line: str, other: str) -> None:
    if program := preflight.missing_program(context, line):
        raise RefusedEarly(f"`{line}`: {program} was not found; install {program}, {other}")


_NEEDED = ("git", "settings", "identity", "target", "worktrees", "tests", "setup")  #: checks that must pass before it


def _rehearse(caller: Caller, context: RepositoryContext, checks: Sequence[SetupCheck]) -> SetupCheck:
    passed = {check.name for check in checks if check.ok}
    if failed := [name for name in _NEEDED if name not in passed]:
        detail = f"not run, because of: {', '.join(failed)}"
        return SetupCheck("run", State.FAIL, detail, "correct the failed checks first")
    ended: list[e.DispatchEnded] = []

    def show(event: e.Event) -> None:
        if isinstance(event, e.DispatchStarted | e.DispatchEnded):
            caller.show(event)
        if isinstance(event, e.DispatchEnded):
            ended.append(event)

    try:
        context = runs.with_target_settings(context.with_settings(), "").with_landing("cherry-pick")
        with Interruption(0.0), open_repository(context) as repository:
            phase = rehearse_phase(context, repository, show).work
    except RunplanError as error:
        return _failed_check("run", error)
    failure = phase.failure
    if failure is not None and failure.reason != Reason.STOPPED:  # it stops where the first agent would start
        last = "".join(f"\n{line}" for line in failure.output.splitlines()[-LINES_SHOWN:])
        return SetupCheck("run", State.FAIL, f"{failure.detail}{last}", failure.reason.advice)
    results = [from_text(known.results) for known in phase.proof.baselines.values()]
    names = {Role.SETUP: "set-up"}
    times = [f"{names.get(dispatch.role, 'tests')} {elapsed(dispatch.seconds)}" for dispatch in ended]
    detail = "; ".join([", ".join(times), *(result.line for result in results)]) if times else "there is nothing to run"
    if any(result.red for result in results):
        remedy = "repair the tests that fail; until then runs accept their failures"
        return SetupCheck("run", State.WARN, detail, remedy)
    return SetupCheck("run", State.OK, detail)


def _check_forge(context: RepositoryContext) -> list[SetupCheck]:
    """The token, and the settings of the repository that decide how a pull request is merged."""
    run = context.settings.run
    method = context.settings.pull_request.method
    kind = "github"
    try:
        kind = forge_kind(read_address(context.git, remote=run.remote, env=context.env).host, context.env)
        forge = find_forge(context.git, remote=run.remote, env=context.env)
        there = forge.read_repository()
        target = forge.read_target(run.target)
        remarks = modes.require_mergeable(forge, context.settings)
    except NotAllowed as error:
        return [SetupCheck(kind, State.FAIL, str(error), f"check the token from {forge.token_source}")]
    except RunplanError as error:
        return [_failed_check(kind, error)]
    scopes = f" (scopes {', '.join(there.scopes)})" if there.scopes else ""
    auto = "auto-merge is allowed" if target.auto_merge else "auto-merge is off"
    needs = target.requirements
    merge = "; ".join([target.choose_method(method) or "by the merge queue", auto, *remarks])
    return [
        SetupCheck(kind, State.OK, f"{there.name}; token from {forge.token_source}{scopes} may push"),
        SetupCheck("merge", State.OK, merge),
        SetupCheck("rules", State.OK, f"{run.target} requires {needs}" if needs else f"none for {run.target}"),
    ]


def _check_start(context: RepositoryContext) -> str:
    """The refusals of `start` that no other check has found."""
    if is_partial_clone(read_listing(context.git.text("config", "--list", "-z"))):
        raise RefusedEarly(PARTIAL_CLONE)
    modes.require_ready(context.repository, context.settings, context.env)
    require_workable(context.repository, target=context.target, prefix=context.settings.run.branch_prefix)
    preflight.require_agents(context)
    if context.fleet is not None and not uses_remote(context.settings.run.landing):
        return "no further obstacle for direct and pr; a fleet needs one of these words, or run.landing"
    return "no further obstacle"
