"""Reads the output of a test command, and compares it with the output before the work."""

import re
import shlex
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.runners import plain, printed
from runplan.domain.checks.runners.printed import Report, TestState, find_last, list_failed
from runplan.domain.decoding import decode_json
from runplan.domain.errors import SettingsError
from runplan.domain.globs import covers

_ANSI = r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\([AB0])"
_NEAR_END = 40  #: a summary further from the end than this many lines is an inner suite's: the outer one has none
_LINES_READ = 300_000  # the end of a longer output is enough
_LINES_CLOSING = 20_000  # a summary is looked for in these
_LONGEST_LINE = 10_000  # characters; no summary is longer
# Tables, such as of coverage, follow the summary of some runners and may be long.
_TABLE = r"[|│]|\d%[\d,\s>-]*$|^[\s-]*$"
_MOST_NAMES = 20_000  # with more tests, only their counts are compared
_LONGEST_NAME = 500  # characters
_UNPRINTED = ("phpunit", "cucumber", "behave")  # runners whose output is not read, but the files they write
_NO_REPORT = Report(passed=None, failed=None, skipped=None)
_ORDER = (TestState.SKIPPED, TestState.PASSED, TestState.FAILED)
MOST_NOTED = 20  #: names of one kind that an event carries
_ALONE = re.compile(r"[\w@%+,./:=\[\]-]+")  #: a command or name without shell syntax
_MOST_AGAIN = 20  #: with more failed tests, all run again


class Results(Struct, frozen=True, kw_only=True):
    exit_code: int | None  #: None when it did not end by itself
    runner: str  #: "" when there is no known closing summary
    passed: int | None = None  #: None if unknown
    failed: int | None = None
    skipped: int | None = None
    failures: frozenset[str] = frozenset()  #: names of the tests that failed
    passes: frozenset[str] = frozenset()  #: names of the tests that passed; empty unless the output names all of them
    unfinished: str = ""  #: why the run is not complete; empty when it is
    reasons: dict[str, str] = {}  #: the first line of a failure, by test, where the runner says it

    @property
    def red(self) -> bool:
        # The exit code counts first: a suite that dies in the middle has printed many lines with PASS.
        return self.exit_code != 0 or bool(self.failed)

    @property
    def ran(self) -> frozenset[str]:
        return self.passes | self.failures

    @property
    def line(self) -> str:
        if self.unfinished:
            return self.unfinished
        if self.passed is not None:
            skipped = f", {self.skipped} skipped" if self.skipped else ""
            return f"{self.passed} passed, {self.failed or 0} failed{skipped}"
        if self.failed:
            return f"{self.failed} failed"
        return "failed" if self.red else "passed"


def to_text(results: Results, *, passes: bool = True) -> str:
    """The results as JSON: with the names of passes for the table of baselines, without them for an event."""
    kept = results if passes else replace(results, passes=frozenset())
    return msgspec.json.encode(kept).decode()


def from_text(text: str) -> Results:
    return decode_json(text, Results)


def read_results(
    output: str,
    *,
    exit_code: int | None,
    summary_pattern: str = "",
    junit: Iterable[str] | None = None,
    names: Mapping[str, Sequence[str]] = {},
) -> Results:
    """The results of a test command; `junit` (None if it is not set) and `names` are texts of files that it wrote."""
    printed = output.splitlines()
    lines = [re.sub(_ANSI, "", line[:_LONGEST_LINE]).rstrip() for line in printed[-_LINES_READ:]]
    name, report, unfinished = _read_report(lines, summary_pattern, junit)
    if exit_code is None or exit_code < 0:
        unfinished = "the command did not end by itself"
    if name in names:
        listed = plain.read_junit(names[name])
        # A file of another run has other counts. pytest's file says of a test that was expected to fail and passed
        # that it passed; the printed report counts it apart.
        counts = [(read.passed or 0) + (read.skipped or 0) for read in (listed, report) if isinstance(read, Report)]
        if isinstance(listed, Report) and counts[0] == counts[1]:
            report = replace(report, tests=listed.tests, is_named=True, reasons=listed.reasons)
    elif not name and (runner := next((key for key in names if key in _UNPRINTED), "")):
        listed = plain.read_junit(names[runner])
        name, report = (runner, listed) if isinstance(listed, Report) else (name, report)
    states: dict[str, TestState] = {}
    for test, state in report.tests:  # of several states, a failure counts most and a skip least
        states[test] = max(states.get(test, state), state, key=_ORDER.index)
    passes = frozenset(name[:_LONGEST_NAME] for name, state in states.items() if state is TestState.PASSED)
    failures = frozenset(name[:_LONGEST_NAME] for name, state in states.items() if state is TestState.FAILED)
    is_named = (report.is_named and len(printed) <= _LINES_READ) or len(passes) == report.passed
    passes = passes if is_named and len(passes) <= _MOST_NAMES else frozenset()
    results = Results(exit_code=exit_code, runner=name, unfinished=unfinished or report.stopped, passes=passes)
    results = replace(results, passed=report.passed, failed=report.failed, skipped=report.skipped)
    if not report.failed:  # names without a count come from suites inside the suite
        return results
    reasons = {test[:_LONGEST_NAME]: reason for test, reason in report.reasons.items()}
    return replace(results, failures=failures, reasons=reasons)


