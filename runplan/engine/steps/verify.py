"""Starts a verifier or a trial and judges its reply; the last verification; and numbers that a plan states."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from runplan.adapters.agents import prompts
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.invocation import list_instructions
from runplan.adapters.git.objects import KEEPER, SUBMODULE, TREE, Entry, find, list_files
from runplan.adapters.store.files import publish, read_bounded
from runplan.adapters.supervise.output import MISREAD
from runplan.domain.checks import drift, returns, verdict
from runplan.domain.checks.evidence import Facts
from runplan.domain.globs import covers
from runplan.domain.names import as_utf8, is_below
from runplan.domain.plan.body import named_paths
from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import TrialJudged
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import EVERY_PHASE, OWN, RETURN, EndingKind, Outcome, Return, ToolUsed
from runplan.domain.run.kinds import GateAnswer, Reason
from runplan.domain.run.state import RunState
from runplan.engine.steps.context import RunContext
from runplan.engine.steps.gates import known_results, read_content
from runplan.engine.steps.process import Prepared, launch_agent, write_brief

EVIDENCE = 2000  #: characters of evidence that are kept for an item
LARGEST_KEPT = 5_000_000  #: bytes of a file of a trial
LONGEST_NAME = 60  #: characters of its name
LARGEST_CITED = 64 * 1024 * 1024  #: bytes of a file in which lines are counted


def prepare_verifier(started: e.DispatchStarted, state: RunState, context: RunContext) -> Prepared:
    phase = state.work
    base = _base_of(phase, context, started.scope)
    without = context.bookkeeping if started.scope else ()
    diff = context.candidates.diff(base, phase.built.commits[-1], without=without)
    commit = _commit_shown(phase, context, started.scope)
    asked = phase.proof.questions_to_verifiers(context.settings.tests.changed)
    brief = write_brief(started, phase, context, tip=phase.built.commits[-1], asked=asked)
    checks = context.settings.checks
    gates = [(checks[gate.name].command, gate) for gate in phase.proof.gates if gate.answer is not GateAnswer.SKIPPED]
    proofs = () if started.scope else phase.proof.runs
    if started.scope:  # the whole plan instead of one phase
        whole = context.plan_at(phase.built.onto)[1].decode("utf-8", "replace")
        of_plan = {"phase": EVERY_PHASE, "text": whole, "items": final_items(phase, context), "touches": ()}
        brief = replace(brief, chosen=replace(brief.chosen, **of_plan))
    changed = _list_changed(phase, context, started.scope)
    template = context.prompts[prompts.FINAL if started.scope else started.role]
    missing = _list_missing(phase, context, started.scope)
    rows = []  # changed instructions of agents, which a verifier gets as files of its own
    for number, path in enumerate(_find_instructions(phase, context, started.scope), 1):
        content = context.objects.blob(phase.built.commits[-1], path)
        copy = f"{OWN}/instructions-{number}.txt"  # under a name that no program takes as instructions
        if content is not None:
            context.dispatches.write(started.id, copy, content.decode("utf-8", "surrogateescape"))
        rows.append((path, "removed" if content is None else str(context.dispatches.directory(started.id) / copy)))
    text = prompts.verify_prompt(template, brief, diff=diff, changed=changed, gates=gates, proofs=proofs)
    text += as_utf8(prompts.verifier_notes(missing, phase.proof.doubted, rows))
    launch = launch_agent(started, context, text, base=phase.base, attempt=phase.leased.attempt)
    return Prepared(started=started, launches=(launch,), diff=diff, commit=commit)


def _find_instructions(phase: WorkAttempt, context: RunContext, scope: str) -> dict[str, Entry | None]:
    base = _base_of(phase, context, scope)
    patterns = list_instructions(context.settings.agents)
    changed = (path for path in _list_changed(phase, context, scope) if covers(patterns, path))
    return {path: context.candidates.entry(base, path) for path in changed}


def _commit_shown(phase: WorkAttempt, context: RunContext, scope: str) -> str:
    """The candidate, but with the base's instructions of agents: work must not instruct its judge."""
    head = phase.built.commits[-1]
    if not (before := _find_instructions(phase, context, scope)):
        return head
    tree = context.candidates.tree_with(phase.built.tree, before)
    message = "The instructions of agents as they were before this work\n"
    return context.candidates.commit(tree, onto=head, message=message, by=KEEPER)


