"""Tests of one side on the code of the other: which runs a candidate needs, and what their results say."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from shlex import join

from msgspec.structs import replace

from runplan.adapters.git.objects import KEEPER, Entry
from runplan.domain.checks import promises as p, results
from runplan.domain.checks.emptied import empty_added_functions
from runplan.domain.checks.guarded import is_collected, is_on_test_side, is_project_settings, is_test, read_sections
from runplan.domain.checks.results import file_of
from runplan.domain.checks.runners.naming import UNNAMED
from runplan.domain.gitfacts import Change
from runplan.domain.globs import covers
from runplan.domain.run import events as e
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import Evidence, NewTestsAnswer
from runplan.domain.run.kinds import ProofKind, Role
from runplan.domain.run.state import RunState
from runplan.engine.steps import gates
from runplan.engine.steps.context import RunContext

MOST_TIMES = 5  #: the gate's time that a run may take
SHORTEST_LIMIT_S = 30.0
MOST_FILES = 20  #: with more test files, the whole suite runs
MOST_PARSED = 5_000_000  #: bytes of product files
_DEPRECATIONS = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")
#: A file that cannot be loaded must not keep pytest from the others; a new warning breaks no promise.
FIRST_OPTIONS = "--continue-on-collection-errors"
SECOND_OPTIONS = " ".join((FIRST_OPTIONS, *(f"-W ignore::{kind}" for kind in _DEPRECATIONS)))


def plan_proofs(built: e.CandidateBuilt, context: RunContext) -> e.CandidateBuilt:
    """The candidate with the runs that are due because its tests differ from those before the plan."""
    tests = context.settings.tests
    if not tests.command or tests.prove == "off":
        return built
    changes = context.candidates.changes(built.onto, built.commits[-1])
    settings = [change.path for change in changes if is_project_settings(change.path)]
    texts = {path: [context.read_file(end, path) or "" for end in (built.onto, built.commits[-1])] for path in settings}
    sections = {path: [read_sections(path.rpartition("/")[2], text, set()) for text in texts[path]] for path in texts}
    of_runners = {path for path, (old, new) in sections.items() if old != new}
    ours = {c.path: c for c in changes if is_on_test_side(c.path, tests.paths) or c.path in of_runners}
    versions = _find_versions(built, context)
    before = {path: Entry(change.old_mode, change.old) if change.kind != "A" else None for path, change in ours.items()}
    after = {path: Entry(change.new_mode, change.new) if change.kind != "D" else None for path, change in ours.items()}
    earlier = {path: context.candidates.entry(commit, path) for path, commit in versions.items()}
    rewritten = {path for path, change in ours.items() if change.kind != "A" or not is_collected(path)}
    overlays: list[tuple[ProofKind, str, Mapping[str, Entry | None]]] = []
    if rewritten or earlier:
        overlays.append((ProofKind.OLD_TESTS, built.tree, before | earlier))
    if rewritten & versions.keys():
        overlays.append((ProofKind.LANDED_TESTS, built.tree, before))
    if len(ours) < len(changes) and any(after[path] is not None and is_test(path, tests.paths) for path in ours):
        overlays.append((ProofKind.NEW_TESTS, built.onto_tree, after))
    proofs: list[e.ProofRun] = []
    for kind, tree, files in overlays:
        made = context.candidates.tree_with(tree, files)
        if made != tree:
            commit = context.candidates.commit(made, onto=built.onto, message=f"{kind}\n", by=KEEPER)
            present = tuple(path for path, entry in files.items() if entry is not None)
            is_whole = not all(map(is_collected, files)) or not 0 < len(present) <= MOST_FILES
            proofs.append(e.ProofRun(kind=kind, commit=commit, tree=made, files=() if is_whole else present))
    if proofs and proofs[-1].kind is ProofKind.NEW_TESTS:
        tree = context.candidates.tree_with(built.tree, _empty_product(changes, ours, built, context))
        commit = context.candidates.commit(tree, onto=built.onto, message="emptied\n", by=KEEPER)
        tests_of_phase = tuple(path for path, entry in after.items() if entry is not None and is_collected(path))
        paths = tests_of_phase if len(tests_of_phase) <= MOST_FILES else ()
        proofs.append(e.ProofRun(kind=ProofKind.EMPTIED, commit=commit, tree=tree, files=paths))
    return replace(built, proofs=tuple(proofs), versions=tuple(versions.items()))


def _empty_product(
    changes: Iterable[Change], tests: Collection[str], built: e.CandidateBuilt, context: RunContext
) -> dict[str, Entry]:
    """The product files without the functions that the phase added; none if the tests have none of their names."""
    git = context.objects
    head = built.commits[-1]
    text = b"\n".join(git.blob(head, path) or b"" for path in tests)
    words = set(re.findall(r"\w+", text.decode("utf-8", "replace")))
    files: dict[str, Entry] = {}
    is_named = False
    size = 0
    for change in changes:
        new = git.blob(head, change.path) if change.new_mode.startswith("100") and change.path not in tests else None
        size += len(new or b"")
        if new is None or size > MOST_PARSED:
            continue
        if emptied := empty_added_functions(change.path, git.blob(built.onto, change.path), new):
            files[change.path] = Entry(change.new_mode, git.write_object("blob", emptied.content))
            is_named = is_named or not words.isdisjoint(emptied.words)
    return files if is_named else {}


def _find_versions(built: e.CandidateBuilt, context: RunContext) -> dict[str, str]:
    """The test files that earlier phases of the plan changed, each with the commit before the first change."""
    # A weakening that is harmless now could be used by a later phase. A file that a person has edited since counts as
    # it is on the target.
    landings = _list_landings(context)
    if not landings or context.objects.tip(landings[0].old) is None or p.SUITE in _list_answered(context, landings):
        return {}
    changes = context.candidates.changes(landings[0].old, built.onto)
    changed = {change.path for change in changes if is_on_test_side(change.path, context.settings.tests.paths)}
    versions: dict[str, str] = {}
    newest: dict[str, str] = {}
    for landing in landings if changed else ():
        for change in context.candidates.changes(landing.old, landing.code):
            if change.path in changed:
                newest[change.path] = change.new if change.kind != "D" else ""
                if change.kind != "A":
                    versions.setdefault(change.path, landing.old)
    entries = {path: context.candidates.entry(built.onto, path) for path in versions}
    edited = {path for path, entry in entries.items() if entry is not None and entry.oid != newest[path]}
    return {path: old for path, old in versions.items() if path not in edited}


def _list_landings(context: RunContext) -> list[e.LandingStarted]:
    """The landings of the plan since it was complete; oldest first."""
    landed = {recorded.event.id for recorded in context.store.list_facts(e.Landed, plan=context.plan)}
    begun = [recorded.event for recorded in context.store.list_facts(e.LandingStarted, plan=context.plan)]
    landings = [event for event in begun if event.id in landed and event.code]
    ends = [number for number, event in enumerate(landings, 1) if event.complete]
    return landings[ends[-1] if ends else 0 :]


def _list_answered(context: RunContext, landings: list[e.LandingStarted]) -> set[str]:
    """The tests whose change has landed with an answer: they are not asked about again."""
    known = (context.objects.tip(landing.code) for landing in landings)
    trees = {context.objects.commit(code).tree for code in known if code}
    judged = (recorded.event for recorded in context.store.list_facts(e.ProofJudged, plan=context.plan))
    return {promise.test for event in judged if event.tree in trees and event.time > 1 for promise in event.promises}


def list_unproven(phase: WorkAttempt, context: RunContext) -> tuple[str, ...]:
    """Why changed tests were not compared with the base's, or not by name, for the report."""
    tests = context.settings.tests
    if not tests.command:
        return ()
    known = gates.known_results(phase, context)
    unnamed = (UNNAMED,) if known is not None and not known.ran and known.passed != 0 else ()
    if tests.prove == "off" and any(is_on_test_side(path, tests.paths) for path in phase.changed_files):
        return ('tests changed, and `tests.prove = "off"`: the tests of the base did not run on the new code', *unnamed)
    products = (path for path in phase.changed_files if not is_on_test_side(path, tests.paths))
    if inner := next((path for path in products if path.endswith(".rs")), ""):
        return (f"tests inside product files are not compared with the base's: {inner}", *unnamed)
    return unnamed


