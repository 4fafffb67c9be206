"""runplan diff, approve, reject, answer: what waits for a person, and the answers."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import termios
from typing import Any

from msgspec.structs import replace

from runplan.adapters.configuration.load import environment
from runplan.adapters.git.command import ANY
from runplan.app.views.changes import Change, find_change, list_pending, nothing_pending, view_change
from runplan.domain.errors import Busy, Exit, NotFound, UsageError
from runplan.domain.run.attempts import PlanningAttempt, open_questions
from runplan.domain.run.events import Answered, QuestionAnswered, QuestionAsked, RunStarted
from runplan.domain.run.kinds import ANSWERED
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.state import open_states
from runplan.domain.text import command, plain, visible
from runplan.engine.loop.context import RepositoryContext, open_context, plan_path
from runplan.engine.loop.runs import describe_late, state_of
from runplan.engine.report.planning import describe_summary
from runplan.engine.report.views import as_json
from runplan.interfaces.cli.control import runs
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.terminal import Style

SHORT = 12  #: digits of an id
NOT_RUN = (126, 127)  #: exit codes of a shell for a program that it cannot run


def run_diff(args: argparse.Namespace) -> None:
    with open_context(warn=progress.warn) as context:
        run = context.store().get_run(args.plan)
        plan = run.plan if run is not None else plan_path(context, args.plan)
        view = view_change(context, find_change(context, plan, args.phase, run=run.id if run is not None else ""))
        if args.json:
            print(as_json(view, indent=None))
        else:
            _show_change(context, view, is_paged=not args.no_pager)


def _show_change(context: RepositoryContext, view: dict[str, Any], *, is_paged: bool = True) -> None:
    """Print the change, on a terminal in colours and through the pager that git uses."""
    style = Style.of(sys.stdout)
    text = _render_proposal(view, style) if "proposal" in view else _render_change(view, style)
    env = environment()
    pager = "cat"
    if is_paged and sys.stdout.isatty():
        chosen = {"GIT_PAGER": env["GIT_PAGER"]} if "GIT_PAGER" in env else {}
        # Not in the repository: an agent may have written its configuration.
        pager = context.git.run("-C", "/", "var", "GIT_PAGER", env=chosen, ok=ANY).text.strip()
    if pager in ("", "cat"):
        print(text)
        return
    before = signal.getsignal(signal.SIGINT)
    # As git sets them: short texts without a pager, colours, and the text stays on the screen.
    shown = subprocess.Popen(["sh", "-c", pager], stdin=subprocess.PIPE, env={"LESS": "FRX", "LV": "-c", **env})
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pager handles Ctrl-C
    try:
        shown.communicate(f"{text}\n".encode("utf-8", "backslashreplace"))  # ignores a pager that was quit
    finally:
        signal.signal(signal.SIGINT, before)
    if shown.returncode in NOT_RUN:
        print(text)


def _paint_diff(diff: str, style: Style) -> str:
    """The diff in git's colours, with every character visible."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    is_head = diff.startswith("--- ")  # a diff of texts has no other head
    lines = []
    for line in visible(diff).split("\n"):
        is_head = line.startswith("diff --git ") or (is_head and not line.startswith("@@ "))
        lines.append(style.paint(line, "bold" if is_head else colours.get(line[:1], "")))
    return "\n".join(lines)


def _render_proposal(view: dict[str, Any], style: Style) -> str:
    """The proposal as text: what it grants, then all of it, or the changes of a revision."""
    plan = view["plan"]
    proposal = view["proposal"]
    summary = describe_summary(proposal["summary"], is_edited=proposal["edited"])
    helps = f"to land it: {command('runplan', 'approve', plan)}; to change it: {command('runplan', 'edit', plan)}"
    reject = f"to have it revised: {command('runplan', 'reject', plan)} -m REASON"
    standing = f"waits for {view['waiting_for']}" if view["waiting_for"] else f"is {view['state']}"
    head = f"{plan} {standing}, SHA-256 {proposal['sha256'][:12]}"
    diff = proposal["diff"]
    text = _paint_diff(diff, style) if diff else visible(proposal["text"], is_prose=True)
    return "\n".join([head, *summary, "", text, "", f"{helps}; {reject}"])