def reply_of(id: str, context: RunContext) -> tuple[str, Return | returns.Unusable]:
    """The message of an agent that has ended, and its return without secrets."""
    text, message = _read_reply(id, context)
    return message, returns.parse_return(text, message)


def _read_reply(id: str, context: RunContext) -> tuple[str | None, str]:
    outcome = context.dispatches.standing(id)
    text = context.dispatches.read(id, RETURN)
    message = outcome.message if isinstance(outcome, Outcome) else ""
    return None if text is None else context.agents.redacted(text), message


def judge_verdict(state: RunState, context: RunContext) -> Iterator[e.Event]:
    phase = state.work
    scope = phase.dispatches.newest.scope if phase.dispatches.newest else ""
    is_read_only = context.agents.is_sandboxed(phase.ended.agent)
    shown = "" if is_read_only else _commit_shown(phase, context, scope)
    if shown and (touched := context.proof.changed(shown, context.personal)):
        yield e.WorkRefused(reason=Reason.READONLY_VIOLATED, detail=f"the verifier changed {', '.join(touched[:8])}")
        return
    message, answer = reply_of(phase.ended.id, context)
    questions = () if scope else phase.proof.questions_to_verifiers(state.options.kept.tests.changed)
    ids = [item for item, _ in (final_items(phase, context) if scope else phase.chosen.items)]
    asked = [item for item, _ in questions]
    is_red = any(gate.answer is GateAnswer.FAILED for gate in phase.proof.newest_gates.values())
    judged = verdict.judge_reply(answer, ids, facts_of(phase, context, scope), questions=asked, gates_red=is_red)
    is_first = phase.proof.doubted is None
    if isinstance(judged, returns.Unusable):
        doubt = e.VerdictDoubted(patch=phase.built.patch, why=f"it gave no verdict: {judged.why}")
        yield doubt if is_first else e.WorkRefused(reason=Reason.INVALID_VERDICT, detail=judged.why)
        return
    if judged.unresolved and is_first:
        missing = tuple((item, words[:EVIDENCE]) for item, words in judged.unresolved)
        why = f"its evidence for {', '.join(item for item, _ in missing)} did not resolve"
        yield e.VerdictDoubted(patch=phase.built.patch, why=why, items=missing)
        return
    is_last = sum(not earlier.scope for earlier in phase.proof.verdicts) + 1 >= len(context.settings.agents.judges)
    if judged.passed and is_last and not scope and (drift_found := measure_drift(phase, context, message)) is not None:
        yield drift_found  # before the verdict: after a crash in between both are found again
        if drift_found.abort:
            return
    yield e.VerdictGiven(
        tree=phase.built.tree,
        patch=phase.built.patch,
        passed=judged.passed,
        items=tuple((item.item, item.passed, item.evidence[:EVIDENCE]) for item in judged.items),
        agent=phase.ended.agent,
        scope=scope,
        work_items=sum(len(row.items) for row in context.plan_at(phase.built.onto)[0].phases) if scope else 0,
        questions=questions,
        absent=tuple((item.item, path) for item in judged.items for path in item.absent),
        why=judged.why,
    )


def prepare_trial(started: e.DispatchStarted, state: RunState, context: RunContext) -> Prepared:
    phase = state.work
    diff = context.candidates.diff(phase.built.onto, phase.built.commits[-1])
    brief = write_brief(started, phase, context, tip=phase.built.commits[-1])
    values = prompts.diff_values(diff) | {"folder": str(context.dispatches.directory(started.id) / OWN)}
    text = prompts.fill_template(context.prompts[started.role], brief.values() | values)
    text += as_utf8(prompts.verifier_notes((), phase.proof.doubted, ()))
    launch = launch_agent(started, context, text, base=phase.base, attempt=phase.leased.attempt)
    return Prepared(started=started, launches=(launch,), diff=diff, commit=_commit_shown(phase, context, ""))


