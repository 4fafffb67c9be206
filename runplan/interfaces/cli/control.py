"""The verbs that change something: each makes a request of the words, has it carried out, and shows its end."""

import argparse
import os
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runplan.app.operations import planning, runs, start
from runplan.app.operations.model import Accepted, Answer, Caller, Declined, Where
from runplan.app.operations.requests import ApproveRequest, EditRequest, RejectRequest
from runplan.app.operations.table import OPERATIONS
from runplan.app.views.changes import list_pending, view_change, view_newest_planning
from runplan.app.views.journal import describe_end
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, Interrupted, RunplanError, UsageError, error_with
from runplan.domain.standing.actions import actions_of_wait, describe_actions
from runplan.domain.text import command, plain, visible
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.show.change import show_change


def _caller(args: argparse.Namespace, where: Where = Where.AS_BEFORE) -> Caller:
    """The person at the terminal, or the program that answers for one."""
    chosen = vars(args)
    if chosen.get("foreground"):
        where = Where.HERE
    elif chosen.get("background"):
        where = Where.DAEMON
    by = chosen.get("via", "terminal")
    return Caller(by=by, say=progress.say, warn=progress.warn, show=progress.show_event, where=where)


def _submit(caller: Caller, verb: str, request: object) -> Answer:
    with progress.live_line():
        return OPERATIONS[verb][0](caller, request)


def _conclude(caller: Caller, answer: Answer, *, wait: bool, asks: bool) -> Exit:
    """Show the end; `wait` follows a run of the daemon, `asks` about the changes that a followed run comes to."""
    if isinstance(answer, Accepted) and answer.root:
        caller = replace(caller, cwd=Path(answer.root))
    code = _show_outcome(caller, answer, wait=wait)
    if isinstance(answer, Declined) or not (asks and (answer.is_ended or wait)):
        return code
    caller = replace(caller, where=Where.AS_BEFORE)
    while code is Exit.WAITING and sys.stdin.isatty() and sys.stderr.isatty():
        judged = _ask_person(caller, answer.plan)
        if judged is None:
            break
        code = _show_outcome(caller, _submit(caller, *judged), wait=True)
    return code


def _show_outcome(caller: Caller, answer: Answer, *, wait: bool) -> Exit:
    if isinstance(answer, Declined):
        return answer.exit
    if not answer.run or not (answer.is_ended or wait):
        return Exit.DONE
    with caller.open(lenient=True) as context:
        if not answer.is_ended:
            try:
                with progress.live_line():
                    runs.follow_run(caller, context, answer)
            except KeyboardInterrupt:
                again = command("runplan", "logs", answer.plan, "-f")
                stop = command("runplan", "stop", answer.plan)
                why = f"detached; {answer.run} continues. Follow it: {again}; stop it: {stop}"
                raise Interrupted(why) from None
        code, lines = describe_end(context, answer.run)
        progress.write_line("\n".join(["", *(f"runplan: {line}" for line in lines)]))
        if answer.is_ended:
            runs.start_next(caller, context, answer.run)
    return code


def _ask_person(caller: Caller, plan: str) -> tuple[str, ApproveRequest | RejectRequest] | None:
    """The answer of the person at the terminal, about the change as it is now; None to leave it waiting."""
    with caller.open(lenient=True) as context:
        change = next(iter(list_pending(context, plan, None, "approve")), None)
    if change is None:
        return None
    phase = change.attempt.chosen.phase
    tree = change.attempt.delivery.asked
    while True:
        match _prompt(f"land {f'phase {phase}' if phase else plan}? y(es), n(o), d(iff), r(eject)"):
            case "y" | "yes":
                return "approve", ApproveRequest(plan=plan, phase=phase, tree=tree)
            case "n" | "no" | None:
                return None
            case "d" | "diff":
                with caller.open(lenient=True) as context:
                    show_change(caller, view_change(context, change))
            case "r" | "reject":
                if words := _prompt("what has to change?"):
                    return "reject", RejectRequest(plan=plan, phase=phase, tree=tree, why=words)


