"""runplan diff, approve, reject: the change that waits for a person, and the answer to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from runplan.cli.control import runs
from runplan.cli.show import progress
from runplan.cli.terminal import as_json, json_argument, plan_argument, warn
from runplan.engine.context import open_context, plan_path, refuse_under_agent
from runplan.errors import Exit, NotFound
from runplan.run.decide import ANSWERED, decide
from runplan.run.events import Approved, Rejected
from runplan.run.requests import RunRequest
from runplan.run.state import open_states
from runplan.text import command, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from runplan.engine.context import RepositoryContext
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import GateTable

SHORT = 12  #: digits of an id
EXAMPLES = {
    "diff": """\
  runplan diff plans/X.md         checks, verdict, findings and diff
  runplan diff X 2                one of several phases that wait
  runplan diff X --json           the same for a script""",
    "approve": """\
  runplan approve plans/X.md      land the change that was shown, then continue the run
  runplan approve X 2             sign off one of several phases that wait""",
    "reject": """\
  runplan reject plans/X.md -m "the flag must be optional"    the reason goes into the report and to the next agent""",
}


def approve_arguments(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("phase", metavar="PHASE", nargs="?", help="a phase id; without it, the first that waits")


def diff_arguments(parser: argparse.ArgumentParser) -> None:
    approve_arguments(parser)
    json_argument(parser)


def reject_arguments(parser: argparse.ArgumentParser) -> None:
    approve_arguments(parser)
    parser.add_argument("-m", dest="why", default="", metavar="REASON", help="why, for the report and the next agent")


def _waiting(at: RepositoryContext, plan: str, wanted: str | None, verb: str) -> tuple[str, RunState, PhaseRun, str]:
    """The run with its state, and its first phase that waits for the verb, with what it waits for."""
    run = runs.unfinished(at, plan)
    waits = ANSWERED if verb == "approve" else (*ANSWERED, "checkout")
    for _, strand in open_states(run[1]) if run is not None else ():
        phase, waiting = strand.phase, decide(strand).waiting
        if run is None or phase is None or waiting not in waits or (verb == "diff" and phase.candidate is None):
            continue
        if wanted in (None, phase.read.phase):
            return run[0].id, run[1], phase, waiting
    which = f"phase {wanted} of {plan}" if wanted else plan
    raise NotFound(f"no change of {which} waits for you; see: {command('runplan', 'status', plan)}")


# --- diff -------------------------------------------------------------------------------------------------


def run_diff(args: argparse.Namespace) -> Exit:
    with open_context(warn=warn) as at:
        view = _view(at, plan_path(at, args.plan), args.phase)
    print(as_json(view, indent=None) if args.json else plain(_text(view)))
    return Exit.DONE


def _view(at: RepositoryContext, plan: str, wanted: str | None) -> dict[str, Any]:
    """The change that waits, as data (docs/reference.md)."""
    run, state, phase, waiting = _waiting(at, plan, wanted, "diff")
    candidate, started = phase.candidate, state.started
    assert candidate is not None
    assert started is not None
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
        **_evidence(phase, at.for_run(started).settings.checks),
        "diff": at.diff(candidate.onto, candidate.commits[-1]).decode("utf-8", "backslashreplace"),
    }


def _evidence(phase: PhaseRun, checks: Mapping[str, GateTable]) -> dict[str, Any]:
    texts, verdict = dict(phase.read.items), phase.verdict
    return {
        "gates": [
            {
                "name": gate.name,
                "command": checks[gate.name].command if gate.name in checks else "",
                "exit_code": gate.code,
                "tree": gate.tree,
                "result": gate.line,
            }
            for gate in phase.gates
        ],
        "verdict": verdict
        and {
            "verifier": verdict.agent,
            "passed": verdict.passed,
            "tree": verdict.tree,
            "items": [
                {"item": item, "text": texts.get(item, ""), "result": "pass" if ok else "fail", "evidence": evidence}
                for item, ok, evidence in verdict.items
            ],
        },
        "findings": list(phase.warnings),
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


# --- approve, reject --------------------------------------------------------------------------------------


def run_approve(args: argparse.Namespace) -> Exit:
    return _answer("approve", args, Approved(tree=""))


def run_reject(args: argparse.Namespace) -> Exit:
    return _answer("reject", args, Rejected(tree="", why=args.why))


def _answer(verb: str, args: argparse.Namespace, answer: Approved | Rejected) -> Exit:
    """Record the answer to the change that waits, and continue the run as it was started."""
    refuse_under_agent(verb)
    with open_context() as at:
        path = plan_path(at, args.plan)
        _, state, phase, _ = _waiting(at, path, args.phase, verb)
        assert state.started is not None
        if phase.candidate is not None:
            tree, commit = phase.candidate.tree, phase.candidate.commits[-1]
            answer = replace(answer, tree=tree)
            doing = "approving" if verb == "approve" else "rejecting"
            progress.say(f"{doing} phase {phase.read.phase} of {path}: commit {commit[:SHORT]}, tree {tree[:SHORT]}")
        at = at.for_run(state.started)
        request = RunRequest(started=replace(state.started, auto=state.auto), answer=answer)
        return runs.submit_run(at, request) if state.started.daemon else runs.run_here(at, request)
