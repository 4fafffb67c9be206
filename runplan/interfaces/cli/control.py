"""The verbs that change something: each makes a request of the words, has it carried out, and shows its end."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from runplan.adapters.configuration.load import environment
from runplan.adapters.store.files import make_below
from runplan.app.operations import answers, commands, model, planning, retry, runs, start
from runplan.app.operations.model import Answer, Caller, Declined, Operation, R, Where
from runplan.app.views.changes import Change, list_pending, read_change, view_change, view_planning
from runplan.app.views.journal import follow_events
from runplan.domain import names
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, Interrupted, RefusedEarly, Unreachable, UsageError
from runplan.domain.run.recorded import from_json
from runplan.domain.settings.options import parse_words
from runplan.domain.standing.actions import actions_of_wait, describe_actions
from runplan.domain.text import command, plain
from runplan.engine.loop.context import RepositoryContext, open_context, plan_path
from runplan.engine.loop.runs import find_awaited
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.show.change import show_change


def _caller(by: str = "terminal") -> Caller:
    return Caller(
        cwd=Path.cwd(),
        env=environment(),
        by=by,
        say=progress.say,
        warn=progress.warn,
        show=progress.show_event,
    )


def _carry_out(operation: Operation[R], request: R, *, wait: bool = False, asks: bool = False, by: str = "") -> Exit:
    return _conclude(_submit(operation, request, by=by), wait=wait, asks=asks)


def _submit(operation: Operation[R], request: R, *, by: str = "") -> Answer:
    with progress.live_line():
        return operation(_caller(by or "terminal"), request)


def _conclude(answer: Answer, *, wait: bool, asks: bool) -> Exit:
    """Show the end; `wait` follows a run of the daemon, `asks` about the changes that a followed run comes to."""
    code = _show_outcome(answer, wait=wait)
    if isinstance(answer, Declined) or not (asks and (answer.is_ended or wait)):
        return code
    while code is Exit.WAITING and sys.stdin.isatty() and sys.stderr.isatty():
        judged = _ask_person(answer.plan)
        if judged is None:
            break
        code = _show_outcome(_submit(*judged), wait=True)
    return code


def _show_outcome(answer: Answer, *, wait: bool) -> Exit:
    if isinstance(answer, Declined):
        return answer.exit
    if not answer.run or not (answer.is_ended or wait):
        return Exit.DONE
    with open_context(warn=progress.warn) as context:
        if not answer.is_ended:
            return _follow_run(context, answer.plan, answer.run, after=answer.seen)
        code = progress.show_end(context, answer.run)
        runs.start_next(_caller(), context, answer.run)
        return code


def _follow_run(context: RepositoryContext, plan: str, run: str, *, after: int | None) -> Exit:
    """Print the events of the run until it ends or waits for a person; Ctrl-C only detaches."""
    after = context.store().get_newest_event() if after is None else after
    try:
        with progress.live_line(), closing(context.store()) as store:
            for rows, _ in follow_events(store, plan, run, after=after):
                for event in filter(None, (from_json(row.type, row.body) for row in rows)):
                    progress.show_event(event)
            newest = store.get_run(run)
    except KeyboardInterrupt:
        again = command("runplan", "logs", plan, "-f")
        stop = command("runplan", "stop", plan)
        raise Interrupted(f"detached; {run} continues. Follow it: {again}; stop it: {stop}") from None
    if newest is not None and newest.is_active and not find_awaited(context.store(), newest).needs_person:
        status = command("runplan", "status", plan)
        raise Unreachable(f"the daemon has ended, and no process works on {run}; see: {status}")
    return progress.show_end(context, run)


# --- questions on the terminal ----------------------------------------------------------------------------


def _ask_person(plan: str) -> tuple[Operation[model.Judge], model.Judge] | None:
    """The answer of the person at the terminal, about the change as it is now; None to leave it waiting."""
    with open_context(warn=progress.warn) as context:
        change = next(iter(list_pending(context, plan, None, "approve")), None)
        return _ask_about(context, change) if change is not None else None


def _ask_about(context: RepositoryContext, change: Change) -> tuple[Operation[model.Judge], model.Judge] | None:
    phase = change.attempt.chosen.phase
    plan = change.state.options.plan
    request = model.Judge(plan=plan, phase=phase, tree=change.attempt.delivery.asked)
    while True:
        match _prompt(f"land {f'phase {phase}' if phase else plan}? y(es), n(o), d(iff), r(eject)"):
            case "y" | "yes":
                return answers.approve, request
            case "n" | "no" | None:
                return None
            case "d" | "diff":
                show_change(context, view_change(context, change))
            case "r" | "reject":
                if words := _prompt("what has to change?"):
                    return answers.reject, model.Judge(plan=plan, phase=phase, tree=request.tree, why=words)


def _prompt(question: str) -> str | None:
    """The line that the person types after the question; None at the end of the input."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # keys pressed before the question answer nothing
    print(f"runplan: {question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return plain(line).strip() if line else None


# --- work -------------------------------------------------------------------------------------------------


def run_start(args: argparse.Namespace) -> Exit:
    words = args.words if args.issue is None or args.plan is None else [args.plan, *args.words]
    request = model.Start(
        plan=(args.plan or "") if args.issue is None else "",
        issue=args.issue,
        options=parse_words(words),
        where=Where.HERE if args.foreground else Where.DAEMON,
    )
    if args.dry_run:
        print(start.preview_start(_caller(), request))
        return Exit.DONE
    return _carry_out(start.start, request, wait=args.wait, asks=True)


def run_watch_issues(args: argparse.Namespace) -> Exit:
    return _carry_out(start.watch_issues, model.WatchIssues(label=args.label, options=parse_words(args.words)))


def run_stop(args: argparse.Namespace) -> Exit:
    request = model.Stop(plan=args.plan or "", keep_schedule=args.keep_schedule, force=args.force)
    return _carry_out(commands.stop, request)


def run_pause(args: argparse.Namespace) -> Exit:
    return _carry_out(commands.pause, model.Named(plan=args.plan))


def run_resume(args: argparse.Namespace) -> Exit:
    return _carry_out(commands.resume, model.Named(plan=args.plan))


def run_now(args: argparse.Namespace) -> Exit:
    return _carry_out(commands.now, model.Named(plan=args.plan or ""))


def run_retry(args: argparse.Namespace) -> Exit:
    where = Where.HERE if args.foreground else _continued(args, Where.DAEMON)
    request = model.Retry(plan=args.plan, phase=args.phase or "", fresh=args.fresh, review=args.review, where=where)
    return _carry_out(retry.retry, request, wait=args.wait, asks=True)


def run_undo(args: argparse.Namespace) -> Exit:
    return _carry_out(retry.undo, model.Undo(plan=args.plan, phase=args.phase), wait=True)


# --- answers ----------------------------------------------------------------------------------------------


def _continued(args: argparse.Namespace, waits: Where) -> Where:
    """The process that continues a run; `waits` for `--wait`."""
    return Where.DAEMON if args.background else waits if args.wait else Where.AS_BEFORE


def run_diff(args: argparse.Namespace) -> None:
    with open_context(warn=progress.warn) as context:
        view = read_change(context, args.plan, args.phase or "")
        if args.json:
            print(as_json(view, indent=None))
        else:
            show_change(context, view, is_paged=not args.no_pager)


def run_approve(args: argparse.Namespace) -> Exit:
    return _judge(answers.approve, args)


def run_reject(args: argparse.Namespace) -> Exit:
    return _judge(answers.reject, args, why=args.why)


def _judge(operation: Callable[[Caller, model.Judge], Answer], args: argparse.Namespace, *, why: str = "") -> Exit:
    where = _continued(args, Where.AS_BEFORE)
    request = model.Judge(plan=args.plan or "", phase=args.phase or "", tree=args.tree, why=why, where=where)
    return _carry_out(operation, request, wait=args.wait, by=args.via)


def run_answer(args: argparse.Namespace) -> Exit:
    request = model.Reply(id=args.id, text=" ".join(args.text), where=_continued(args, Where.AS_BEFORE))
    return _carry_out(answers.answer, request, wait=args.wait)


# --- plans ------------------------------------------------------------------------------------------------


def run_plan(args: argparse.Namespace) -> Exit:
    if not args.goal and args.file is None and args.issue is None and not args.revise:
        if args.why:
            raise UsageError("-m: only with --revise; else the goal says it")
        return _show_proposals()
    if args.foreground and args.no_wait:
        raise UsageError("--foreground with --no-wait: leave out one of them")
    answer = _submit(planning.plan, _read_plan_request(args))
    code = _conclude(answer, wait=not args.no_wait, asks=not args.no_wait)
    if args.json and isinstance(answer, model.Accepted):
        with open_context(warn=progress.warn) as context:
            row = context.store().get_newest_run(answer.plan)
            assert row is not None
            print(as_json(view_planning(context, row.id)))
    return code


def _read_plan_request(args: argparse.Namespace) -> model.Plan:
    words = args.goal
    if args.revise and not words:
        raise UsageError("--revise: name the plan: runplan plan --revise PLAN [PHASE] [-m TEXT]")
    if args.revise and len(words) > 2:
        raise UsageError(f"{words[2]}: --revise takes a plan and a phase; say why with -m TEXT")
    is_folder = len(words) == 1 and bool(words[0]) and os.path.isdir(words[0])  # noqa: PTH112 - False for one that is too long
    goal = "" if args.revise or is_folder else " ".join(words)
    if words == ["-"]:
        goal = planning.require_size(sys.stdin.buffer.read(planning.LONGEST_GOAL + 1))
    return model.Plan(
        goal=goal,
        file=args.file or "",
        issue=args.issue,
        folder=words[0] if is_folder and not args.revise else "",
        revises=words[0] if args.revise else "",
        phase=words[1] if args.revise and len(words) > 1 else "",
        why=args.why,
        quick=args.quick,
        rounds=args.rounds,
        agent=args.agent or "",
        critic=args.critic or "",
        out=args.out or "",
        asks=args.ask,
        then=parse_words(args.then.split()) if args.then else None,
        where=Where.HERE if args.foreground else Where.DAEMON,
    )


def _show_proposals() -> Exit:
    """Print the proposed plans that wait for an answer, with the commands to read and edit them."""
    with open_context() as context:
        changes = [change for change in list_pending(context, None, None, "approve") if not change.attempt.chosen.phase]
    if not changes:
        raise UsageError(
            'say what the plan is for: runplan plan "GOAL", or --file, --issue, --revise; no proposal waits for you'
        )
    for change in changes:
        plan = change.state.options.plan
        print(f"{plan}: {plain(change.attempt.chosen.title)}")
        print(f"  {describe_actions(actions_of_wait(change.waiting, plan, is_proposal=True))}")
    return Exit.DONE


def run_edit(args: argparse.Namespace) -> Exit:
    with open_context() as context:
        plan = plan_path(context, args.plan)
        proposal = planning.find_proposal(context, plan)[2]
        file = context.state / "edited" / f"{names.slug(plan)}-{proposal.sha256[:12]}.md"
        text = _edit_text(context, proposal.text, file)
    try:
        code = _carry_out(planning.edit, model.Edit(plan=plan, sha256=proposal.sha256, text=text))
    except RefusedEarly as error:
        raise RefusedEarly(f"{error}. Your text is kept at {file}") from None
    file.unlink(missing_ok=True)  # the journal has it
    return code


def _edit_text(context: RepositoryContext, text: str, file: Path) -> str:
    """The text as the editor of the person leaves it. A text that was kept is continued, never overwritten."""
    make_below(context.common_dir, file.parent)
    if file.is_file():
        progress.say(f"continuing with your text in {file}; to begin with the proposal again, remove that file")
    elif not file.exists():
        file.write_text(text, encoding="utf-8")
    editor = context.env.get("VISUAL") or context.env.get("EDITOR") or "vi"
    ended = subprocess.run(["sh", "-c", f'{editor} "$1"', editor, str(file)], env=dict(context.env), check=False)
    line_end = "\r\n" if "\r\n" in text else "\n"
    is_file = file.is_file()
    typed = file.read_text(encoding="utf-8", errors="replace").replace("\n", line_end) if is_file else ""
    is_kept = bool(typed.strip()) and typed != text
    if is_file and not is_kept:
        file.unlink()
    if not ended.returncode and typed.strip():
        return typed
    why = f"left {'an empty' if is_file else 'no'} file"
    if ended.returncode:
        why = f"failed with exit code {ended.returncode}; is EDITOR right?"
    elif file.is_dir():
        why = f"left a folder, which you can remove: {file}"
    kept = f" Your text is kept at {file}" if is_kept else ""
    raise UsageError(f"nothing was changed: the editor ({editor}) {why}{kept}")