def _render_change(view: dict[str, Any], style: Style) -> str:
    plan = view["plan"]
    failed = view["failed"]
    ending = f"waits for {view['waiting_for']}" if view["waiting_for"] else "landed"
    ending = f"failed at {failed['step']} ({failed['reason']})" if failed else ending
    about = (failed["detail"], failed["evidence"], failed["output"], f"branch {failed['branch']}") if failed else ()
    lines = [
        f"{plan}, phase {view['phase']} {view['title']}: {ending}",
        *filter(None, about),
        f"commit {view['commit'][:SHORT]}, tree {view['tree'][:SHORT]}, on {view['target']} {view['onto'][:SHORT]}",
        "",
        "Checks:",
    ]
    for gate in view["gates"]:
        ending = "did not finish" if gate["exit_code"] is None else f"exit code {gate['exit_code']}"
        ran = f"{gate['command']} on tree {gate['tree'][:SHORT]}: {ending}; " if gate["command"] else ""
        lines.append(f"  {ran}{gate['result']}")
    for proof in view["proofs"]:
        lines += [f"  {proof['result']}", *(f"    {broken['test']}: {broken['why']}" for broken in proof["broken"])]
    if verdict := view["verdict"]:
        lines += ["", f"Verdict of {verdict['verifier']} on tree {verdict['tree'][:SHORT]}:"]
        for item in verdict["items"]:
            lines += [f"  {item['result']}  {item['item']} {item['text']}".rstrip(), f"        {item['evidence']}"]
    if view["findings"]:
        lines += ["", "Findings:", *(f"  {line}" for line in view["findings"])]
    lines += ["", "Commit messages:", *(f"  {line}".rstrip() for line in view["messages"].split("\n"))]
    helps = f"what it waits for: {command('runplan', 'explain', plan)}"
    if failed:
        helps = f"to work on it again: {command('runplan', 'retry', plan, view['phase'])}"
    elif view["waiting_for"] in ANSWERED:
        approve = command("runplan", "approve", plan)
        reject = command("runplan", "reject", plan)
        helps = f"to land it: {approve}; to have it changed: {reject} -m TEXT"
    elif not view["waiting_for"]:
        helps = f"to revert it: {command('runplan', 'undo', plan, view['phase'])}"
    return "\n".join([visible("\n".join(lines), is_prose=True), "", _paint_diff(view["diff"], style), helps])


def _change_to_answer(
    context: RepositoryContext, plan: str | None, wanted: str | None, verb: str, *, tree: str
) -> Change:
    """The first change of the plan that waits for the verb, or that of the tree; without a plan, the only one."""
    pending = list_pending(context, plan, wanted, verb)
    changes = [change for change in pending if change.attempt.answerable.startswith(tree)]
    if pending and not changes:
        phase = pending[0].attempt.chosen.phase
        see = command("runplan", "diff", pending[0].state.options.plan, *filter(None, [phase]))
        raise Busy(f"the change was replaced: tree {tree[:SHORT]} does not wait any more; nothing was done. See: {see}")
    if plan is None and len(changes) > 1:
        commands = (
            command("runplan", verb, change.state.options.plan, change.attempt.chosen.phase) for change in changes
        )
        raise NotFound(f"{len(changes)} changes wait for you; name one: {'; '.join(commands)}")
    if not changes:
        raise nothing_pending(plan, wanted) if plan else NotFound("no change waits for you here; see: runplan status")
    return changes[0]


def run_approve(args: argparse.Namespace) -> Exit:
    return _submit_answer("approve", args, Answered(tree="", approved=True))


def run_reject(args: argparse.Namespace) -> Exit:
    return _submit_answer("reject", args, Answered(tree="", approved=False, why=args.why))


def _submit_answer(verb: str, args: argparse.Namespace, answer: Answered) -> Exit:
    """Record the answer to the change that waits, and continue the run as it was started."""
    if args.tree and len(args.tree) < SHORT:
        raise UsageError(f"{verb}: --tree needs at least {SHORT} digits of the tree")
    with open_context(warn=progress.warn) as context:  # the run has its own settings
        plan = plan_path(context, args.plan) if args.plan else None
        change = _change_to_answer(context, plan, args.phase, verb, tree=args.tree)
        phase = change.attempt.chosen.phase
        options = change.state.options
        candidate = change.attempt.delivery.candidate
        answer = replace(answer, tree=change.attempt.answerable, by=_name_person(context, plain(args.via)))
        action = "approving" if verb == "approve" else "rejecting"
        if not isinstance(change.attempt, PlanningAttempt) and answer.tree:
            commit = f"commit {candidate.commits[-1][:SHORT]}, " if candidate else ""
            takes = "; an agent gets your words" if answer.why and change.attempt.is_revisable else ""
            progress.say(f"{action} phase {phase} of {options.plan}: {commit}tree {answer.tree[:SHORT]}{takes}")
        elif answer.tree:
            takes = "; an agent revises it" if answer.why else ""
            progress.say(f"{action} the proposed {options.plan}: SHA-256 {answer.tree[:SHORT]}{takes}")
        request = RunRequest(started=options, answer=answer)
        return continue_run(context, request, wait=args.wait, background=args.background)