def _read_report(lines: list[str], pattern: str, junit: Iterable[str] | None) -> tuple[str, Report, str]:
    if junit is not None:
        read = plain.read_junit(junit)
        return ("junit", read, "") if isinstance(read, Report) else ("", _NO_REPORT, read)
    offset = max(0, len(lines) - _LINES_CLOSING)
    name, report, rest = "", _NO_REPORT, lines  # of the last summary, and the lines after it
    for runner in printed.RUNNERS:
        closing = find_last(lines[offset:], runner.closing)
        summary = runner.read(lines, offset + closing[0], closing[1]) if closing else None
        if closing and summary is not None:
            after = lines[offset + closing[0] + summary.lines_after + 1 :]
            if not name or len(after) < len(rest):
                name, report, rest = runner.name, summary, after
    if sum(1 for line in rest if not re.search(_TABLE, line)) > _NEAR_END:
        name, report, rest = "", _NO_REPORT, lines
    if pattern:  # its last match, whose groups `passed` and `failed` are the counts
        try:
            matches = deque(re.finditer(pattern, "\n".join(lines), re.MULTILINE), maxlen=1)
        except re.error as error:
            raise SettingsError(f"[tests] summary: not a regular expression: {error}") from error
        if not matches:
            return name, report, f"the output does not contain tests.summary {pattern!r}"
        numbers = {group: int(text) for group, text in matches[0].groupdict().items() if (text or "").isdecimal()}
        if "passed" not in numbers:
            return name, report, ""
        failures = list_failed(lines, plain.FAILED) if numbers.get("failed") else []
        return "summary", Report(passed=numbers["passed"], failed=numbers.get("failed", 0), tests=failures), ""
    begun = [runner.name for runner in printed.RUNNERS if runner.begins and any(map(runner.begins.match, rest))]
    return name, report, f"no closing summary of {begun[0]}" if begun else ""


class GateKind(StrEnum):
    GREEN = "green"  #: everything passes
    PRE_EXISTING = "pre-existing"  #: the failures existed before the work: this passes, and is noted
    REGRESSED = "regressed"  #: something fails that did not fail before
    MISSING = "missing"  #: tests that ran before do not run now
    UNFINISHED = "unfinished"  #: the command did not complete, so its result means nothing
    BASELINE_RED = "baseline-red"  #: the run before the work cannot be compared with


class Comparison(Struct, frozen=True, kw_only=True):
    kind: GateKind
    why: str = ""
    regressed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  #: ran before, do not run now, and the plan does not permit it
    pre_existing: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.regressed or self.missing or self.pre_existing

    def noted(self) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
        kinds = ("regressed", "missing", "pre_existing", "fixed", "new")
        tests = ((kind.replace("_", "-"), getattr(self, kind)) for kind in kinds)
        return tuple((kind, len(names), names[:MOST_NOTED]) for kind, names in tests if names)


def baseline_fault(baseline: Results) -> str:
    if baseline.unfinished:
        return baseline.unfinished
    return f"exit code {baseline.exit_code}" if baseline.red and not baseline.failures else ""


