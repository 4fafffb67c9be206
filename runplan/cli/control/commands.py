"""runplan stop, pause, resume, now, diff, approve, reject: commands for plans that have a run or a schedule."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from runplan import processes
from runplan.cli.control import runs
from runplan.cli.show import progress
from runplan.cli.terminal import as_json
from runplan.daemon import submit
from runplan.daemon.state import holder
from runplan.engine import preflight
from runplan.engine.context import open_context, plan_or_watch, plan_path, scheduled
from runplan.engine.commands import KEEP_SCHEDULE
from runplan.engine.runs import end_recorded_agents
from runplan.engine.schedules import request_of
from runplan.errors import Exit, NotFound, Unreachable, UsageError, error_with
from runplan.names import WATCH
from runplan.run.decide import ANSWERED, decide
from runplan.run.events import Answered
from runplan.run.requests import Answer, RunRequest
from runplan.run.rows import Command
from runplan.run.state import open_states
from runplan.settings.places import state_directory
from runplan.text import command, plain

if TYPE_CHECKING:
    import argparse

    from runplan.engine.context import RepositoryContext
    from runplan.run.state import PhaseRun, RunState
    from runplan.store.sqlite import Store

SHORT = 12  #: digits of an id
ENDING_S = 20.0  #: for a foreground run to end its agents


def run_pause(args: argparse.Namespace) -> Exit:
    return _control(args.plan, "pause", ". Resume with: runplan resume")


def run_resume(args: argparse.Namespace) -> Exit:
    return _control(args.plan, "resume", "; see: runplan status")


def _control(word: str, verb: str, then: str) -> Exit:
    """Pause or resume the plan; `then` is the rest of the message, without the plan."""
    with open_context(warn=progress.warn if verb == "pause" else None) as at:
        plan, store = plan_or_watch(at, word), at.store()
        has_run = store.interrupted(plan) is not None and store.is_daemons(plan)
        is_kept = has_run or store.schedules.get(plan) is not None
        answer = runs.submit(at, plan, verb, wait=verb == "resume") if is_kept else Answer()
    if answer is not None and not answer.lines:
        raise NotFound(f"{plan} has no daemon run and no schedule; see: {command('runplan', 'status', plan)}")
    progress.say(f"{answer.lines[0] if answer is not None else submit.BUSY}{then} {command(plan)}")
    return Exit.DONE


def run_now(args: argparse.Namespace) -> Exit:
    with open_context() as at:
        plans = scheduled(at)
        if args.plan is None and len(plans) > 1:
            raise UsageError(f"now: there is more than one schedule; name one of {', '.join(plans)}")
        plan = plan_or_watch(at, args.plan) if args.plan else plans[0] if plans else ""
        if plan not in plans:
            make = command("runplan", "start", plan or "PLAN", "auto", "every", "4h")
            raise NotFound(f"{plan or 'this repository'} has no schedule; make one: {make}")
        row = at.store().schedules.get(plan)
        if row is not None and not plan.startswith(WATCH):
            preflight.require_active(at.landing_like(request_of(row).started), plan)
        answer = runs.submit(at, plan, "now")
    assert answer is not None
    return runs.print_answer(plan, answer)


# --- stop -------------------------------------------------------------------------------------------------


def run_stop(args: argparse.Namespace) -> Exit:
    with open_context(warn=progress.warn) as at:
        plan = plan_or_watch(at, args.plan) if args.plan else ""
        if not _stop(at, at.store(), plan, keep_schedule=args.keep_schedule, force=args.force):
            progress.say(f"Nothing to stop {f'for {plan}' if plan else 'here'}")
    return Exit.DONE


def _stop(at: RepositoryContext, store: Store, plan: str, *, keep_schedule: bool, force: bool) -> bool:
    """Cancel schedules and end runs, of one plan or of all; whether there were any."""
    arguments = {KEEP_SCHEDULE: True} if keep_schedule else {}
    lines, still_running = _end_foreground(at, store, plan, force=force)
    plans = [one for one in store.active_plans(queued=True) if plan in ("", one) and one not in still_running]
    commands = [Command(plan=one, verb="stop", arguments={}, by="runplan stop", at="") for one in plans]
    error: Exception | None = Unreachable("; ".join(still_running.values())) if still_running else None
    try:
        answers = submit.submit(at, commands, say=progress.say) if commands else []
        lines += [line for answer in answers if answer is not None for line in answer.lines]
        lines += [submit.BUSY] if None in answers else []
        refused = (error_with(answer.error, answer.exit) for answer in answers if answer is not None and answer.error)
        error = next(refused, error)
    except Unreachable as failed:
        # The daemon does not answer, or nothing can be recorded: agents are ended all the same.
        lines += [f"Ended the agent of {one}; its work is kept" for one in end_recorded_agents(at.state, plan)]
        is_queued = isinstance(failed, submit.Queued)  # the daemon executes it when it can
        error = failed if is_queued else Unreachable(f"{failed}; then stop it again")
    for line in lines:
        progress.say(line)
    if error is not None:
        raise error
    return bool(lines)


def _end_foreground(at: RepositoryContext, store: Store, plan: str, *, force: bool) -> tuple[list[str], dict[str, str]]:
    """End foreground runs in other terminals as Ctrl-C twice does; messages, and errors by plan."""
    owners = {key: owner for key, owner in store.owners().items() if plan in ("", key)}
    daemon = holder(state_directory(at.env))
    others = (processes.identity(os.getpid()), daemon.identity if daemon else None)
    lines, still_running = list[str](), dict[str, str]()
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


# --- the change that waits for a person -------------------------------------------------------------------


def _waiting(at: RepositoryContext, plan: str, wanted: str | None, verb: str) -> tuple[str, RunState, PhaseRun, str]:
    """The run with its state, and its first phase that waits for the verb, with what it waits for."""
    found = runs.unfinished(at, plan)
    waits = ANSWERED if verb == "approve" else (*ANSWERED, "checkout")
    for row, state in [found] if found is not None else []:
        for _, strand in open_states(state):
            phase, waiting = strand.phase, decide(strand).waiting
            is_shown = phase is not None and (verb != "diff" or phase.candidate is not None)
            if phase is not None and is_shown and waiting in waits and wanted in (None, phase.read.phase):
                return row.id, state, phase, waiting
    which = f"phase {wanted} of {plan}" if wanted else plan
    raise NotFound(f"no change of {which} waits for you; see: {command('runplan', 'status', plan)}")


def run_diff(args: argparse.Namespace) -> Exit:
    with open_context(warn=progress.warn) as at:
        view = _view(at, plan_path(at, args.plan), args.phase)
    print(as_json(view, indent=None) if args.json else plain(_text(view)))
    return Exit.DONE


def _view(at: RepositoryContext, plan: str, wanted: str | None) -> dict[str, Any]:
    """The change that waits, as data (docs/reference.md)."""
    run, state, phase, waiting = _waiting(at, plan, wanted, "diff")
    candidate, started, verdict, texts = phase.candidate, state.options, phase.verdict, dict(phase.read.items)
    assert candidate is not None
    checks = at.for_run(started).settings.checks
    gates = [
        {
            "name": gate.name,
            "command": checks[gate.name].command if gate.name in checks else "",
            "exit_code": gate.code,
            "tree": gate.tree,
            "result": gate.line,
        }
        for gate in phase.gates
    ]
    items = [
        {"item": item, "text": texts.get(item, ""), "result": "pass" if ok else "fail", "evidence": evidence}
        for item, ok, evidence in (verdict.items if verdict else ())
    ]
    return {
        "plan": plan,
        "phase": phase.read.phase,
        "title": phase.read.title,
        "run": run,
        "waiting_for": waiting,
        "commit": candidate.commits[-1],
        "tree": candidate.tree,
        "onto": candidate.onto,
        "target": started.target,
        "gates": gates,
        "verdict": verdict
        and {"verifier": verdict.agent, "passed": verdict.passed, "tree": verdict.tree, "items": items},
        "findings": list(phase.warnings),
        "diff": at.diff(candidate.onto, candidate.commits[-1]).decode("utf-8", "backslashreplace"),
    }


def _text(view: dict[str, Any]) -> str:
    plan = view["plan"]
    lines = [
        f"{plan}, phase {view['phase']} {view['title']}: waits for {view['waiting_for']}",
        f"commit {view['commit'][:SHORT]}, tree {view['tree'][:SHORT]}, on {view['target']} {view['onto'][:SHORT]}",
        "",
        "Checks:",
    ]
    for gate in view["gates"]:
        ending = "did not finish" if gate["exit_code"] is None else f"exit code {gate['exit_code']}"
        ran = f"{gate['command']} on tree {gate['tree'][:SHORT]}: {ending}; " if gate["command"] else ""
        lines.append(f"  {ran}{gate['result']}")
    if verdict := view["verdict"]:
        lines += ["", f"Verdict of {verdict['verifier']} on tree {verdict['tree'][:SHORT]}:"]
        for item in verdict["items"]:
            lines += [f"  {item['result']}  {item['item']} {item['text']}".rstrip(), f"        {item['evidence']}"]
    if view["findings"]:
        lines += ["", "Findings:", *(f"  {line}" for line in view["findings"])]
    helps = f"what it waits for: {command('runplan', 'explain', plan)}"
    if view["waiting_for"] in ANSWERED:
        approve, reject = command("runplan", "approve", plan), command("runplan", "reject", plan)
        helps = f"to land it: {approve}; to refuse it: {reject} -m REASON"
    return "\n".join([*lines, "", view["diff"], helps])


def run_approve(args: argparse.Namespace) -> Exit:
    return _answer("approve", args, Answered(tree="", approved=True))


def run_reject(args: argparse.Namespace) -> Exit:
    return _answer("reject", args, Answered(tree="", approved=False, why=args.why))


def _answer(verb: str, args: argparse.Namespace, answer: Answered) -> Exit:
    """Record the answer to the change that waits, and continue the run as it was started."""
    with open_context() as at:
        path = plan_path(at, args.plan)
        _, state, phase, _ = _waiting(at, path, args.phase, verb)
        if phase.candidate is not None:
            tree, commit = phase.candidate.tree, phase.candidate.commits[-1]
            answer = replace(answer, tree=tree)
            action = "approving" if verb == "approve" else "rejecting"
            progress.say(f"{action} phase {phase.read.phase} of {path}: commit {commit[:SHORT]}, tree {tree[:SHORT]}")
        at = at.for_run(state.options)
        request = RunRequest(started=state.options, answer=answer)
        return runs.submit_run(at, request) if state.options.daemon else runs.run_here(at, request)