def _name_person(context: RepositoryContext, way: str) -> str:
    """Who answers, and by which way. A link is for everyone who has it."""
    name = context.git.run("config", "user.name", ok=ANY).text or "a person"
    return way if way.startswith("link ") else f"{name} ({way})"


def continue_run(
    context: RepositoryContext, request: RunRequest, *, wait: bool = False, background: bool = False
) -> Exit:
    """Have the run continue where it was started, or in the background: in this process or in the daemon."""
    context = context.for_run(request.started)
    is_daemons = request.started.daemon or background
    return runs.submit_run(context, request, wait=wait) if is_daemons else runs.run_here(context, request)


def ask_on_terminal(context: RepositoryContext, plan: str, code: Exit) -> Exit:
    """Ask about each change that a followed run comes to, if a person can answer; the exit code at the end."""
    while code is Exit.WAITING and sys.stdin.isatty() and sys.stderr.isatty():
        change = next(iter(list_pending(context, plan, None, "approve")), None)
        answer = _ask_person(context, change) if change is not None else None
        if change is None or answer is None:
            break
        code = continue_run(context, RunRequest(started=change.state.options, answer=answer), wait=True)
    return code


def _ask_person(context: RepositoryContext, change: Change) -> Answered | None:
    """The answer of the person at the terminal, about the change as it is now; None to leave it waiting."""
    tree = change.attempt.delivery.asked
    phase = change.attempt.chosen.phase
    while True:
        match _prompt(
            f"land {f'phase {phase}' if phase else change.state.options.plan}? y(es), n(o), d(iff), r(eject)"
        ):
            case "y" | "yes":
                return Answered(tree=tree, approved=True, by=_name_person(context, "terminal"))
            case "n" | "no" | None:
                return None
            case "d" | "diff":
                _show_change(context, view_change(context, change))
            case "r" | "reject":
                if words := _prompt("what has to change?"):
                    return Answered(tree=tree, approved=False, why=words, by=_name_person(context, "terminal"))


def _prompt(question: str) -> str | None:
    """The line that the person types after the question; None at the end of the input."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # keys pressed before the question answer nothing
    print(f"runplan: {question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return plain(line).strip() if line else None


# --- questions of agents ----------------------------------------------------------------------------------


def run_answer(args: argparse.Namespace) -> Exit:
    text = plain(" ".join(args.text)).strip()
    if not text:
        raise UsageError("answer: the text is empty")
    with open_context(warn=progress.warn) as context:
        started, question = _question_to_answer(context, args.id)
        progress.say(f"answering {question.id}: {question.text}")
        request = RunRequest(started=started, answered=QuestionAnswered(id=question.id, text=text))
        return continue_run(context, request, wait=args.wait, background=args.background)


def _question_to_answer(context: RepositoryContext, word: str) -> tuple[RunStarted, QuestionAsked]:
    """The open question with this id, or the only one of the plan, with the options of its run."""
    store = context.store()
    questions = [
        (state.options, question)
        for row in store.list_unfinished_runs()
        for state in (state_of(store, row),)
        for _, lane_state in open_states(state)
        for question in open_questions(lane_state.attempt)
    ]
    if match := next((pair for pair in questions if pair[1].id == word), None):
        return match
    earlier = next((fact.run for fact in store.list_facts(QuestionAsked) if fact.event.id == word), "")
    if earlier and (row := store.get_run(earlier)) is not None:
        raise NotFound(describe_late(row.plan, QuestionAnswered(id=word, text="")))
    plan = plan_path(context, word)
    of_plan = [pair for pair in questions if pair[0].plan == plan]
    if len(of_plan) == 1:
        return of_plan[0]
    if not of_plan:
        raise NotFound(f"no question of {plan} waits for you; see: {command('runplan', 'status', plan)}")
    commands = (command("runplan", "answer", question.id, "TEXT") for _, question in of_plan)
    raise NotFound(f"{len(of_plan)} questions of {plan} wait for you; name one: {'; '.join(commands)}")
