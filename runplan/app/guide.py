"""What to do next in this directory: the answer to `runplan` without a verb."""

from datetime import UTC, datetime

from msgspec import Struct

from runplan.adapters.agents.invocation import require_agents
from runplan.adapters.configuration.places import repository_file
from runplan.app.operations.model import Caller
from runplan.app.views.plans import read_plans
from runplan.app.views.status import PlanState, PlanView
from runplan.domain.errors import RefusedEarly
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.text import command
from runplan.engine.loop.preflight import needed_commit

FEW = 3  #: plans of a kind that are named


class Step(Struct, frozen=True, kw_only=True):
    command: str
    why: str


DEMO = Step(command="runplan demo", why="see it work on a plan, in a temporary repository and without any agent")
HELP = Step(command="runplan help", why="all verbs")


def list_steps(caller: Caller) -> tuple[Step, ...]:
    """What needs a person first, then what a person can begin."""
    try:
        with caller.open(lenient=True) as context:
            views, _ = read_plans(context, "", datetime.now(UTC), warn=caller.warn)
            is_set_up = repository_file(context.root) is not None or context.committed() is not None
            agents, limits = context.settings.agents, context.settings.limits
            lacks = ""  #: why no agent of the settings can work
            try:
                require_agents(agents, root=context.root, caller=context.env, in_dollars=limits.in_dollars)
            except RefusedEarly as error:
                lacks = str(error)
            opens = [view for view in views if view.state is PlanState.OPEN and view.status == PlanStatus.ACTIVE]
            commits = {view.plan: needed_commit(context, view.plan, view.plan) for view in opens[:FEW]}
    except RefusedEarly as error:  # outside of a repository
        return (Step(command="cd REPOSITORY", why=str(error)), DEMO, HELP)
    if not is_set_up:
        init = Step(command="runplan init", why="write the settings that fit this repository into runplan.toml")
        return (init, DEMO, HELP)
    plans = {state: [view for view in views if view.state is state] for state in PlanState}
    needing = [*plans[PlanState.WAITING], *plans[PlanState.FAILED]]
    steps = [Step(command=view.actions[0].command, why=_describe(view)) for view in needing[:FEW] if view.actions]
    if len(needing) > FEW:
        steps.append(Step(command="runplan inbox", why=f"{len(needing)} plans need you"))
    running = plans[PlanState.RUNNING][:FEW]
    steps += [Step(command=command("runplan", "logs", view.plan, "-f"), why=_describe(view)) for view in running]
    if lacks:
        return (*steps, Step(command="runplan doctor", why=lacks), DEMO, HELP)
    for view in opens[:FEW]:
        start = Step(command=command("runplan", "start", view.plan, "finish", "auto"), why=f"work on {view.title}")
        commit = commits[view.plan]
        steps.append(Step(command=commit, why=f"commit {view.title}, before work on it") if commit else start)
    steps.append(Step(command='runplan plan "GOAL"', why="have a plan written, which you approve before any work"))
    return (*steps, Step(command="runplan status", why="all plans"), HELP)


def _describe(view: PlanView) -> str:
    words = view.words or (view.run.words if view.run else "")
    return f"{view.title}: {words}" if words else view.title
