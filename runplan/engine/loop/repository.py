"""Opens a repository for work: journal, claims, workspace and processes. Agents outlive it."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runplan.adapters.agents.invocation import Agents
from runplan.adapters.clock import SystemClock
from runplan.adapters.configuration.places import remove_unused_root, worktree_root
from runplan.adapters.git import repository as repositories
from runplan.adapters.git.objects import Candidates
from runplan.adapters.git.removal import Removal
from runplan.adapters.git.repository import Fingerprints
from runplan.adapters.git.workspace import Workspace
from runplan.adapters.git.zones import Zones
from runplan.adapters.sandbox.view import Places
from runplan.adapters.store.claims import Claims
from runplan.adapters.store.files import make_below
from runplan.adapters.store.protocol import open_store
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain import names
from runplan.domain.errors import RefusedEarly, RunplanError, Unreachable
from runplan.domain.plan.model import parse_plan
from runplan.domain.run.events import RunStarted
from runplan.domain.run.rows import Command
from runplan.engine.landing import modes
from runplan.engine.landing.lander import Sighting
from runplan.engine.landing.pull_request import PlanPlace
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.preflight import list_own, prepare_image, require_prompts, settle_lost_landings, with_agents_of
from runplan.engine.report.summary import describe_plan
from runplan.engine.steps.context import OpenRepository, RunContext

ENVIRONMENT = "environment"  #: the argument of a command that names the environment of its caller


class Environments:
    """The environments of callers. They contain the keys of agents, so they are kept in memory only."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._own = environment  #: of this process, for runs whose caller sent none
        self._plans: dict[str, Mapping[str, str]] = {}
        self._sent: dict[str, Mapping[str, str]] = {}  #: by the name in the command
        self._seen: dict[str, tuple[str, Mapping[str, str], Sighting]] = {}  #: by plan: of its newest run

    def receive(self, name: str, sent: Mapping[str, str]) -> None:
        self._sent[name] = sent

    def forget(self, command: Command) -> None:
        self._sent.pop(str(command.arguments.get(ENVIRONMENT)), None)

    def of(self, plan: str) -> Mapping[str, str]:
        return self._plans.get(plan, self._own)

    def use(self, plan: str, command: Command, *, anew: bool) -> None:
        if sent := self._sent.get(str(command.arguments.get(ENVIRONMENT))):
            self._plans[plan] = {**({} if anew else self._plans.get(plan, {})), **sent}

    def share(self, plan: str, watch: str) -> None:
        self._plans[plan] = self.of(watch)

    def sighting(self, plan: str, run: str) -> Sighting:
        env = self.of(plan)
        known = self._seen.get(plan)
        if known is None or known[:2] != (run, env):
            known = self._seen[plan] = (run, env, Sighting())
        return known[2]

    def missing(self, started: RunStarted) -> tuple[str, ...]:
        at_hand = self.of(started.plan)
        return tuple(name for name in started.needs if not at_hand.get(name))


def make_run_context(
    context: RepositoryContext, opened: OpenRepository, *, run: str, started: RunStarted, seen: Sighting | None = None
) -> RunContext:
    context = context.for_run(started)
    with contextlib.suppress(RunplanError):  # the plan is read again before any work
        text = context.git.blob(context.tip(), started.plan)
        phases = parse_plan(text, path=started.plan).phases if text is not None else ()
        context = with_agents_of(context, list_own(context, phases))
    plan = PlanPlace(
        path=started.plan,
        slug=started.slug,
        report=names.report_path(context.settings.paths.reports, started.slug),
        issues=started.issues,
        describe=lambda plan, text, group: describe_plan(plan, text, opened.store.list_facts, group),
        seen=seen or Sighting(),
    )
    workspace = opened.workspace
    needed = (context.root, context.common_dir, workspace.root)
    agents = Agents(
        context.settings.agents,
        root=context.root,
        plan=started.plan,
        run=run,
        caller=context.env,
        tests=context.settings.tests,
        trial=context.settings.trial,
        places=Places(workspace.homes, needed, workspace.hide_secrets(), prepare_image(context), context.state),
        git_config=workspace.agent_config,
    )
    agents.remove_leftovers(opened.dispatches.list_live)
    prefix = context.settings.run.branch_prefix
    zones = Zones(workspace, agents.confine, context.settings.limits, agents.script_env)
    lander, direct = modes.open_landers(
        context, context.settings, context.env, tool=workspace.path, plan=plan, zones=zones
    )
    return RunContext(
        **{name: getattr(opened, name) for name in OpenRepository.__struct_fields__},
        run=run,
        plan=started.plan,
        slug=started.slug,
        root=context.root,
        env=context.env,
        settings=context.settings,
        prompts={role: template.text for role, template in require_prompts(context).items()},
        zones=zones,
        removal=Removal(zones, targets=context.targets),
        candidates=Candidates(workspace.git, user=context.git),
        lander=lander,
        direct=direct,
        fingerprints=Fingerprints(context.git, context.common_dir, prefix, is_own=context.fleet is not None),
        agents=agents,
    )


def open_workspace(context: RepositoryContext) -> Workspace:
    run = context.settings.run
    root = worktree_root(context.root, context.settings, context.env)
    mirror = (context.local_target, f"refs/remotes/{run.remote}/{run.target}")
    return Workspace(context.git, common_dir=context.common_dir, state=context.state, root=root, mirror=mirror)


@contextlib.contextmanager
def open_repository(context: RepositoryContext, *, wakeup: int | None = None) -> Iterator[OpenRepository]:
    """Open a repository, or refuse one that cannot be worked in; `wakeup` interrupts a wait for dispatches."""
    settings = context.settings
    user = repositories.require_workable(context, target=context.target, prefix=settings.run.branch_prefix)
    for program in (context.git.program, sys.executable, __file__):  # no agent may replace them
        for place in Path(program).parents:
            if place == context.state or names.is_worktree_name(place.name.removesuffix("-proof"), str(context.root)):
                raise RefusedEarly(f"{program} is in {place}, where agents write; run runplan with a program elsewhere")
    workspace = open_workspace(context)
    sign = "commit.gpgsign" in dict(workspace.read_config()) and repositories.signing(context.git)
    _make_directory(context.state, below=context.common_dir, remedy="the journal is kept there")
    settle_lost_landings(context)
    with contextlib.ExitStack() as closing:
        closing.callback(remove_unused_root, workspace.root, settings)
        remedy = "set run.worktrees to a directory that can be created"
        _make_directory(workspace.root, below=Path(workspace.root.anchor), mode=0o755, remedy=remedy)
        workspace.make_tool()
        dispatches = closing.enter_context(Dispatches(context.state / "dispatch", wakeup=wakeup))
        store = open_store(context.journal)
        closing.callback(store.close)
        dispatches.stored = store.outputs
        closing.callback(workspace.close)
        claims = Claims(store, context.state / "locks", host=context.fleet.host if context.fleet else "")
        closing.callback(claims.close)
        yield OpenRepository(
            user=user,
            sign=sign,
            clock=SystemClock(),
            store=store,
            claims=claims,
            dispatches=dispatches,
            workspace=workspace,
        )


def _make_directory(directory: Path, *, below: Path, remedy: str, mode: int = 0o700) -> None:
    try:
        make_below(below, directory, mode=mode)
    except OSError as error:
        raise Unreachable(f"{directory} cannot be created: {error.strerror}; {remedy}") from error
