"""Stop, pause, resume, run now: for plans that have a run or a schedule."""

import os
import signal

from msgspec.structs import replace

from runplan.adapters import processes
from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.protocol import Store
from runplan.app.operations import runs
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, operation
from runplan.app.operations.requests import NowRequest, PauseRequest, ResumeRequest, StopRequest, TellRequest
from runplan.domain.errors import NotFound, Unreachable, UsageError, error_with
from runplan.domain.names import QUEUE, WATCHES
from runplan.domain.run.rows import Answer as RowAnswer, Command
from runplan.domain.text import command, plain
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, plan_or_watch, plan_path
from runplan.engine.loop.runs import end_recorded_agents
from runplan.hosts.commands import KEEP_SCHEDULE, request_of
from runplan.hosts.daemon import submit
from runplan.hosts.daemon.state import read_holder

ENDING_S = 20.0  #: for a foreground run to end its agents


@operation
def pause(caller: Caller, request: PauseRequest) -> Answer:
    return _pause_or_resume(caller, request.plan, "pause", ". Resume with: runplan resume")


@operation
def resume(caller: Caller, request: ResumeRequest) -> Answer:
    return _pause_or_resume(caller, request.plan, "resume", "; see: runplan status")


def _pause_or_resume(caller: Caller, word: str, verb: str, then: str) -> Answer:
    """Pause or resume the plan; `then` is the rest of the message, without the plan."""
    with caller.open(lenient=verb == "pause") as context:
        plan = plan_or_watch(context, word)
        store = context.store()
        run = store.get_interrupted_run(plan)
        has_run = run is not None and run.daemon
        row = store.get_schedule(plan)
        is_kept = has_run or row is not None or plan.startswith(QUEUE)
        if is_kept and verb == "resume" and not plan.startswith(WATCHES):
            place = context.landing_like(request_of(row).started) if row else context.for_plan(plan)
            preflight.require_active(place, plan)
        answer = runs.submit_command(caller, context, plan, verb, wait=verb == "resume") if is_kept else RowAnswer()
    if answer is not None and not answer.lines:
        raise NotFound(f"{plan} has no daemon run and no schedule; see: {command('runplan', 'status', plan)}")
    caller.say(f"{answer.lines[0] if answer is not None else submit.BUSY}{then} {command(plan)}")
    return Accepted(plan=plan)


@operation
def tell(caller: Caller, request: TellRequest) -> Answer:
    text = plain(request.text).strip()
    if not text:
        raise UsageError("tell: the text is empty")
    with caller.open(lenient=True) as context:
        plan = plan_path(context, request.plan)
        run = context.store().get_interrupted_run(plan)
        if run is None or not run.daemon:
            where = "runs in a terminal, not in the daemon" if run is not None else "is not running"
            raise NotFound(f"{plan} {where}; nobody was told. See: {command('runplan', 'status', plan)}")
        arguments = {"text": text, "by": runs.name_person(caller, context)}
        answer = runs.submit_command(caller, context, plan, "tell", arguments)
    if answer is None or not answer.lines:
        raise NotFound(f"the run of {plan} has ended meanwhile; nobody was told")
    caller.say(answer.lines[0])
    return Accepted(plan=plan, run=run.id)


@operation
def now(caller: Caller, request: NowRequest) -> Answer:
    with caller.open() as context:
        plans = [row.plan for row in context.store().list_schedules()]
        if not request.plan and len(plans) > 1:
            raise UsageError(f"now: there is more than one schedule; name one of {', '.join(plans)}")
        plan = plan_or_watch(context, request.plan) if request.plan else plans[0] if plans else ""
        if plan not in plans:
            make = command("runplan", "start", plan or "PLAN", "auto", "every", "4h")
            raise NotFound(f"{plan or 'this repository'} has no schedule; make one: {make}")
        row = context.store().get_schedule(plan)
        if row is not None and not plan.startswith(WATCHES):
            preflight.require_active(context.landing_like(request_of(row).started), plan)
        answer = runs.submit_command(caller, context, plan, "now")
    assert answer is not None
    return runs.tell_answer(caller, plan, answer)


@operation
def stop(caller: Caller, request: StopRequest) -> Answer:
    with caller.open(lenient=True) as context:
        plan = plan_or_watch(context, request.plan) if request.plan else ""
        store = context.store()
        lines, still_running = _end_foreground(context, store, plan, force=request.force)
        active = [name for name in store.list_active_plans(queued=True) if plan in ("", name)]
        arguments = {KEEP_SCHEDULE: True} if request.keep_schedule else {}
        wanted = Command(plan="", verb="stop", arguments=arguments, by="runplan stop", at="")
        commands = [replace(wanted, plan=name) for name in active if name not in still_running]
        error: Exception | None = Unreachable("; ".join(still_running.values())) if still_running else None
        try:
            answers = submit.submit_commands(context, commands, say=caller.say) if commands else []
            lines += [line for answer in answers if answer is not None for line in answer.lines]
            lines += [submit.BUSY] if None in answers else []
            errors = (error_with(answer.error, answer.exit) for answer in answers if answer and answer.error)
            error = next(errors, error)
        except Unreachable as failed:
            # The daemon does not answer, or nothing can be recorded: agents are ended all the same.
            plans = [] if context.fleet else end_recorded_agents(context.state, plan)
            lines += [f"Ended the agent of {ended}; its work is kept" for ended in plans]
            is_queued = isinstance(failed, submit.StillQueued)  # the daemon executes it when it can
            error = failed if is_queued else Unreachable(f"{failed}; then stop it again")
    for line in lines:
        caller.say(line)
    if error is not None:
        raise error
    if lines:
        return Accepted(plan=plan)
    caller.say(f"Nothing to stop {f'for {plan}' if plan else 'here'}")
    return Declined()


def _end_foreground(
    context: RepositoryContext, store: Store, plan: str, *, force: bool
) -> tuple[list[str], dict[str, str]]:
    """End foreground runs in other terminals as Ctrl-C twice does; messages, and errors by plan."""
    owners = {key: owner for key, owner in store.list_owners().items() if plan in ("", key)}
    daemon = read_holder(state_directory(context.env))
    others = (processes.identity(os.getpid()), daemon.identity if daemon else None)
    lines = list[str]()
    still_running = dict[str, str]()
    for key, owner in owners.items():
        process = processes.living(owner) if owner not in others else None
        if process is None:
            continue
        # The second signal ends the agents; the same signal twice could be delivered once. Ctrl-Z may have stopped it.
        for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            processes.send(process, number)
        if processes.await_gone([process], timeout_s=ENDING_S):
            at_once = command("runplan", "stop", key, "--force")
            still_running[key] = f"the run of {key} in process {process.pid} still runs; end it at once: {at_once}"
        else:
            lines.append(f"Stopped the run of {key} in process {process.pid}")
    return lines, still_running
