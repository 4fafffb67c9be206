"""Observes the end of a process: its result, what it changed and used, and the wait after a limit."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec.structs import asdict, replace

from runplan.adapters.agents.budgets import meter_usage, price_usage
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.endings import FARTHEST_S, AgentEnding, judge_ending, quote_error
from runplan.adapters.sandbox.serve import UNSERVED
from runplan.domain.checks import returns
from runplan.domain.checks.runners.naming import FILES
from runplan.domain.checks.secrets import redact_text
from runplan.domain.errors import HandOverRefused, ObjectsRefused, RunplanError, Unreachable
from runplan.domain.gitfacts import signing
from runplan.domain.run import dispatch as d, events as e
from runplan.domain.run.attempt_parts import DispatchRecord
from runplan.domain.run.kinds import Reason, Role, WaitKind
from runplan.domain.run.state import RunState
from runplan.domain.text import command, in_words
from runplan.domain.times import CLOCK_ERROR, busy_ends, iso, iso_at, limit_ends, parse_iso
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.gates import keep_products, read_content
from runplan.engine.steps.process import FINGERPRINT, find_removed, sent_at_first, still_running, without_result
from runplan.engine.steps.verify import reply_of

LONGEST_WAIT = timedelta(seconds=FARTHEST_S)
HOST_LOOK = timedelta(minutes=10)  #: after which it is checked whether a host with the labels still lives
LAST_WORDS = 600  #: characters of a failed process's output in the report
#: Endings after which the end of the output says more than the kind.
STOPPED = (d.EndingKind.CRASHED, d.EndingKind.KILLED, d.EndingKind.SILENT, d.EndingKind.TIMED_OUT)


def await_end(state: RunState, context: RunContext) -> Iterator[e.Event]:
    for started in _list_running(state):
        outcome = context.dispatches.standing(started.id)
        if not isinstance(outcome, d.Running):
            break
    else:
        return
    if isinstance(outcome, d.Outcome) and outcome.ending is d.Ending.REFUSED:
        # It never ran: the same dispatch is due again when the run is retried.
        yield without_result(started, outcome.message)
        raise Unreachable(outcome.message)
    if isinstance(outcome, d.NeverStarted) or outcome.ending is d.Ending.LOST:
        context.dispatches.end([started.id], grace_s=d.GRACE_S)
        context.agents.remove_leftovers(context.dispatches.list_live)
    yield from _examine_changes(started, state, context)
    if isinstance(outcome, d.NeverStarted):  # only the intent was recorded, or the agent deleted the files
        yield without_result(started, ending=d.Ending.LOST)
        return
    ended = _record_result(started, context, outcome)
    if removed := find_removed(started, context):
        yield replace(ended, ending=d.Ending.LOST, said="", detail=f"the worktree {removed} was removed meanwhile")
        return
    if started.role is Role.SETUP and ended.succeeded:
        try:
            keep_products(started, state.work, context)
        except (RunplanError, OSError):
            yield without_result(started)
            raise
    if not started.agent:
        yield ended
        return
    agent = agent_of(context.settings.agents.agent(started.agent).kind)
    zone = context.clock.now().astimezone().tzinfo
    if started.role is Role.TRY and outcome.code == UNSERVED:
        printed = read_content(context.dispatches.directory(started.id) / d.SERVER_LOG).decode("utf-8", "replace")
        last = " ".join(printed.split())[-LAST_WORDS:]
        detail = f"{outcome.error.strip()}; {f'its output ended: {last}' if last else 'it printed nothing'}"
        yield replace(ended, kind=d.EndingKind.UNSERVED, detail=detail)
        return
    ending = judge_ending(outcome, agent, writes=started.role.is_writer, zone=zone)
    detail = ended.detail
    if ending.kind in STOPPED:
        has_reason = ended.said in (d.ReturnStatus.BLOCKED, d.ReturnStatus.FAILED)  # in the agent's own return
        detail = detail if has_reason else quote_error(ending, outcome, agent)
    elif ending.kind is not d.EndingKind.SUCCESS:
        detail = ending.words or detail
    ended = replace(ended, kind=ending.kind, detail=detail)
    yield ended if outcome.memory else _name_limit(ended, started)
    newest = state.current.dispatches.newest
    if newest is None or started.id not in newest.beside:  # one beside it is not missed
        yield from _pause_after(ending, state.current.dispatches, context, started)
    pace = context.settings.run.pace
    is_limited = ending.kind is d.EndingKind.LIMIT  # by a window that may end later
    if pace and not is_limited and (quota := outcome.tally.quota) is not None and quota.percent >= pace:
        until = limit_ends(quota.resets, now=context.clock.now().timestamp(), times=1, seed=started.id)
        words = f"{quota.percent}% of its usage window are used, and run.pace is {pace}"
        yield _limit_agent(started.agent, until, words, context)


def end(state: RunState, context: RunContext) -> Iterator[e.Event]:
    for started in _list_running(state):
        if context.dispatches.standing(started.id) == d.Running():
            raise still_running(started.id)
        yield from _examine_changes(started, state, context)
        yield record_ended(started, context)


def record_ended(started: e.DispatchStarted, context: RunContext, detail: str = "") -> e.DispatchEnded:
    outcome = context.dispatches.standing(started.id)
    if not isinstance(outcome, d.Outcome):
        return without_result(started, detail)
    ended = _record_result(started, context, outcome)
    return replace(ended, ending=d.Ending.ENDED, kind=d.EndingKind.KILLED, said="", detail=detail)


def _list_running(state: RunState) -> list[e.DispatchStarted]:
    """The running dispatch, and those beside it, each on its own."""
    started = state.current.dispatches.running
    assert started is not None
    return [replace(started, id=id_, beside=()) for id_ in (started.id, *started.beside)]


def _record_result(started: e.DispatchStarted, context: RunContext, outcome: d.Outcome) -> e.DispatchEnded:
    """How the process ended, what it said and what it used, by its output or by its return."""
    if (stored := context.dispatches.stored) is not None:  # for other hosts
        names = (d.RETURN, d.NOTES, *(f"{d.OWN}/{file}" for file in FILES.values()))
        stored.add_end(context.dispatches.directory(started.id), names, context.agents.redacted)
    usage = outcome.tally.usage
    seconds = outcome.seconds
    table = context.settings.agents.agent(started.agent) if started.agent else None
    if not outcome.ended_at:  # its shim died and recorded neither
        seconds = longest_run_s(started, context.clock.now())
        if table is not None:
            prompt = sent_at_first(agent_of(table.kind), context.dispatches.read(started.id, "prompt.md") or "")
            prices = {"usd_in": table.usd_per_mtok_in, "usd_out": table.usd_per_mtok_out}
            usage = meter_usage(outcome.tally, prompt=prompt, **prices)
    _, returned = reply_of(started.id, context)
    if usage == d.Usage() and isinstance(returned, d.Return):
        usage = returned.usage
    if table is not None and not usage.usd and outcome.ending is not d.Ending.EXITED:  # before it reported dollars
        usage = price_usage(usage, *agent_of(table.kind).highest_usd)
    succeeded = outcome.ending is d.Ending.EXITED and outcome.code == 0
    said = ""
    detail = "" if succeeded else " ".join(outcome.message[-LAST_WORDS:].split())
    if started.role.is_writer or started.role.is_planner:
        if isinstance(returned, d.Return):
            said = returned.status
            detail = returned.summary if said in (d.ReturnStatus.BLOCKED, d.ReturnStatus.FAILED) else detail
        if blockers := returns.find_blockers(outcome.message):
            said = d.ReturnStatus.BLOCKED
            detail = "; ".join(blockers)
    if outcome.survivors:
        detail = ", ".join(outcome.survivors)
    elif outcome.memory:
        detail = f"limits.memory is {context.settings.limits.memory:,} bytes, and its processes used {outcome.memory:,}"
    return e.DispatchEnded(
        id=started.id,
        role=started.role,
        agent=started.agent,
        phase=started.phase,
        ending=outcome.ending,
        code=outcome.code,
        signal=outcome.signal,
        said=said,
        detail=detail,
        seconds=seconds,
        estimated=outcome.estimated,
        refused=outcome.refused,
        **asdict(usage),
    )


def _examine_changes(started: e.DispatchStarted, state: RunState, context: RunContext) -> Iterator[e.Event]:
    """Name changes in the user's repository during the dispatch, and fetch the commits of a writer."""
    if (before := context.dispatches.read(started.id, FINGERPRINT)) is not None:

        def list_landed() -> list[str]:
            return [fact.event.tip for fact in context.store.list_facts(e.Landed, since=started.at)]

        address = signing(started.id).email
        process = "the agent" if started.role.agent else f"the {started.role} command"
        compare = context.fingerprints.describe_differences
        lines, is_violated = compare(before, process, agent=address, list_landed=list_landed)
        if set(lines) - set(state.current.warnings):  # else recorded before a crash
            yield e.GuardFound(violated=is_violated, lines=lines)
    if started.role.is_writer:
        try:
            context.zone.hand_over(branch=state.work.leased.branch, base=state.work.base, copies=context.personal)
        except ObjectsRefused as error:
            reason = Reason.AGENT_FAILED if isinstance(error, HandOverRefused) else Reason.TAMPERED
            yield e.WorkRefused(reason=reason, detail=redact_text(str(error)))