def command_line(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> tuple[str, float]:
    """The test command on the files that differ, where the runner takes files; else the whole of it."""
    tests = context.settings.tests
    run = _run_of(started.scope, phase)
    first = phase.proof.newest_runs.get(ProofKind(started.scope))
    files = _files_of(first.promises) if first else run.files
    base = gates.base_results(phase, context)
    line = ""
    if files and base is not None and any(file_of(name) for name in base.passes):
        line = tests.rerun.replace("{tests}", join(files))
        line = line or results.rerun_command(tests.command, replace(base, failures=frozenset(files)))
    options = SECOND_OPTIONS if first else FIRST_OPTIONS
    gate = phase.proof.newest_gates.get(e.TESTS)
    limit_s = tests.timeout_s
    if gate is not None and gate.ran is not None:  # the new test of a mended endless loop does not end on the base
        ended = (recorded.event for recorded in context.store.list_facts(e.DispatchEnded, plan=context.plan))
        gate_s = next((event.seconds for event in ended if event.id == gate.ran.dispatch), limit_s)
        limit_s = min(limit_s, max(SHORTEST_LIMIT_S, MOST_TIMES * gate_s))
    return gates.with_names(line or tests.command, started, context, options), limit_s


def _files_of(promises: tuple[e.Promise, ...]) -> tuple[str, ...]:
    """The files of these tests; none when one of them has no file."""
    files = dict.fromkeys(file_of(f"{promise.test}::") for promise in promises)
    return tuple(files) if all(files) else ()


def _run_of(kind: str, phase: WorkAttempt) -> e.ProofRun:
    return next(run for run in phase.built.proofs if run.kind == kind)


def already_known(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> tuple[e.Event, ...]:
    """The run that ended before on the same code, with the same command and environment: it is not repeated."""
    known = None if started.again else _known_results(started.scope, phase, context)
    if known is not None:
        return (_judge_results(started, phase, context, known),)
    if started.scope != ProofKind.EMPTIED:
        return ()
    answer, line = _judge_new_tests(phase, context)
    # What run.setup builds from the functions stays as it is.
    setup = replace(started, role=Role.SETUP)
    is_built = gates.find_inputs(setup, phase, context) != gates.find_inputs(started, phase, context)
    if answer is None and (started.tree == phase.built.tree or is_built):
        why = "run.setup reads what changed" if is_built else "reach no added function that can be emptied"
        answer, line = NewTestsAnswer.NOT_JUDGED, f"{line}, and {why}"
    judged = e.ProofJudged(tree=phase.built.tree, kind=ProofKind.EMPTIED, line=line, answer=answer)
    return (judged,) if answer else ()


def judge_proof(state: RunState, context: RunContext) -> Iterator[e.Event]:
    phase = state.work
    started = phase.dispatches.newest
    assert started is not None
    for _, result, _, evidence in gates.read_checks(phase, context):
        if not result.unfinished and not started.again:
            context.store.put_baseline(_result_key(_run_of(started.scope, phase), context), results.to_text(result))
        yield _judge_results(started, phase, context, result, seconds=phase.ended.seconds, ran=evidence)


def _result_key(run: e.ProofRun, context: RunContext) -> str:
    return json.dumps([gates.check_key(context, e.TESTS, run.tree), run.files])


def _known_results(kind: str, phase: WorkAttempt, context: RunContext) -> results.Results | None:
    known = context.store.get_baseline(_result_key(_run_of(kind, phase), context))
    return results.from_text(known) if known else None


def _judge_results(
    started: e.DispatchStarted,
    phase: WorkAttempt,
    context: RunContext,
    result: results.Results,
    *,
    seconds: float = 0.0,
    ran: Evidence | None = None,
) -> e.ProofJudged:
    run = _run_of(started.scope, phase)
    judged = e.ProofJudged(tree=phase.built.tree, kind=run.kind, line=result.line, seconds=seconds, ran=ran)
    if run.kind is ProofKind.NEW_TESTS:  # which of them are new is known after the gate
        return judged
    if run.kind is ProofKind.EMPTIED:
        answer, line = _judge_new_tests(phase, context, result)
        return replace(judged, line=line, answer=answer)
    base = gates.base_results(phase, context)
    gate = gates.known_results(phase, context)
    new = frozenset(p.count_cases(gate.passes)) if gate else frozenset[str]()
    first = phase.proof.newest_runs.get(run.kind)
    notes = list[str]()
    expected = _count_expected(run, phase, context, base)
    if first is not None:
        judged = replace(judged, time=first.time + 1)
        if files := _files_of(first.promises):
            expected = Counter({f: n for f, n in expected.items() if file_of(f) in files})
    promises = p.find_broken(base, expected, result, new)
    if base is None or not base.passes:
        notes.append("results have no names, so the exit code and the counts decide")
    if first is not None:
        still = {promise.test for promise in promises}
        cleared = [promise.test for promise in first.promises if promise.test not in still]
        notes += [f"passed when repeated without warnings of deprecation: {', '.join(cleared)}"] if cleared else []
    else:
        before = base.passed if base else None
        dropped = p.note_dropped(expected, new, before=before, after=gate.passed if gate else None)
        notes += [dropped] if dropped else []
    changed = [path for path in phase.changed_files if is_on_test_side(path, context.settings.tests.paths)]
    asked: tuple[e.Promise, ...] = ()
    for promise in promises:  # a test without a file is permitted where Allows: covers a changed one
        of_test = [file] if (file := file_of(f"{promise.test}::")) else changed
        asked += () if any(covers(phase.chosen.allows, path) for path in of_test) else (promise,)
    permitted = [promise.test for promise in promises if promise not in asked]
    notes += [f"permitted by Allows: {', '.join(permitted)}"] if permitted else []
    return replace(judged, promises=asked, notes=tuple(notes))


def _judge_new_tests(
    phase: WorkAttempt, context: RunContext, emptied: results.Results | None = None
) -> tuple[NewTestsAnswer | None, str]:
    # Results that are not known did not end.
    old = _known_results(ProofKind.NEW_TESTS, phase, context) or results.read_results("", exit_code=None)
    base = gates.base_results(phase, context)
    gate = gates.known_results(phase, context)
    names = p.count_cases(gate.passes).keys() if gate else set[str]()
    is_named = names and base is not None and (base.passes or base.passed == 0)
    return p.judge_new_tests(names - p.count_cases(base.ran).keys() if base and is_named else None, old, emptied)


def _count_expected(
    run: e.ProofRun, phase: WorkAttempt, context: RunContext, base: results.Results | None
) -> Counter[str]:
    """How many cases of each function passed before; for a test file that earlier phases changed, before them."""
    versions = dict(phase.built.versions)
    trees = {path: context.objects.commit(commit).tree for path, commit in versions.items()}
    known = {path: context.store.get_baseline(gates.check_key(context, e.TESTS, tree)) for path, tree in trees.items()}
    earlier = {path: p.count_cases(results.from_text(text).passes if text else ()) for path, text in known.items()}
    answered = _list_answered(context, _list_landings(context)) if versions else set[str]()
    expected = p.count_cases(base.passes if base else ())
    if run.kind is ProofKind.LANDED_TESTS:
        for function in list(expected):
            file = file_of(function)
            is_older = function in earlier.get(file, ()) and not answered & {function, file}
            if file not in versions or is_older:
                del expected[function]
    elif versions:
        for function in list(expected):
            file = file_of(function)
            if file in versions or (not file and not all(function in counts for counts in earlier.values())):
                del expected[function]
        for path, counts in earlier.items():
            expected.update({f: n for f, n in counts.items() if file_of(f) == path and not answered & {f, path}})
    if run.files and any(map(file_of, expected)):
        expected = Counter({f: n for f, n in expected.items() if file_of(f) in run.files})
    return expected