def judge_trial(state: RunState, context: RunContext) -> e.Event:
    phase = state.work
    ended = phase.ended
    judged = TrialJudged(tree=phase.built.tree, patch=phase.built.patch, agent=ended.agent, dispatch=ended.id)
    if ended.kind == EndingKind.UNSERVED:
        return replace(judged, findings=(ended.detail,))
    report = returns.parse_trial(*_read_reply(ended.id, context))
    if isinstance(report, returns.Unusable):
        why = f"it gave no answer: {report.why}"
        doubt = e.VerdictDoubted(patch=phase.built.patch, why=why, who="agent of the trial")
        is_first = phase.proof.doubted is None
        return doubt if is_first else e.WorkRefused(reason=Reason.INVALID_VERDICT, detail=f"the trial: {report.why}")
    directory = context.dispatches.directory(ended.id)
    files = []
    for number, stated in enumerate(report.files, 1):  # copied to where no agent writes, under a plain name
        path = Path(os.path.realpath(directory / OWN / stated.path))
        is_own = path.is_relative_to(os.path.realpath(directory / OWN))
        content = read_bounded(path, largest=LARGEST_KEPT, follow=False) if is_own else None
        if content is not None and not returns.find_image_type(content):
            try:
                content = context.agents.redacted(content.decode()).encode()
            except UnicodeDecodeError:
                content = None
        if content is None:
            why = f"not kept: no image or text of at most {LARGEST_KEPT:,} bytes in its folder"
            files.append(replace(stated, summary=why))
            continue
        name = f"trial-{number:02}-{re.sub(r'[^A-Za-z0-9._-]+', '-', path.name)[-LONGEST_NAME:]}"
        publish(directory / name, content, sync=False)
        if (stored := context.dispatches.stored) is not None:  # for other hosts
            stored.add(ended.id, name, BytesIO(content), directory / name)
        files.append(replace(stated, path=name))
    return replace(judged, findings=report.findings, files=tuple(files), summary=report.summary)


def facts_of(phase: WorkAttempt, context: RunContext, scope: str) -> Facts:
    base_tree = context.objects.commit(_base_of(phase, context, scope)).tree
    text = context.plan_at(phase.built.onto)[1].decode("utf-8", "replace") if scope else phase.chosen.text
    tests: dict[str, bool] | None = {}  # whether each passed; None where a gate does not name its tests
    for name in context.settings.checks:
        known = known_results(phase, context, name)
        if known is not None and known.passes:
            passed = {**dict.fromkeys(known.failures, False), **dict.fromkeys(known.passes, True)}
            tests = None if tests is None else tests | passed
        elif name == e.TESTS or (known is not None and known.passed):
            tests = None
    return Facts(
        count_lines=cache(lambda path: count_lines(phase.built.tree, path, context)),
        is_in_base=lambda path: count_lines(base_tree, path, context) is not None,
        changed=_list_changed(phase, context, scope),
        text=text,
        touches=phase.chosen.touches,
        test_paths=context.settings.tests.paths,
        missing=_list_missing(phase, context, scope),
        tests=tests or None,
        list_commands=cache(lambda: _list_commands(phase, context)),
        root=str(context.proof.path),
    )


def count_lines(tree: str, path: str, context: RunContext) -> int | None:
    part, entry = find(context.objects, tree, path)
    if part != path or entry is None or entry.mode in (TREE, SUBMODULE):
        return None
    stored = context.objects.object(entry.oid, most=LARGEST_CITED)
    return len(stored.content.splitlines()) if stored is not None else None


def _base_of(phase: WorkAttempt, context: RunContext, scope: str) -> str:
    return context.find_plan_base(phase) if scope else phase.built.onto


def _list_changed(phase: WorkAttempt, context: RunContext, scope: str) -> list[str]:
    changes = context.candidates.changes(_base_of(phase, context, scope), phase.built.commits[-1])
    return [change.path for change in changes if not is_below(change.path, context.bookkeeping)]