def compare_results(
    baseline: Results | None,
    now: Results,
    *,
    allow_red_baseline: bool = False,
    allows: Sequence[str] = (),
    changed: Sequence[str] = (),
) -> Comparison:
    """Without a baseline everything must pass; tests of `allows` and of `changed` files may be missing."""
    was = baseline or Results(exit_code=0, runner="")
    fault = baseline_fault(was)
    if fault and not allow_red_baseline:
        return Comparison(kind=GateKind.BASELINE_RED, why=fault)
    regressed = () if fault and not was.failures else tuple(sorted(now.failures - was.failures))
    fewer = 0 if was.passed is None or now.passed is None else max(was.passed - now.passed, 0)
    unfinished = now.unfinished
    if not unfinished and was.runner and not now.runner:
        unfinished = f"no closing summary of {was.runner}, which there was before the work"
    elif not unfinished and was.runner not in ("", now.runner) and fewer:
        unfinished = f"the last summary is of {now.runner} and counts fewer tests than {was.runner} did"
    # A suite that stops at its first failure has failed: that test is certain.
    if unfinished and (not regressed or now.exit_code is None):
        return Comparison(kind=GateKind.UNFINISHED, why=unfinished)
    has_names = bool(was.passes) and (bool(now.passes) or now.passed == 0)
    missing = _find_missing(was, now, allows, changed) if has_names else ()
    all_known = now.failures and len(now.failures) >= (now.failed or 0)
    more_failed = None not in (was.failed, now.failed) and (now.failed or 0) > (was.failed or 0)
    kind, why = GateKind.GREEN, ""
    if regressed and now.red:
        tests = "1 test fails" if len(regressed) == 1 else f"{len(regressed)} tests fail"
        kind, why = GateKind.REGRESSED, f"{tests} that did not fail before"
    elif now.red and (all_known or (fault and not more_failed)):
        kind = GateKind.PRE_EXISTING
    elif now.red:
        unnamed = f"; {now.failed} failed, {len(now.failures)} named" if now.failed else ""
        kind, why = GateKind.REGRESSED, f"exit code {now.exit_code}{unnamed}"
    if kind is not GateKind.REGRESSED and missing:
        tests = "1 test does" if len(missing) == 1 else f"{len(missing)} tests do"
        kind, why = GateKind.MISSING, f"{tests} not run any more"
    elif kind is not GateKind.REGRESSED and fewer and not has_names and not changed:
        kind, why = GateKind.MISSING, f"{fewer} fewer passed than before the work"
    regressed = regressed if kind is GateKind.REGRESSED else ()
    known = tuple(sorted(now.failures & was.failures))
    fixed = tuple(sorted(was.failures - now.failures - set(missing)))
    new = tuple(sorted(now.ran - was.ran)) if was.passes and now.passes else ()
    compared = Comparison(kind=kind, why=why, regressed=regressed, missing=missing, pre_existing=known)
    return replace(compared, fixed=fixed, new=new)


def _find_missing(was: Results, now: Results, allows: Sequence[str], changed: Sequence[str]) -> tuple[str, ...]:
    # A test that was moved, or whose parameters are named otherwise, runs under another name.
    moved = Counter(_short_name(name) for name in now.ran - was.ran)
    missing: list[str] = []
    for name in sorted(was.ran - now.ran):
        file = file_of(name)
        if moved[_short_name(name)] > 0:
            moved[_short_name(name)] -= 1
        elif any(failure.startswith(f"{name}.") for failure in now.failures):  # a package of Go
            continue
        elif not (file in changed or covers(allows, file) if file else changed):  # running the base's tests shows these
            missing.append(name)
    return tuple(missing)


def file_of(name: str) -> str:
    file, *rest = re.split(r"::| [›>] ", name, maxsplit=1)
    return file if rest and re.search(r"\.[a-z]\w{0,4}$", file) else ""


def _short_name(name: str) -> str:
    return re.split(r"::| [›>] ", name.partition("[")[0])[-1]


def rerun_command(command: str, results: Results) -> str:
    """The command that runs only the failed tests again; "" where all have to run, or the runner cannot."""
    names = sorted(results.failures)
    words = command.split()
    if results.unfinished or not 0 < len(names) <= _MOST_AGAIN or not all(map(_ALONE.fullmatch, words)):
        return ""
    quoted = " ".join(shlex.quote(name) for name in names)
    programs = [word.rpartition("/")[2] for word in words]
    if results.runner == "pytest" and "pytest" in programs:  # also after `uv run` or `python -m`
        options = words[programs.index("pytest") + 1 :]
        return "" if any("/" in word or word.endswith(".py") for word in options) else f"{command} {quoted}"
    return f"{command} --rerun-failed" if results.runner == "ctest" and words[0] == "ctest" else ""
