"""runplan diff, approve, reject: the change that waits for a person, and the answer to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from runplan.cli.control import execute, prepare
from runplan.cli.show import progress
from runplan.cli.terminal import warn
from runplan.cli.verb import Verb, plan_argument
from runplan.engine.context import open_context, plan_path, refuse_under_agent
from runplan.errors import Exit, NotFound
from runplan.run.decide import ANSWERED, decide
from runplan.run.events import Approved, Rejected
from runplan.run.requests import RunRequest
from runplan.run.state import open_states
from runplan.text import command, escaped, plain

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from runplan.engine.context import RepositoryContext
    from runplan.run.state import PhaseRun, RunState
    from runplan.settings.schema import GateTable

SHORT = 12  #: digits of an id


# --- diff -------------------------------------------------------------------------------------------------


def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    _phase_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _run_diff(args: argparse.Namespace) -> Exit:
    with open_context(warn=warn) as at:
        view = _view(at, plan_path(at, args.plan), args.phase)
        if args.json:
            print(escaped(json.dumps(view, ensure_ascii=False)))
        else:
            print(plain(_text(view)), end="")
    return Exit.DONE


def _view(at: RepositoryContext, plan: str, wanted: str | None) -> dict[str, Any]:
    """The change that waits, as data (docs/reference.md)."""
    run = prepare.unfinished(at, plan)
    found = _waiting(run[1], wanted) if run is not None else None
    if run is None or found is None:
        which = f"phase {wanted} of {plan}" if wanted else plan
        raise NotFound(f"no change of {which} waits for you; see: {command('runplan', 'status', plan)}")
    (row, state), (phase, waiting) = run, found
    candidate = phase.candidate
    assert candidate is not None
    assert state.started is not None
    return {
        "plan": plan,
        "phase": phase.read.phase,
        "title": phase.read.title,
        "run": row.id,
        "waiting_for": waiting,
        "commit": candidate.commits[-1],
        "tree": candidate.tree,
        "onto": candidate.onto,
        "target": state.started.target,
        **_evidence(phase, at.for_run(state.started).settings.checks),
        "diff": at.diff(candidate.onto, candidate.commits[-1]).decode("utf-8", "backslashreplace"),
    }


def _waiting(
    state: RunState, wanted: str | None, *, waits: Sequence[str] = (*ANSWERED, "checkout"), built: bool = True
) -> tuple[PhaseRun, str] | None:
    """The first phase that waits for one of these, and for what; `built`: with a candidate only."""
    for _, strand in open_states(state):
        phase, waiting = strand.phase, decide(strand).waiting
        if phase is None or (built and phase.candidate is None) or waiting not in waits:
            continue
        if wanted in (None, phase.read.phase):
            return phase, waiting
    return None


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
        *(_gate(gate) for gate in view["gates"]),
    ]
    if verdict := view["verdict"]:
        lines += ["", f"Verdict of {verdict['verifier']} on tree {verdict['tree'][:SHORT]}:"]
        for item in verdict["items"]:
            text = f" {item['text']}" if item["text"] else ""
            lines += [f"  {item['result']}  {item['item']}{text}", f"        {item['evidence']}"]
    if view["findings"]:
        lines += ["", "Findings:", *(f"  {line}" for line in view["findings"])]
    helps = f"what it waits for: {command('runplan', 'explain', plan)}"
    if view["waiting_for"] in ANSWERED:
        approve, reject = command("runplan", "approve", plan), command("runplan", "reject", plan)
        helps = f"to land it: {approve}; to refuse it: {reject} -m REASON"
    return "\n".join([*lines, "", view["diff"], helps, ""])


def _gate(gate: dict[str, Any]) -> str:
    if not gate["command"]:
        return f"  {gate['result']}"
    ending = "did not finish" if gate["exit_code"] is None else f"exit code {gate['exit_code']}"
    return f"  {gate['command']} on tree {gate['tree'][:SHORT]}: {ending}; {gate['result']}"


# --- approve, reject --------------------------------------------------------------------------------------


def _phase_argument(parser: argparse.ArgumentParser) -> None:
    plan_argument(parser)
    parser.add_argument("phase", metavar="PHASE", nargs="?", help="a phase id; without it, the first that waits")


def _run_approve(args: argparse.Namespace) -> Exit:
    return _answer("approve", args, lambda tree: Approved(tree=tree), waits=ANSWERED)


def _reject_arguments(parser: argparse.ArgumentParser) -> None:
    _phase_argument(parser)
    parser.add_argument("-m", dest="why", default="", metavar="REASON", help="why, for the report and the next agent")


def _run_reject(args: argparse.Namespace) -> Exit:
    waits = (*ANSWERED, "checkout")
    return _answer("reject", args, lambda tree: Rejected(tree=tree, why=args.why), waits=waits)


def _answer(
    verb: str, args: argparse.Namespace, answer: Callable[[str], Approved | Rejected], *, waits: Sequence[str]
) -> Exit:
    """Record the answer to the change that waits for one of `waits`, and continue the run as it was started."""
    refuse_under_agent(verb)
    with open_context() as at:
        path = plan_path(at, args.plan)
        run = prepare.unfinished(at, path)
        found = _waiting(run[1], args.phase, waits=waits, built=False) if run is not None else None
        if run is None or found is None:
            status = command("runplan", "status", path)
            raise NotFound(f"no change of {path} waits for your answer; see: {status}")
        (_, state), (phase, _) = run, found
        assert state.started is not None
        tree = ""
        if phase.candidate is not None:
            tree, commit = phase.candidate.tree, phase.candidate.commits[-1]
            named = f"commit {commit[:SHORT]}, tree {tree[:SHORT]}"
            word = "approving" if verb == "approve" else "rejecting"
            progress.say(f"runplan: {word} phase {phase.read.phase} of {path}: {named}")
        at = at.for_run(state.started)
        request = RunRequest(started=replace(state.started, auto=state.auto), answer=answer(tree))
        return execute.submit_run(at, request) if state.started.daemon else execute.run_here(at, request)


VERBS = {
    "diff": Verb(
        run=_run_diff,
        arguments=_diff_arguments,
        EXAMPLES="""\
  runplan diff plans/X.md         checks, verdict, findings and diff
  runplan diff X 2                one of several phases that wait
  runplan diff X --json           the same for a script""",
    ),
    "approve": Verb(
        run=_run_approve,
        arguments=_phase_argument,
        EXAMPLES="""\
  runplan approve plans/X.md      land the change that was shown, then continue the run
  runplan approve X 2             sign off one of several phases that wait""",
    ),
    "reject": Verb(
        run=_run_reject,
        arguments=_reject_arguments,
        EXAMPLES="""\
  runplan reject plans/X.md -m "the flag must be optional"    the reason goes into the report and to the next agent""",
    ),
}
