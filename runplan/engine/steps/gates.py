"""The checks of the project on an exact tree: what runs, what is known already, how a result is judged; and set-up."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from shlex import join, quote

from msgspec.structs import replace

from runplan.adapters.configuration.places import is_hidden
from runplan.adapters.git.command import ANY, Git
from runplan.adapters.git.objects import SUBMODULE
from runplan.adapters.git.zones import Extra
from runplan.adapters.store.files import read_bounded
from runplan.domain.checks import results
from runplan.domain.checks.guarded import is_on_test_side
from runplan.domain.checks.runners import naming
from runplan.domain.globs import covers
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import SetupDoubted
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.dispatch import LOGS, OWN, Ending, Evidence
from runplan.domain.run.kinds import GateAnswer, ProofKind, Reason, Role
from runplan.domain.run.state import RunState
from runplan.domain.settings.toolchain import SUBMODULES, list_inputs
from runplan.engine.report.sections import NO_TESTS
from runplan.engine.steps.context import RunContext

OUTPUT_READ = 16 * 1024 * 1024  #: bytes at the end of a check's output that are read; a log is not longer
OUTPUT_SENT = 6000  #: characters of it that the fixer gets
NAMED_ONLY = "names "  #: before the key of results that are no baseline
JUNIT_READ = 8 * 1024 * 1024  #: bytes of a JUnit file that are read
DEEPEST = 8  #: directories for which `**` in tests.junit stands
NAMED = 3  #: failing tests named in one line
#: Of a check that failed with products of an earlier set-up, and passed with new ones.
STALE = 'passed with a fresh set-up, so the earlier one was stale: name what it reads, run.setup_inputs = ["PATH"]'
LARGEST_COPY = 16 * 1024 * 1024  #: bytes of a file of run.copy that are compared


def command_line(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> tuple[str, float]:
    if isinstance(phase.chosen, e.DelegateChosen) and started.role is Role.DELEGATE:
        return phase.chosen.command, context.settings.limits.wall_of(started.role)
    if started.role is Role.SETUP:
        return context.settings.run.setup, context.settings.tests.timeout_s
    lines = {name: _rerun_command(name, phase) or context.settings.checks[name].command for name in started.gates}
    if e.TESTS in lines:
        lines[e.TESTS] = with_names(lines[e.TESTS], started, context)
    wall_s = max(context.settings.checks[name].timeout_s for name in lines)
    return lines.popitem()[1] if len(lines) == 1 else side_by_side(lines), wall_s


def with_names(line: str, started: e.DispatchStarted, context: RunContext, options: str = "") -> str:
    """The test command, which names its tests for us; `options` are further ones of pytest."""
    folder = str(context.dispatches.directory(started.id) / OWN)
    if junit := context.settings.tests.junit:  # stale results prove nothing; the shell has no `**`
        patterns = (pattern.replace("**/", "*/" * depth) for pattern in junit for depth in range(DEEPEST))
        files = " ".join(dict.fromkeys(patterns))
        copy = f'test ! -f "$file" || cp "$file" {quote(folder)}/junit-$((number += 1)).xml'
        return f"rm -f -- {files}\n(\n{line}\n)\ncode=$?\nfor file in {files}; do {copy}; done\nexit $code"
    return naming.ask_for_names(line, folder, options)


def _rerun_command(name: str, phase: WorkAttempt) -> str:
    """The command that runs only the failed tests again; "" when all have to run."""
    before = phase.proof.newest_gates.get(name)
    return before.rerun if before is not None and before.answer is GateAnswer.FAILED else ""


def side_by_side(lines: Mapping[str, str]) -> str:
    """A script that runs the commands at the same time, each with its log, and prints their exit codes."""
    starts = [f"set -- ${LOGS}; unset {LOGS}"]
    waits = []
    for number, (name, line) in enumerate(lines.items(), 1):
        command = quote(f"exec 2>&1\n{line}")
        starts.append(f'/bin/sh -c {command} </dev/null >"${{{number}}}" & gate{number}=$!')
        waits.append(f"wait $gate{number}; code=$?; echo {name} $code; test $code -eq 0 || failed=1")
    return "\n".join([*starts, *waits, "exit ${failed:-0}"])


def own_logs(gates: Sequence[str]) -> dict[str, str]:
    return {name: f"gate-{name}.log" for name in gates} if len(gates) > 1 else {}


def already_known(dispatch: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> tuple[e.Event, ...]:
    """The checks that passed before on the same code, with the same command and environment: they do not run again."""
    tree = dispatch.tree
    known: list[e.Event] = []
    for name in dispatch.gates if not dispatch.again else ():
        key = check_key(context, name, tree)
        if (text := context.store.get_baseline(key)) is None:
            continue
        result = results.from_text(text)
        if results.baseline_fault(result) and not context.settings.tests.allow_red_baseline:
            continue
        if dispatch.role is not Role.GATE:
            known.append(e.BaselineKnown(key=key, tree=tree, results=results.to_text(result, passes=False), name=name))
        elif (judged := _judge_results(name, result, phase, context, tree=tree)).answer is GateAnswer.PASSED:
            known.append(judged)
    return tuple(known)


def check_key(context: RunContext, name: str, tree: str) -> str:
    """Names the code of a tree, without bookkeeping, and everything that decides how a check runs on it."""
    settings = context.settings
    code = context.candidates.tree_with(tree, dict.fromkeys(context.bookkeeping))
    summary = settings.tests.summary if name == e.TESTS else ""
    junit = settings.tests.junit if name == e.TESTS else ()
    return json.dumps([code, settings.run.setup, settings.checks[name].command, summary, junit, context.agents.digest])


def judge_baseline(state: RunState, context: RunContext) -> Iterator[e.Event]:
    phase = state.work
    tree = phase.delivery.candidate.onto_tree if phase.delivery.candidate else phase.base_tree
    for name, result, _, evidence in read_checks(phase, context):
        if phase.setup.is_reused and (result.red or result.unfinished):
            yield SetupDoubted(why=f"{name} failed on the base: {result.line}")
            return
        fault = results.baseline_fault(result)
        if fault and not context.settings.tests.allow_red_baseline:
            command = context.settings.checks[name].command
            more = "" if result.exit_code is not None else "; if it took too long, raise its timeout"
            yield e.WorkRefused(reason=Reason.BASELINE_RED, detail=f"`{command}` failed on the base: {fault}{more}")
            return
        key = check_key(context, name, tree)
        if not result.red and not result.unfinished:  # a red one may be accidental, and would excuse real failures
            context.store.put_baseline(key, results.to_text(result))
        known = results.to_text(result, passes=False)
        note = f"{result.line} before any work{describe_lacking(phase, context)}" if result.red else ""
        if phase.setup.renewed == tree and not result.red:
            note = STALE
        yield e.BaselineKnown(key=key, tree=tree, results=known, name=name, ran=evidence, note=note)


def describe_lacking(phase: WorkAttempt, context: RunContext) -> str:
    """What a worktree lacks, with its remedy, for the message of a failure before any work; "" for nothing."""
    if phase.lease is None:
        return ""
    path = context.proof.path
    listed = ("config", "-z", "--blob", f"{phase.base}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
    modules = [line.partition("\n")[2] for line in context.objects.run(*listed, ok=ANY).text.split("\0") if line]
    for module in modules:
        if not (path / module).is_dir() or not any((path / module).iterdir()):
            setup = " && ".join(filter(None, (SUBMODULES.setup, context.settings.run.setup)))
            return f"; the submodule {module} is not there: set run.setup to `{setup}`"
    if is_hidden(path):
        return f"; the tests ran in {path}, and many programs refuse files below a name with a dot: set run.worktrees"
    return ""


def judge_gate(state: RunState, context: RunContext) -> Iterator[e.Event]:
    phase = state.work
    if phase.dispatches.ended is None:
        yield e.GateJudged(tree=phase.built.tree, answer=GateAnswer.SKIPPED, code=None, line=NO_TESTS, time=1)
        return
    for name, result, output, evidence in read_checks(phase, context):
        partly = bool(_rerun_command(name, phase))  # then each test counts as it ran last
        judged = _judge_results(name, result, phase, context, tree=phase.built.tree, partly=partly)
        key = check_key(context, name, phase.built.tree)
        passed = judged.answer is GateAnswer.PASSED
        if partly and (first := context.store.get_baseline(f"{NAMED_ONLY}{key}")):
            base = phase.proof.baselines.get(name)
            old = results.from_text(base.results).failures if base and base.results else frozenset[str]()
            before = results.from_text(first)
            solved = before.failures - old if passed else result.passes
            left = before.failures - solved
            count = None if before.passed is None else before.passed + len(before.failures) - len(left)
            passes = before.passes | solved if before.passes else before.passes
            code = before.exit_code if left else 0
            result = replace(before, exit_code=code, failures=left, failed=len(left), passed=count, passes=passes)
        if passed or name == e.TESTS:  # the baseline of the next phase, old failures included; of others, the names
            context.store.put_baseline(key if passed else f"{NAMED_ONLY}{key}", results.to_text(result))
        yield replace(judged, output="" if passed else output[-OUTPUT_SENT:], ran=evidence)


def _judge_results(
    name: str, now: results.Results, phase: WorkAttempt, context: RunContext, *, tree: str, partly: bool = False
) -> e.GateJudged:
    """The judgement of one check; `partly`: only the tests that failed before ran."""
    before = phase.proof.newest_gates.get(name)
    tests = context.settings.tests
    baseline = None if partly else base_results(phase, context, name)
    # The test files that may lose tests: the base's versions of them run on the new code, or Allows: names them.
    changed = [path for path in phase.changed_files if is_on_test_side(path, tests.paths)]
    runs_base = any(run.kind in (ProofKind.OLD_TESTS, ProofKind.LANDED_TESTS) for run in phase.built.proofs)
    judged = results.compare_results(
        baseline,
        now,
        allow_red_baseline=tests.allow_red_baseline,
        allows=phase.chosen.allows,
        changed=changed if runs_base else [file for file in changed if covers(phase.chosen.allows, file)],
    )
    answer = GateAnswer.FAILED
    line = judged.why
    match judged.kind:
        case results.GateKind.GREEN | results.GateKind.PRE_EXISTING:
            answer = GateAnswer.PASSED
            is_green = judged.kind is results.GateKind.GREEN
            line = now.line if is_green else f"{now.line}; these tests failed before the work, too"
        case results.GateKind.REGRESSED | results.GateKind.MISSING if judged.names:
            line = f"{line}: {', '.join(name.split()[0] for name in judged.names[:NAMED])}"
        case results.GateKind.UNFINISHED:
            answer = GateAnswer.UNFINISHED
        case results.GateKind.BASELINE_RED:
            line = f"the checks on the base: {line}"
    if before is not None and answer is GateAnswer.PASSED and phase.setup.renewed == tree:
        line = f"{line}; {STALE}"
    elif before is not None and answer is GateAnswer.PASSED:
        line = f"{line}; flaky, passed when run again: {', '.join(before.failures or (name,))}"
    rerun = ""
    failed = judged.regressed
    # All tests run again when some did not run or a failure has no name.
    is_named = failed and not judged.missing and not now.unfinished and len(now.failures) >= (now.failed or 0)
    if name == e.TESTS and before is None and answer is GateAnswer.FAILED and is_named:
        rerun = tests.rerun.replace("{tests}", join(failed))
        rerun = rerun or results.rerun_command(tests.command, replace(now, failures=frozenset(failed)))
    return e.GateJudged(
        tree=tree,
        answer=answer,
        code=now.exit_code,
        line=line,
        time=before.time + 1 if before else 1,
        name=name,
        failures=judged.names[: results.MOST_NOTED] if answer is GateAnswer.FAILED else (),
        rerun=rerun,
        differences=judged.noted(),
    )


def base_results(phase: WorkAttempt, context: RunContext, name: str = e.TESTS) -> results.Results | None:
    known = phase.proof.baselines.get(name)
    if known is None or not known.results:
        return None
    return results.from_text(context.store.get_baseline(known.key) or known.results)  # the store has all names of tests


def known_results(phase: WorkAttempt, context: RunContext, name: str = e.TESTS) -> results.Results | None:
    key = check_key(context, name, phase.built.tree)
    text = context.store.get_baseline(key) or context.store.get_baseline(f"{NAMED_ONLY}{key}")
    return results.from_text(text) if text else None


def read_checks(phase: WorkAttempt, context: RunContext) -> Iterator[tuple[str, results.Results, str, Evidence]]:
    """The checks of the dispatch that ended: name, results, output and its record."""
    ended = phase.ended
    started = phase.dispatches.newest
    assert started is not None
    directory = context.dispatches.directory(ended.id)
    worktree = context.proof.path
    printed = dict(re.findall(r"(?m)^(\S+) (\d{1,3})$", read_content(directory / "out.log").decode("utf-8", "replace")))
    for name, path in log_files(started, context).items():
        code = int(printed[name]) if name in printed else None
        if len(started.gates) == 1:
            code = ended.code if ended.ending is Ending.EXITED else None
        whole = read_content(path)
        output = whole[-OUTPUT_READ:].decode("utf-8", "replace")
        summary = ""
        junit = None
        names: dict[str, list[str]] = {}
        if name == e.TESTS:
            summary = context.settings.tests.summary
            junit = _read_junit(directory / OWN, ("junit-*.xml",), worktree) if context.settings.tests.junit else None
            listed = {key: [*_read_junit(directory / OWN, (file,), worktree)] for key, file in naming.FILES.items()}
            names = {key: texts for key, texts in listed.items() if texts}
        result = results.read_results(output, exit_code=code, summary_pattern=summary, junit=junit, names=names)
        file = path.relative_to(directory.parent.parent).as_posix()
        yield name, result, output, Evidence(dispatch=ended.id, file=file, sha256=sha256(whole).hexdigest())


def _read_junit(folder: Path, patterns: Sequence[str], worktree: Path) -> Iterator[str]:
    """The texts of the files with results; they name other files as those of the tree."""
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        text = read_content(path)[:JUNIT_READ].decode("utf-8", "replace")
        yield text.replace(f'file="{worktree}/', 'file="')


def log_files(started: e.DispatchStarted, context: RunContext) -> dict[str, Path]:
    directory = context.dispatches.directory(started.id)
    alone = dict.fromkeys(started.gates or ("",), "out.log")
    return {name: directory / log for name, log in (own_logs(started.gates) or alone).items()}


def read_content(path: Path) -> bytes:
    """The content of a file that a check may have written, removed, or replaced by a link or a pipe."""
    return read_bounded(path, largest=2 * OUTPUT_READ, follow=False) or b""


def describe_change(before: str, now: str) -> str:
    differing = {name for name, _ in json.loads(before).items() ^ json.loads(now).items()}
    return f"{', '.join(sorted(differing)[:NAMED])} changed"


def keep_products(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> None:
    if started.tree:
        extra = Extra(copies=context.copied, root=context.root)
        commit = commit_of(started, phase, context)
        context.proof.keep_worktree(commit, is_protected=context.agents.protects_proof, extra=extra)
    for setup in (started, replace(started, tree="")) if started.agents else (started,):
        place = context.proof if setup.tree else context.zone
        place.keep_products(find_inputs(setup, phase, context))


def commit_of(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> str:
    """The commit with the tree of a dispatch; that of the branch for the worktree of agents."""
    if not started.tree:
        return context.objects.tip(phase.leased.branch) or phase.base
    # Kept work whose base has landed otherwise has the target as its baseline.
    base = phase.base if context.objects.commit(phase.base).tree == started.tree else phase.chosen.tip
    if (built := phase.delivery.candidate) is None:
        return base
    proofs = {proof.tree: proof.commit for proof in built.proofs}
    return (proofs | {built.onto_tree: built.onto, built.tree: built.commits[-1]}).get(started.tree, base)


def find_inputs(started: e.DispatchStarted, phase: WorkAttempt, context: RunContext) -> str:
    """What decides the products of the set-up for a dispatch: the content of each input by its name, as JSON."""
    run = context.settings.run
    tree = started.tree or context.objects.commit(commit_of(started, phase, context)).tree
    if started.role is Role.PROVE:  # only tests, or bodies of functions, differ from the code that it runs on
        tree = phase.built.onto_tree if started.scope == ProofKind.NEW_TESTS else phase.built.tree
    files = _list_inputs(context.objects, tree, run.setup, run.setup_inputs, context.bookkeeping)
    contents = {name: read_bounded(context.root / name, largest=LARGEST_COPY) or b"" for name in run.copy}
    copies = {name: sha256(content).hexdigest() for name, content in contents.items()}
    variables = context.agents.script_env.items()
    named = repr(sorted(item for item in variables if item[0] in context.settings.tests.env))
    digest = sha256(named.encode("utf-8", "surrogateescape")).hexdigest()
    others = {"its command": run.setup, "a variable of tests.env": digest}
    if context.agents.places and (image := context.agents.places.image):
        others["the image"] = image
    return json.dumps({**files, **copies, **others}, sort_keys=True)  # msgspec rejects names that are not UTF-8


@lru_cache(maxsize=8)
def _list_inputs(git: Git, tree: str, line: str, patterns: tuple[str, ...], without: tuple[str, ...]) -> dict[str, str]:
    """The mode and id of each file and submodule that decides what run.setup makes."""
    records = (record.partition("\t") for record in git.run("ls-tree", "-rz", tree).text.split("\0") if record)
    entries = {path: meta for meta, _, path in records if path not in without}
    modules = (path for path, meta in entries.items() if meta.startswith(SUBMODULE))
    return {path: entries[path] for path in (*list_inputs(entries, line, patterns), *modules)}
