"""Work on the ready plans of the queue, and arrange them."""

from contextlib import closing

from msgspec.structs import replace

from runplan.adapters.store.protocol import open_store
from runplan.app.operations import runs
from runplan.app.operations.model import Accepted, Answer, Caller, operation
from runplan.app.operations.requests import QueueRequest, WorkRequest
from runplan.domain import names
from runplan.domain.errors import RefusedEarly, UsageError
from runplan.domain.run.requests import RunRequest
from runplan.domain.settings.options import Options, parse_words
from runplan.domain.standing.queue import PINNED, move_plan
from runplan.domain.text import counted, plain
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.queue import read_queue


def _read_words(context: RepositoryContext, request: WorkRequest) -> tuple[str, Options]:
    """How many plans are asked for, and the words of start."""
    first = next(iter(request.options), "")
    is_count = first.lower() == "all" or (first.isascii() and first.isdigit() and len(first) < 5)
    count, *words = request.options if is_count else ("1", *request.options)
    asked = parse_words(words)
    if asked.phase:
        raise UsageError(f"{asked.phase}: work takes a number of plans or `all` first, then the words of start")
    if count.strip("0") == "":
        raise UsageError(f"work {count}: say how many plans to work on, or all")
    if context.fleet is not None:
        raise RefusedEarly(
            "a fleet has no work on the queue, because its hosts take as many plans as they can; "
            "start each one: runplan start PLAN finish"
        )
    return "all" if count.lower() == "all" else str(int(count)), asked


def preview_work(caller: Caller, request: WorkRequest) -> str:
    with caller.open() as context:
        count, asked = _read_words(context, request)
        context = runs.with_target_settings(runs.with_landing(context, asked.landing), asked.landing)
        preflight.require_test_command(context)
        entries = read_queue(context, context.store())
    ready = [f"{entry.plan}  {counted(entry.phases, 'open phase')}" for entry in entries if not entry.why]
    taken = ready if count == "all" else ready[: int(count)]
    pauses = "where a plan asks for it" if asked.auto else "before each landing"
    lines = [
        f"target      {context.target_name}, landing by {context.settings.run.landing}",
        f"pauses      {pauses}",
        "",
        *(taken or ["No plan is ready."]),
        *(f"{entry.plan}  not ready yet: {entry.why}" for entry in entries if entry.why),
    ]
    return "\n".join([*map(plain, lines), "", "Nothing was changed."])


@operation
def work(caller: Caller, request: WorkRequest) -> Answer:
    with caller.open() as context:
        count, asked = _read_words(context, request)
        context = runs.with_landing(context, asked.landing)
        runs.complete_landings(caller, context)
        context = runs.with_target_settings(context, asked.landing)
        preflight.require_test_command(context)
        runs.admit_agents(caller, context)
        name = f"{names.QUEUE}{count}"
        started = runs.run_started(context, name, names.describe_watch(name), replace(asked, finish=True))
        timing = runs.timing_of(asked, context.settings.run)
        return runs.submit_run(caller, context, RunRequest(started=started), timing)


@operation
def queue(caller: Caller, request: QueueRequest) -> Answer:
    with caller.open(lenient=True) as context:
        order = [entry.plan for entry in read_queue(context, context.store())]
        plan = names.find_plan(request.plan, order, place=" in the queue")
        with closing(open_store(context.journal)) as store:
            places = store.list_places()
            match request.action:
                case "pin":
                    places[plan] = PINNED
                case "unpin":
                    places.pop(plan, None)
                case "move" if request.to is not None and request.to > 0:
                    places = move_plan(order, places, plan, request.to)
                case _:
                    raise UsageError(f"queue: say move {plan} N, pin {plan} or unpin {plan}")
            store.put_places(places)
        now = [entry.plan for entry in read_queue(context, context.store())]
    caller.say(f"{plan} is number {now.index(plan) + 1} of {len(now)} in the queue")
    return Accepted(plan=plan)
