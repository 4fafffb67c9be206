"""Checks the setup, with a remedy for every problem."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from importlib.util import find_spec

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
from runplan.adapters.notify.channels import list_channels, list_failures
from runplan.adapters.sandbox.container import Container, find_engine, try_image
from runplan.adapters.sandbox.engines import CONTAINER, describe_view, require_sandbox
from runplan.adapters.sandbox.view import Places
from runplan.adapters.store.location import hide_password
from runplan.adapters.store.protocol import load_postgres, open_store
from runplan.app.operations import runs
from runplan.app.operations.model import Caller
from runplan.app.views.inspection import inspect_repository
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
_NEEDED = ("git", "settings", "identity", "target", "worktrees", "tests", "setup")  #: checks that must pass before it


class State(StrEnum):
    OK = "ok"
    WARN = "WARN"  #: a run can start
    FAIL = "FAIL"


class SetupCheck(Struct):
    name: str
    state: State = State.OK
    detail: str = ""
    remedy: str = ""  #: empty when ok

    @property
    def ok(self) -> bool:
        return self.state is not State.FAIL


@contextmanager
def make_check(name: str, checks: list[SetupCheck]) -> Iterator[SetupCheck]:
    """Add the check that the block makes: a warning when it gets a remedy; a refusal is its failure."""
    check = SetupCheck(name)
    checks.append(check)
    try:
        yield check
        check.state = State.WARN if check.remedy else State.OK
    except RunplanError as error:
        _fail(check, error)


def _fail(check: SetupCheck, error: RunplanError) -> SetupCheck:
    """A refusal, split into the problem and its remedy at the first semicolon that is not in a quoted command."""
    text = str(error).removeprefix("agent-missing: ").removeprefix(f"agents.{check.name}: ")
    parts = re.match(r"((?:`[^`]*`|(?!; ).)*)(?:; (.*))?", text, re.DOTALL)
    assert parts is not None
    check.state = State.FAIL
    check.detail = parts[1]
    check.remedy = parts[2] or "correct it; see runplan config"
    return check


def examine(caller: Caller, *, runs_once: bool = False) -> list[SetupCheck]:
    """Every check, in the order in which a run would fail; `runs_once`: also set-up and tests, in a fresh worktree."""
    checks: list[SetupCheck] = []
    with context_at(caller.cwd, caller.env, lambda _root, _env: Settings()) as context:
        settled = _check_repository(context, checks)
        if settled is not None:
            _check_agents(settled, checks)
            if all(check.ok for check in checks if check.name == "target"):
                _check_project(settled.with_landing("cherry-pick"), checks)  # the remote of others is asked last
            _check_landing(settled, checks)
        if runs_once:
            checks.append(_rehearse(caller, context, checks))
    return checks


def _check_repository(context: RepositoryContext, checks: list[SetupCheck]) -> RepositoryContext | None:
    """The context with the settings of the target; None when they cannot be read."""
    facts = inspect_repository(context)
    with make_check("git", checks) as finding:
        require_git(facts.git_version)
        finding.detail = f"version {facts.git_version.removeprefix('git version ')}"
        if left_out := context.left_out:
            finding.detail = "\n".join((finding.detail, *left_out))
            finding.remedy = "move the included file out of the checkout if runplan's git needs it"
    with make_check("settings", checks) as finding:
        context = runs.with_target_settings(context.with_settings(), "")
        note, _, finding.remedy = settings_note(context).partition(". ")
        finding.detail = note or "every key is valid"
    is_settled = checks[-1].ok
    with make_check("identity", checks) as finding:
        if facts.identity is None:
            raise RefusedEarly(NO_IDENTITY)
        finding.detail = f"{facts.identity.name} <{facts.identity.email}>"
    if not is_settled:
        return None
    with make_check("target", checks) as finding:
        require_target(context, context.local_target)
        finding.detail = f"branch {context.settings.run.target}"
    with make_check("worktrees", checks) as finding:
        place = worktree_root(context.root, context.settings, context.env)
        nearest = next(directory for directory in (place, *place.parents) if directory.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise RefusedEarly(f"{place} is not writable; set run.worktrees to a writable directory")
        finding.detail = str(place)
    fleet = find_fleet(context, context.settings) if context.settings.fleet.dsn else None
    if fleet is not None:
        with make_check("fleet", checks) as finding:
            with closing(open_store(fleet)) as store:
                count = len(store.list_host_labels())
            workers = counted(count, "living worker") if count else "no worker takes plans"
            finding.detail = f"{hide_password(fleet.dsn)}, version {load_postgres().SCHEMA_VERSION}; {workers}"
            finding.remedy = "" if count else "start one on a host: runplan worker"
    return replace(context, fleet=fleet)


def _check_agents(context: RepositoryContext, checks: list[SetupCheck]) -> None:
    """The agents and where they work, and the channels of notifications."""
    agents = context.settings.agents
    in_dollars = context.settings.limits.in_dollars
    for role, name in (*agents.dispatched, ("planner", agents.planner)):
        with make_check(role, checks) as finding:
            table = agents.agent(name)
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
            finding.detail = f"{name} ({f'{program} {version}'.rstrip()}){account}"
    planner = checks[-1]
    if not planner.ok:
        planner.state = State.WARN
        planner.detail = f"`runplan plan` cannot work: {planner.detail}"
    with make_check("sandbox", checks) as finding:
        finding.detail, finding.remedy = describe_sandbox(context)
    channels = list_channels(context.settings.notify, context.env)
    if not channels:
        return
    with make_check("notify", checks) as finding:
        finding.detail = ", ".join(channel.name for channel in channels)
        if context.settings.notify.urls and find_spec("apprise") is None:
            finding.detail, finding.remedy = "Apprise is not installed", INSTALL
        elif failures := list_failures(context.env, channels):  # of each channel that has not worked since
            lines = (f"{failure.channel} failed at {failure.at}: {plain(failure.why)}" for failure in failures)
            finding.detail = "\n".join(lines)
            finding.remedy = "correct it in your settings, then run: runplan notify --test"


def describe_sandbox(context: RepositoryContext) -> tuple[str, str]:
    """What the processes of a run see and may write on this machine, and a remedy."""
    agents = context.settings.agents
    if set(agents.sandboxes.values()) == {"none"}:
        return f'off: agents.sandbox = "none". {UNCONFINED}', ""
    obstacle = require_sandbox(agents, context.settings.tests, context.env)
    if agents.has_containers:
        settings = agents.container
        engine = find_engine(settings, context.env)
        image = preflight.prepare_image(context)
        checks = [check.command for check in context.settings.checks.values()]
        lines = [context.settings.run.setup, context.settings.trial.serve, *checks]
        called = [program for line in lines for program in toolchain.programs_of(line)]
        inside = [table for table in agents.used if agents.sandbox_of(table.name) == CONTAINER]
        called += [invocation.program_of(table) for table in inside if table.kind != "script"]
        wanted = list(dict.fromkeys(("git", "python3", *(name for name in called if "/" not in name))))
        took_s, missing = try_image(Container(engine, settings, context.env, Places(image=image)), wanted)
        name = settings.image or f"built from {settings.build}"
        about = f"{engine.name} works. The image {name} starts in {took_s:.1f} s"
        if not missing:
            return f"{about} and has {', '.join(wanted)}", ""
        return f"{about} and lacks {', '.join(missing)}", "install them in the image"
    if obstacle is None:
        return "\n".join(describe_view(context.env, tests=invocation.home_use(context.settings.tests))), ""
    remedy = f'{obstacle.remedy}, or turn this off: agents.sandbox = "none"'
    return f"{obstacle.problem}. {UNCONFINED}", remedy


def _check_project(context: RepositoryContext, checks: list[SetupCheck]) -> None:
    """What the target has for a run: prompts, tests, set-up, and a command that serves its interface."""
    settings = context.settings
    with make_check("prompts", checks) as finding:
        places: dict[str, list[str]] = {}
        for role, prompt in preflight.require_prompts(context).items():
            places.setdefault(prompt.origin.replace(f"{role}.md", "*.md"), []).append(role)
        finding.detail = "; ".join(f"{place}: {', '.join(roles)}" for place, roles in places.items())
    with make_check("tests", checks) as finding:
        unnamed = preflight.require_test_command(context)
        line = settings.tests.command
        other = "or set tests.command to another command"
        if file := toolchain.missing_file(line, preflight.project_files(context)[0]):
            target = context.target_name
            raise RefusedEarly(
                f"`{line}` needs {file}, which {target} does not have; commit {file} on {target}, {other}"
            )
        _require_programs(context, line, other)
        finding.detail = line
        if unnamed:
            finding.detail = f"{line}\n{unnamed}"
            finding.remedy = "name JUnit files that it writes in tests.junit"
        elif not line and settings.gates.tables:
            finding.detail = f"none; gates: {', '.join(settings.gates.tables)}"
        elif not line:
            finding.detail = "no tests are run, and every report says so"
            finding.remedy = "set tests.command in runplan.toml"
    with make_check("setup", checks) as finding:
        line = settings.run.setup
        _require_programs(context, line, "or set run.setup to another command")
        files, texts = preflight.project_files(context)
        need = toolchain.needed_setup([*files, *settings.run.copy], texts, settings.tests.command)
        finding.detail = line or "none, and none seems to be needed"
        if need is not None and not line:
            finding.detail = f"run.setup is empty, so tests use the {need.what} that are installed here"
            finding.remedy = f"add to runplan.toml, under [run]: setup = {toml_value(need.setup)}"
            if need.is_certain:
                raise RefusedEarly(f"a fresh worktree has no {need.what}, and run.setup is empty; {finding.remedy}")
    trial = settings.trial
    if trial == TrySettings():
        return
    with make_check("trial", checks) as finding:
        if not trial.serve or not trial.paths:
            lacking = "serve" if not trial.serve else "paths"
            finding.detail = f"try.{lacking} is empty, so nothing is tried"
            finding.remedy = f"set try.{lacking} in runplan.toml"
            return
        _require_programs(context, trial.serve, "or set try.serve to another command")
        agent = settings.agents.trial or settings.agents.judges[0]
        finding.detail = f"{agent} tries changes of {', '.join(trial.paths)}; served by: {trial.serve}"


def _require_programs(context: RepositoryContext, line: str, other: str) -> None:
    if program := preflight.missing_program(context, line):
        raise RefusedEarly(f"`{line}`: {program} was not found; install {program}, {other}")


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
        return _fail(SetupCheck("run"), error)
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


def _check_landing(context: RepositoryContext, checks: list[SetupCheck]) -> None:
    """The token and the rules of the forge, and the refusals of `start` that no other check has found."""
    run = context.settings.run
    if run.concludes:
        kind = "github"
        try:
            kind = forge_kind(read_address(context.git, remote=run.remote, env=context.env).host, context.env)
            forge = find_forge(context.git, remote=run.remote, env=context.env)
            there = forge.read_repository()
            target = forge.read_target(run.target)
            remarks = modes.require_mergeable(forge, context.settings)
        except NotAllowed as error:
            checks.append(SetupCheck(kind, State.FAIL, str(error), f"check the token from {forge.token_source}"))
            return
        except RunplanError as error:
            checks.append(_fail(SetupCheck(kind), error))
            return
        scopes = f" (scopes {', '.join(there.scopes)})" if there.scopes else ""
        auto = "auto-merge is allowed" if target.auto_merge else "auto-merge is off"
        method = target.choose_method(context.settings.pull_request.method) or "by the merge queue"
        needs = f"{run.target} requires {target.requirements}" if target.requirements else f"none for {run.target}"
        checks += [
            SetupCheck(kind, State.OK, f"{there.name}; token from {forge.token_source}{scopes} may push"),
            SetupCheck("merge", State.OK, "; ".join([method, auto, *remarks])),
            SetupCheck("rules", State.OK, needs),
        ]
    if not all(check.ok for check in checks):
        return
    with make_check("start", checks) as finding:
        if is_partial_clone(read_listing(context.git.text("config", "--list", "-z"))):
            raise RefusedEarly(PARTIAL_CLONE)
        modes.require_ready(context, context.settings, context.env)
        require_workable(context, target=context.target, prefix=run.branch_prefix)
        preflight.require_agents(context)
        finding.detail = "no further obstacle"
        if context.fleet is not None and not uses_remote(run.landing):
            finding.detail += " for direct and pr; a fleet needs one of these words, or run.landing"
