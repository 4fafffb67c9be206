"""runplan plan and edit: from a goal to a proposed plan, and a person's own version of it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path, PurePath

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runplan.adapters.agents.invocation import require_agent
from runplan.adapters.configuration.load import list_agent_kinds
from runplan.adapters.store.files import make_below
from runplan.app.views.changes import list_pending, view_planning
from runplan.domain import names
from runplan.domain.checks.planning import StepFacts, check_plan
from runplan.domain.errors import Exit, NotFound, RefusedEarly, UsageError
from runplan.domain.plan.marks import PlanStatus
from runplan.domain.plan.model import parse_plan
from runplan.domain.plan.proposal import describe_unrevisable, set_plan_status, slug_of_title, title_of_goal
from runplan.domain.run.attempts import PlanningAttempt
from runplan.domain.run.events import Planning
from runplan.domain.run.kinds import Mode
from runplan.domain.run.requests import RunRequest
from runplan.domain.run.rows import RunRow, wait_of
from runplan.domain.run.state import RunState
from runplan.domain.settings.options import Options, parse_words
from runplan.domain.settings.schema import MAX_ROUNDS
from runplan.domain.text import command, plain
from runplan.engine.landing import modes
from runplan.engine.loop import preflight
from runplan.engine.loop.context import RepositoryContext, known_plans, open_context, plan_path
from runplan.engine.loop.runs import state_of
from runplan.engine.report.views import as_json
from runplan.engine.steps.planning import list_paths, make_proposal
from runplan.interfaces.cli.control import runs
from runplan.interfaces.cli.control.answers import ask_on_terminal, continue_run
from runplan.interfaces.cli.show import progress
from runplan.interfaces.cli.show.ending import show_end

LONGEST_GOAL = 100_000  #: bytes
SPEC_TEXTS = ("proposal.md", "requirements.md", "spec.md", "design.md")  #: the files of a spec folder that are a goal


class Goal(Struct, frozen=True, kw_only=True):
    """What a plan is to be written for."""

    text: str
    title: str
    is_quoted: bool = False  #: from a file or an issue
    issues: tuple[int, ...] = ()
    plan: str = ""  #: that is revised
    phase: str = ""  #: of it that is revised


def run_plan(args: argparse.Namespace) -> Exit:
    if not _has_source(args):
        return _show_proposals()
    then = parse_words(args.then.split()) if args.then else None
    if then is not None and then.phase:
        raise UsageError(f"--then {then.phase}: the phases are not known yet; say finish, or nothing for the first")
    if args.foreground and args.no_wait:
        raise UsageError("--foreground with --no-wait: leave out one of them")
    if args.rounds is not None and not 1 <= args.rounds <= MAX_ROUNDS:
        raise UsageError(f"--rounds {args.rounds}: must be 1 to {MAX_ROUNDS}")
    with open_context() as context:
        landing = then.landing if then is not None else ""
        context = runs.with_landing(context, landing)
        runs.complete_landings(context)
        context = runs.with_target_settings(context, landing)
        goal = _read_goal(context, args)
        context = _with_agents(context, args, runs_later=then is not None)
        if (same := _find_planning(context, goal)) is not None:
            return _follow_planning(context, *same, args)
        request = _resolve_request(context, goal, args, then)
        plan = request.started.plan
        if _is_local(context, plan, args):
            code = runs.run_here(context, request)
        else:
            runs.admit_agents(context)
            code = runs.submit_run(context, request, wait=not args.no_wait)
        code = code if args.no_wait else ask_on_terminal(context, plan, code)
        if args.json:
            _print_json(context, plan)
        return code


def _is_local(context: RepositoryContext, plan: str, args: argparse.Namespace) -> bool:
    """Whether this process does it; a revision of a plan that is being worked is done by the run."""
    left = runs.unfinished_run(context, plan)
    if left is None:
        return bool(args.foreground)
    if args.agent or args.critic:
        progress.warn("the run keeps its agents; --agent and --critic have no effect")
    return not left[0].daemon


# --- the goal -------------------------------------------------------------------------------------------


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
        edit = command("runplan", "edit", plan)
        print(f"{plan}: {plain(change.attempt.chosen.title)}")
        print(f"  {wait_of(change.waiting).help(plan)}; edit it: {edit}")
    return Exit.DONE


def _has_source(args: argparse.Namespace) -> bool:
    """Whether a goal is given; two of them are refused, as are options that need one."""
    sources = {
        "a goal": bool(args.goal) and not args.revise,
        "--file": args.file is not None,
        "--issue": args.issue is not None,
        "--revise": args.revise,
    }
    given = [name for name, is_given in sources.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: a plan is written for one goal; leave out one of them")
    if args.why and not args.revise:
        raise UsageError("-m: only with --revise; else the goal says it")
    return bool(given)


def _read_goal(context: RepositoryContext, args: argparse.Namespace) -> Goal:
    if args.revise:
        return _read_revision(context, args.goal, args.why)
    if args.issue is not None:
        issue = modes.open_forge(context.git, context.settings.run, context.env).read_issue(args.issue)
        text = _require_size(f"{issue.title}\n\n{issue.body}".encode())
        return Goal(text=text, title=title_of_goal(issue.title), is_quoted=True, issues=(issue.number,))
    if args.file is not None:
        return _quote_files([Path(context.cwd, args.file)])
    if args.goal == ["-"]:
        text = _require_size(sys.stdin.buffer.read(LONGEST_GOAL + 1))
        return Goal(text=text, title=title_of_goal(text))
    word = args.goal[0]
    if len(args.goal) == 1 and word and os.path.isdir(context.cwd / word):  # noqa: PTH112 - False for one that is too long
        return _read_spec(context.cwd / word, word)
    text = _require_size(" ".join(args.goal).encode("utf-8", "surrogateescape"))
    return Goal(text=text, title=title_of_goal(text))


def _require_size(content: bytes) -> str:
    if len(content) > LONGEST_GOAL:
        raise UsageError(f"the goal has more than {LONGEST_GOAL:,} bytes; describe it more shortly")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("the goal is not UTF-8; convert it first") from None
    if not text.strip():
        raise UsageError("the goal is empty; say what the plan is for")
    return text


def _quote_files(files: list[Path]) -> Goal:
    try:
        content = b"\n".join(file.read_bytes() for file in files)
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    text = _require_size(content)
    return Goal(text=text, title=title_of_goal(text), is_quoted=True)


def _read_spec(folder: Path, word: str) -> Goal:
    """The texts of a spec folder that has no tasks yet."""
    if (folder / names.PLAN_FILE).exists():
        start = command("runplan", "start", word)
        raise UsageError(f"{word} has a {names.PLAN_FILE}, which is a plan already; work on it: {start}")
    files = [folder / name for name in SPEC_TEXTS if (folder / name).is_file()]
    if not files:
        raise UsageError(
            f"{word} is a folder without {', '.join(SPEC_TEXTS)}; say the goal in more words, or name a file: --file"
        )
    return replace(_quote_files(files), title=title_of_goal(folder.name.replace("-", " ")))


def _read_revision(context: RepositoryContext, words: list[str], why: str) -> Goal:
    if not words:
        raise UsageError("--revise: name the plan: runplan plan --revise PLAN [PHASE] [-m TEXT]")
    path = plan_path(context, words[0])
    context = context.for_plan(path)
    plan = parse_plan(preflight.committed_plan(context, path, is_compared=False), path=path)
    if why_not := describe_unrevisable(plan):
        raise RefusedEarly(f"{path}: {why_not}")
    phase = words[1] if len(words) > 1 else ""
    if len(words) > 2:
        raise UsageError(f"{words[2]}: --revise takes a plan and a phase; say why with -m TEXT")
    if phase and plan.phase(phase) is None:
        raise NotFound(f"{path} has no phase {phase}; there are: {', '.join(row.id for row in plan.phases)}")
    text = _require_size((why or f"Revise {f'phase {phase}' if phase else 'the plan'}: make it fit the code.").encode())
    return Goal(text=text, title=plan.title or path, plan=path, phase=phase, issues=plan.issues)


# --- the request ----------------------------------------------------------------------------------------


def _with_agents(context: RepositoryContext, args: argparse.Namespace, *, runs_later: bool) -> RepositoryContext:
    """The context whose agents are the planner and the critic; those of a run that follows are also given keys."""
    agents = context.settings.agents
    for option, name in (("--agent", args.agent), ("--critic", args.critic)):
        known = (*agents.tables, *list_agent_kinds())
        if name is not None and name not in known:
            raise UsageError(f"{option} {name}: no such agent; there are: {', '.join(sorted(known))}")
    planner = args.agent or agents.planner
    critic = args.critic or agents.judges[0]
    for role, name in (("planner", planner), ("verifier", critic)):
        require_agent(agents.agent(name), role, root=context.root, caller=context.env)
    others = {"implementer": agents.implementer, "verifiers": (critic, *agents.judges)} if runs_later else {}
    chosen = {"implementer": planner, "verifiers": (), **others}
    agents = replace(agents, planner=planner, verifier=critic, **chosen)
    return replace(context, settings=replace(context.settings, agents=agents))


def _resolve_request(
    context: RepositoryContext, goal: Goal, args: argparse.Namespace, then: Options | None
) -> RunRequest:
    settings = context.settings.plan
    path = goal.plan or _choose_path(context, goal.title, args.out)
    if not context.settings.tests.command:
        preflight.require_test_command(context)
    queued = None
    if then is not None:  # it begins when the plan has landed, and reads the settings then
        later = runs.for_daemon(context, runs.run_started(context, path, goal.title, then, issues=goal.issues))
        queued = RunRequest(started=later, timing=runs.timing_of(then, context.settings.run))
    planning = Planning(
        goal=goal.text,
        is_quoted=goal.is_quoted,
        is_revision=bool(goal.plan),
        revises=goal.phase,
        quick=args.quick or (settings.quick and args.rounds is None),
        rounds=args.rounds or settings.rounds,
        asks=args.ask,
        approval=settings.approval,
        then=json.dumps(to_builtins(queued)) if queued is not None else "",
    )
    started = runs.run_started(context, path, goal.title, Options(), issues=goal.issues)
    started = context.record_settings(replace(started, mode=Mode.PLAN, planning=planning))
    return RunRequest(started=started)


def _choose_path(context: RepositoryContext, title: str, out: str | None) -> str:
    """The file of the new plan, which no file, branch or other planning run has."""
    taken = {path.lower() for path in known_plans(context, context.store().list_active_plans())}
    plans = context.settings.paths.plans
    if out is not None:
        path = Path(context.cwd, out)
        if not path.is_relative_to(context.root) or ".." in path.parts or not path.name.endswith(".md"):
            raise UsageError(f"--out {out}: must be a .md file inside the repository, such as {plans}/NAME.md")
        relative = path.relative_to(context.root).as_posix()
        names.require_plain(relative)
        if relative.lower() in taken or path.exists() or context.git.blob(context.tip(), relative) is not None:
            raise RefusedEarly(f"{relative} exists already; choose another name")
        return relative
    slug = slug_of_title(title)
    numbered = (PurePath(plans, f"{slug}{f'-{number}' if number > 1 else ''}.md") for number in range(1, 10_000))
    return next(path.as_posix() for path in numbered if path.as_posix().lower() not in taken)


# --- a goal that is planned already -----------------------------------------------------------------------


def _find_planning(context: RepositoryContext, goal: Goal) -> tuple[RunRow, RunState] | None:
    """The unfinished planning run for the same goal, or for the same plan."""
    store = context.store()
    for row in store.list_unfinished_runs():
        state = state_of(store, row)
        attempt = state.attempt
        planning = state.options.planning or (attempt.chosen.planning if isinstance(attempt, PlanningAttempt) else None)
        if planning is None or (attempt is not None and attempt.cleaned):
            continue
        if row.plan == goal.plan if goal.plan else planning.goal == goal.text and not planning.is_revision:
            return row, state
    return None


def _follow_planning(context: RepositoryContext, row: RunRow, state: RunState, args: argparse.Namespace) -> Exit:
    """Follow the run that there is, instead of a second one."""
    progress.say(f"{row.plan} is already being planned ({row.id})")
    is_left = not row.daemon or not context.store().get_living_owner(row.plan)
    if is_left and not row.needs_person:
        code = continue_run(context, RunRequest(started=state.options), wait=not args.no_wait)
    elif row.needs_person or args.no_wait:
        code = show_end(context, row.id)
    else:
        code = runs.follow_run(context, row.plan, row.id)
    if args.json:
        _print_json(context, row.plan)
    return code


# --- a person's own version -------------------------------------------------------------------------------


def run_edit(args: argparse.Namespace) -> Exit:
    with open_context() as context:
        plan = plan_path(context, args.plan)
        left = runs.unfinished_run(context, plan)
        attempt = left[1].attempt if left is not None else None
        if left is None or not isinstance(attempt, PlanningAttempt) or attempt.proposal is None:
            raise NotFound(f"no proposal of {plan} waits for you; see: {command('runplan', 'status', plan)}")
        proposal = attempt.proposal
        file = context.state / "edited" / f"{names.slug(plan)}-{proposal.sha256[:12]}.md"
        text = set_plan_status(_edit_text(context, proposal.text, file), PlanStatus.PROPOSED)
        if text == proposal.text:
            progress.say("nothing was changed")
            return Exit.WAITING
        options = left[1].options
        facts = StepFacts(
            paths=list_paths(context.git, attempt.chosen.tip),
            before=attempt.chosen.before,
            path=plan,
            test_command=context.for_run(options).settings.tests.command,
        )
        if problems := check_plan(text, facts).problems:
            raise RefusedEarly(f"the edited plan is not valid: {'; '.join(problems)}. Your text is kept at {file}")
        edited = replace(make_proposal(text, path=plan), is_edited=True, replaces=proposal.sha256)
        code = continue_run(context, RunRequest(started=options, edited=edited))
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


# --- output ---------------------------------------------------------------------------------------------


def _print_json(context: RepositoryContext, plan: str) -> None:
    row = context.store().get_newest_run(plan)
    assert row is not None
    print(as_json(view_planning(context, row.id)))