def _name_limit(ended: e.DispatchEnded, started: e.DispatchStarted) -> e.DispatchEnded:
    """Name the setting that ended the dispatch. A time limit of a phase, plan or day counts as a budget."""
    tokens, usd, wall = (*started.bounds, "", "", "")[:3]
    if ended.kind == d.EndingKind.TIMED_OUT and wall not in ("", "limits.wall"):
        detail = f"{wall} left {in_words(started.seconds)}"
        return replace(ended, ending=d.Ending.BUDGET, kind=d.EndingKind.BUDGET, detail=detail)
    if ended.kind != d.EndingKind.BUDGET:
        return ended
    guess = "; its use is an estimate, as this agent reports it only at its end" if ended.estimated else ""
    if started.tokens and (ended.estimated or ended.usage.tokens >= started.tokens):
        return replace(ended, detail=f"{tokens} left {started.tokens} tokens{guess}")
    if started.usd:
        words = f" ({ended.detail})" if ended.detail and ended.ending != d.Ending.BUDGET else ""
        return replace(ended, detail=f"{usd} left ${started.usd:.2f}{words}{guess}")
    return ended


def _pause_after(
    ending: AgentEnding, record: DispatchRecord, context: RunContext, started: e.DispatchStarted
) -> Iterator[e.Event]:
    """The wait after a usage limit or an overload; `record` is that before the agent ended."""
    now = context.clock.now().timestamp()
    if ending.kind is d.EndingKind.LIMIT:
        ends = limit_ends(ending.resets, now=now, times=record.limited + 1, seed=started.id)
        yield _limit_agent(started.agent, ends, ending.words, context)
    elif ending.kind is d.EndingKind.OVERLOADED and record.busy < d.MAX_OVERLOADS:
        ends = busy_ends(now=now, times=record.busy + 1, seed=started.id)
        yield e.Paused(kind=WaitKind.OVERLOADED, until=iso_at(ends), agent=started.agent, words=ending.words)