def _list_missing(phase: WorkAttempt, context: RunContext, scope: str) -> e.Rows:
    """Items, each with a file that it names: it was never there since the plan began, and git does not ignore it."""
    texts = phase.chosen.items if phase.chosen.phase else ()
    if scope:
        rows = enumerate(context.plan_at(phase.built.onto)[0].phases, 1)
        texts = tuple((f"F{number}", item.text) for number, row in rows for item in row.items)
    named = dict.fromkeys((item, path) for item, text in texts for path in named_paths(text))
    git = context.objects
    head = phase.built.commits[-1]
    missing = {path for _, path in named if find(git, phase.built.tree, path)[1] is None}  # not in a submodule either
    if not missing:
        return ()
    tips = (fact.event.tip for fact in context.store.list_facts(e.Landed, plan=context.plan))
    for commit in dict.fromkeys((head, phase.built.onto, context.find_plan_base(phase), *tips)):
        files = list_files(git, git.commit(commit).tree, "") if git.tip(commit) is not None else ()
        missing = {path for path in missing if not any(f"/{file}".endswith(f"/{path}") for file in files)}
    with TemporaryDirectory() as place:  # with the .gitignore files of the tree
        for name, entry in list_files(git, phase.built.tree, "").items():
            if name.endswith(".gitignore") and (rules := git.object(entry.oid)) is not None:
                Path(place, name).parent.mkdir(parents=True, exist_ok=True)
                Path(place, name).write_bytes(rules.content)
        ask = (f"--work-tree={place}", "check-ignore", "--no-index", "-z", "--stdin")
        ignored = git.run(*ask, stdin=os.fsencode("\0".join(missing)), ok=(0, 1)).out
    missing -= set(os.fsdecode(ignored).split("\0"))
    return tuple((item, path) for item, path in named if path in missing)


def _list_commands(phase: WorkAttempt, context: RunContext) -> list[str] | None:
    """The commands of the gates and those that the verifier's stream shows; None when it does not show its tools."""
    agent = agent_of(context.settings.agents.agent(phase.ended.agent).kind)
    used: list[ToolUsed] = []
    for line in read_content(context.dispatches.directory(phase.ended.id) / "out.log").splitlines():
        with suppress(*MISREAD):
            used += [event for event in agent.read_line(line) if isinstance(event, ToolUsed)]
    if not used and not agent.prints_json:
        return None
    return [check.command for check in context.settings.checks.values()] + [tool.detail for tool in used]


def final_items(phase: WorkAttempt, context: RunContext) -> e.Rows:
    plan, _ = context.plan_at(phase.built.onto)
    return tuple((f"F{number}", f"phase {row.id}") for number, row in enumerate(plan.phases, 1))


def measure_drift(phase: WorkAttempt, context: RunContext, message: str) -> e.DriftFound | None:
    """The differences that the last writer and the verifier report; None when they report none."""
    written = drift.read_tokens(reply_of(phase.written, context)[0] if phase.written else "")
    verified = drift.read_tokens(message)
    if not any((written.drifts, written.malformed, verified.drifts, verified.malformed)):
        return None
    facts = partial(context.store.list_facts, plan=context.plan)
    landed = {fact.event.phase for fact in facts(e.Landed) if fact.run == context.run}
    made = [fact.event for fact in facts(e.DriftFound) if fact.run == context.run and fact.event.of in landed]
    corrected = {(of, bullet) for event in made for of, bullet, _, _ in event.corrections}  # in this run
    return replace(drift.judge_drifts(written, verified, corrected), of=phase.chosen.phase)


def correct_plan(text: bytes, phase: WorkAttempt, context: RunContext) -> tuple[bytes, list[str]]:
    """The plan with the corrections of the phase, and a line about each for the report."""
    lines = list(phase.drift.lines) if phase.drift else []
    for of, bullet, stated, actual in phase.drift.corrections if phase.drift else ():
        correction = drift.Drift(of, bullet, "", stated, actual)
        row = parse_plan(text, path=context.plan).phase(of)
        is_other = context.settings.run.parallel > 1 and context.lane and of != phase.chosen.phase
        # Another lane may be working on that phase; and in JSON the criteria are written in another way.
        if row is None or is_other or row.text.encode("utf-8", "surrogateescape") not in text:
            lines.append(f"phase {of}, criterion {bullet}: states {stated}, measured are {actual}; not corrected")
            continue
        section, why = drift.correct_section(row.text, correction, date=context.iso()[:10])
        if why:
            lines.append(f"{why}; the plan was not corrected")
            continue
        text = text.decode("utf-8", "surrogateescape").replace(row.text, section, 1).encode("utf-8", "surrogateescape")
        new = drift.corrected_text(stated, actual)
        lines.append(f"phase {of}, criterion {bullet}: corrected from {stated} to {new}, as {actual} were measured")
    return text, lines
