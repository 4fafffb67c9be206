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
from runplan.domain.settings.options import parse_words
from runplan.domain.standing.queue import PINNED, move_plan
from runplan.engine.loop import preflight
from runplan.engine.loop.queue import read_queue


@operation
def work(caller: Caller, request: WorkRequest) -> Answer:
    first = next(iter(request.options), "")
    is_count = first.lower() == "all" or (first.isascii() and first.isdigit() and len(first) < 5)
    count, *words = request.options if is_count else ("1", *request.options)
    asked = parse_words(words)
    if asked.phase:
        raise UsageError(f"{asked.phase}: work takes a number of plans or `all` first, then the words of start")
    if count.strip("0") == "":
        raise UsageError(f"work {count}: say how many plans to work on, or all")
    with caller.open() as context:
        if context.fleet is not None:
            raise RefusedEarly(
                "a fleet has no work on the queue, because its hosts take as many plans as they can; "
                "start each one: runplan start PLAN finish"
            )
        context = runs.with_landing(context, asked.landing)
        runs.complete_landings(caller, context)
        context = runs.with_target_settings(context, asked.landing)
        preflight.require_test_command(context)
        runs.admit_agents(caller, context)
        name = f"{names.QUEUE}{'all' if count.lower() == 'all' else int(count)}"
        started = runs.run_started(context, name, names.describe_watch(name), replace(asked, finish=True))
        timing = runs.timing_of(asked, context.settings.run)
        return runs.submit_run(caller, context, RunRequest(started=started), timing)


@operation
def queue(caller: Caller, request: QueueRequest) -> Answer:
    with caller.open(lenient=True) as context:
        order = [entry.plan for entry in read_queue(context, context.store())]
        plan = names.find_plan(request.plan, order, place="the queue")
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