def _limit_agent(agent: str, ends: float, words: str, context: RunContext) -> e.AgentLimited:
    account = context.settings.agents.account_of(agent)
    return e.AgentLimited(agent=agent, account=account, until=iso_at(ends), words=words)


def sleep(state: RunState, context: RunContext) -> Iterator[e.Event]:
    pause = state.pause
    if pause is None or not pause.until:
        return
    # A wait that is longer than any was recorded by a clock that was ahead.
    left = parse_iso(pause.until) - context.clock.now()
    if left <= timedelta() or left > LONGEST_WAIT + CLOCK_ERROR:
        yield e.Woke(kind=pause.kind)


def await_host(state: RunState, context: RunContext) -> e.Event:
    """Wait for a host that has the labels of the phase; where there is one, look again later whether it is alive."""
    chosen = state.current.chosen
    is_there = any(set(chosen.host) <= set(labels) for labels in context.store.list_host_labels())
    until = iso(context.clock.now() + HOST_LOOK) if is_there else ""
    start = f"no worker has them; start one: {command('runplan', 'worker', '--labels', ','.join(chosen.host))}"
    what = "; it is queued for one" if is_there else f", and {start}"
    needed = f"phase {chosen.phase} needs a host with the labels {', '.join(chosen.host)}"
    return e.Paused(kind=WaitKind.HOST, until=until, words=f"{needed}{what}")


def longest_run_s(started: e.DispatchStarted, now: datetime) -> float:
    passed_s = max(0.0, (now - parse_iso(started.at)).total_seconds()) if started.at else 0.0
    return min(passed_s, started.seconds) if started.seconds else passed_s