def _prompt(question: str) -> str | None:
    """The line that the person types after the question; None at the end of the input."""
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # keys pressed before the question answer nothing
    print(f"runplan: {question}: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return plain(line).strip() if line else None


#: What shows the effect of a request, for `--dry-run`.
_PREVIEWS: dict[str, Callable[[Caller, Any], str]] = {"start": start.preview_start, "work": start.preview_work}


def run_operation(verb: str, args: argparse.Namespace) -> Exit:
    if vars(args).get("dry_run"):
        print(visible(_PREVIEWS[verb](_caller(args), _make_request(verb, args)), is_prose=True))
        return Exit.DONE
    wait = verb == "undo" or vars(args).get("wait", False)
    caller = _caller(args, Where.DAEMON if wait and verb == "retry" else Where.AS_BEFORE)
    answer = _submit(replace(caller, waits=wait), verb, _make_request(verb, args))
    return _conclude(caller, answer, wait=wait, asks=verb in ("start", "retry"))


def _make_request(verb: str, args: argparse.Namespace) -> Any:
    """The request with the arguments of the same names; the words of a text are one."""
    kind = OPERATIONS[verb][1]
    values = {field.name: getattr(args, field.name) for field in fields(kind)}
    return kind(**{name: " ".join(value) if name == "text" else value for name, value in values.items()})


def run_plan(args: argparse.Namespace) -> Exit:
    caller = _caller(args)
    if not args.goal and not args.file and args.issue is None and not args.revise and not args.why:
        with caller.open() as context:
            pending = list_pending(context, None, None, "approve")
        changes = [change for change in pending if not change.attempt.chosen.phase]
        if not changes:
            ways = 'runplan plan "GOAL", or --file, --issue, --revise'
            raise UsageError(f"say what the plan is for: {ways}; no proposal waits for you")
        for change in changes:
            plan = change.state.options.plan
            print(f"{plan}: {plain(change.attempt.chosen.title)}")
            print(f"  {describe_actions(actions_of_wait(change.waiting, plan, is_proposal=True))}")
        return Exit.DONE
    _read_goal(args)
    answer = _submit(caller, "plan", _make_request("plan", args))
    code = _conclude(caller, answer, wait=not args.no_wait, asks=not args.no_wait)
    if args.json and isinstance(answer, Accepted):
        with caller.open(lenient=True) as context:
            print(as_json(view_newest_planning(context, answer.plan)))
    return code


def _read_goal(args: argparse.Namespace) -> None:
    """Make the fields of the request of the words."""
    words = args.goal
    if args.revise and not words:
        raise UsageError("--revise: name the plan: runplan plan --revise PLAN [PHASE] [-m TEXT]")
    if args.revise and len(words) > 2:
        raise UsageError(f"{words[2]}: --revise takes a plan and a phase; say why with -m TEXT")
    args.revises, args.phase = (*words, "")[:2] if args.revise else ("", "")
    args.goal = "" if args.revise else " ".join(words)
    if len(words) == 1 and not args.file and os.path.isdir(args.goal):  # noqa: PTH112 - False for one that is too long
        args.file, args.goal = args.goal, ""
    if words == ["-"]:
        args.goal = planning.require_size(sys.stdin.buffer.read(planning.LONGEST_GOAL + 1))


def run_edit(args: argparse.Namespace) -> Exit:
    """Submit the text as the editor of the person leaves it. A text that was kept is continued, never overwritten."""
    caller = _caller(args)
    draft, file = planning.open_draft(caller, args.plan)
    if file.is_dir():
        raise UsageError(f"{file} is a folder; remove it, then edit again")
    if file.exists():
        progress.say(f"continuing with your text in {file}; to begin with the proposal again, remove that file")
    else:
        file.write_text(draft.text, encoding="utf-8")
    editor = caller.env.get("VISUAL") or caller.env.get("EDITOR") or "vi"
    ended = subprocess.run(["sh", "-c", f'{editor} "$1"', editor, str(file)], env=dict(caller.env), check=False)
    left = file.read_bytes() if file.is_file() else b""
    text = left.decode("utf-8", "replace")
    is_kept = bool(text.strip()) and left != draft.text.encode()
    if not is_kept and file.is_file():
        file.unlink()
    problems = {
        f"failed with exit code {ended.returncode} (is EDITOR right?)": ended.returncode,
        "left no text": not text.strip(),
        "left bytes that are not UTF-8": left != text.encode(),
    }
    kept = f". Your text is kept at {file}" if is_kept else ""
    if why := next((why for why, is_so in problems.items() if is_so), ""):
        raise UsageError(f"nothing was changed: the editor ({editor}) {why}{kept}")
    line_end = "\r\n" if "\r\n" in draft.text else "\n"
    text = text.replace("\r\n", "\n").replace("\n", line_end)
    try:
        answer = _submit(caller, "edit", EditRequest(plan=draft.path, sha256=draft.sha256, text=text))
        code = _conclude(caller, answer, wait=False, asks=False)
    except RunplanError as error:
        raise error_with(f"{error}{kept}", error.exit) from None
    file.unlink(missing_ok=True)  # the journal has it
    return code
