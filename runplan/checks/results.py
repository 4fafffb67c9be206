"""Reads what a test command printed, and judges it against what it printed before the work."""

from __future__ import annotations

import re
from typing import TypeAlias

from msgspec import Struct

from runplan.checks.runners import RUNNERS, Closing, Runner
from runplan.errors import SettingsError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

#: A summary further from the end than this many lines is an inner suite's: the outer one never closed.
_NEAR_END = 40

_LINES_READ = 50_000  # the end of a longer output is enough
_LONGEST_LINE = 10_000  # characters; no summary is longer

# Coverage tables follow the summary in some runners and may be long.
_TABLE = re.compile(r"\||\d%[\d,\s>-]*$|^[\s-]*$")


class Results(Struct, frozen=True, kw_only=True):
    """What one run of the test command says."""

    exit_code: int | None  #: None when it did not end by itself
    runner: str  #: "" when no closing summary is known
    passed: int | None  #: None where nobody counted
    failed: int | None
    failures: frozenset[str]  #: names of the tests that failed
    unfinished: str = ""  #: why it did not come to its end; empty when it did

    @property
    def finished(self) -> bool:
        return not self.unfinished

    @property
    def total(self) -> int | None:
        if self.passed is None or self.failed is None:
            return None
        return self.passed + self.failed

    @property
    def red(self) -> bool:
        return self.exit_code != 0 or bool(self.failed)

    @property
    def line(self) -> str:
        """One line for people."""
        if self.unfinished:
            return self.unfinished
        if self.passed is not None:
            return f"{self.passed} passed, {self.failed or 0} failed"
        if self.failed:
            return f"{self.failed} failed"
        return "failed" if self.red else "passed"


class Green(Struct, frozen=True, kw_only=True):
    """Everything passes."""


class PreExisting(Struct, frozen=True, kw_only=True):
    """What fails now failed before the work, too: passes, and is noted."""

    names: tuple[str, ...]


class Regressed(Struct, frozen=True, kw_only=True):
    """Something fails that did not fail before."""

    names: tuple[str, ...]
    why: str


class Unfinished(Struct, frozen=True, kw_only=True):
    """The command did not come to its end, so its result says nothing."""

    why: str


class BaselineRed(Struct, frozen=True, kw_only=True):
    """Before the work it failed in a way nothing can be compared with."""

    why: str


GateJudgement: TypeAlias = Green | PreExisting | Regressed | Unfinished | BaselineRed


def read_results(output: str, *, exit_code: int | None, summary_pattern: str) -> Results:
    """The results in the output; `summary_pattern` is what a finished run must contain, "" for none."""
    lines = [_ANSI.sub("", line[:_LONGEST_LINE]).rstrip() for line in output.splitlines()[-_LINES_READ:]]
    found = _closing(lines)
    counted = found[1] if found else None
    return Results(
        exit_code=exit_code,
        runner=found[0].name if found else "",
        passed=counted.passed if counted else None,
        failed=counted.failed if counted else None,
        # Names without a count come from suites inside the suite.
        failures=counted.failures if counted and counted.failed else frozenset(),
        unfinished=_unfinished(lines, exit_code, summary_pattern, found),
    )


def baseline_fault(baseline: Results) -> str:
    """Why no later result can be compared with this one; empty when it can."""
    if not baseline.finished:
        return baseline.unfinished
    if baseline.red and not baseline.failures:
        return f"exit code {baseline.exit_code}, and no test is named that failed"
    return ""


def compare(
    baseline: Results | None, now: Results, *, allow_red_baseline: bool = False, fewer_allowed: bool = False
) -> GateJudgement:
    """What the results mean; without a baseline everything is expected to pass.

    `fewer_allowed`: the plan permits tests to go.
    """
    fault = baseline_fault(baseline) if baseline else ""
    if fault and not allow_red_baseline:
        return BaselineRed(why=fault)
    if unfinished := now.unfinished or _summary_lost(baseline, now):
        return Unfinished(why=unfinished)
    judgement = _judge_red(baseline, now, faulty=bool(fault)) if now.red else Green()
    lost = 0 if fewer_allowed else _fewer(baseline, now)
    if lost and not isinstance(judgement, Regressed):
        return Regressed(names=(), why=f"{lost} fewer passed than before the work")
    return judgement


def _judge_red(baseline: Results | None, now: Results, *, faulty: bool) -> Regressed | PreExisting:
    before = baseline.failures if baseline else frozenset()
    new = tuple(sorted(now.failures - before))
    if new and not (faulty and not before):
        return Regressed(names=new, why=f"{_tests(len(new))} that did not fail before")
    if now.failures and before and len(now.failures) >= (now.failed or 0):
        return PreExisting(names=tuple(sorted(now.failures)))
    if faulty and not _more_failed(baseline, now):
        return PreExisting(names=tuple(sorted(now.failures)))
    unnamed = f"; {now.failed} failed, {len(now.failures)} named" if now.failed else ""
    return Regressed(names=(), why=f"exit code {now.exit_code}{unnamed}")


def _more_failed(baseline: Results | None, now: Results) -> bool:
    if baseline is None or baseline.failed is None or now.failed is None:
        return False
    return now.failed > baseline.failed


def _tests(number: int) -> str:
    return "1 test fails" if number == 1 else f"{number} tests fail"


def _fewer(baseline: Results | None, now: Results) -> int:
    if baseline is None or baseline.passed is None or now.passed is None:
        return 0
    return max(baseline.passed - now.passed, 0)


def _summary_lost(baseline: Results | None, now: Results) -> str:
    """A runner that closed its output before and does not now was cut short, or another's end was read."""
    if baseline is None or not baseline.runner or baseline.runner == now.runner:
        return ""
    if not now.runner:
        return f"no closing summary of {baseline.runner}, which there was before the work"
    if _fewer(baseline, now):
        return f"the last summary is of {now.runner} and counts fewer tests than {baseline.runner} did"
    return ""


def _unfinished(
    lines: list[str], exit_code: int | None, summary_pattern: str, found: tuple[Runner, Closing] | None
) -> str:
    if exit_code is None or exit_code < 0:
        return "the command did not end by itself"
    if summary_pattern and not _contains(lines, summary_pattern):
        return f"the output does not contain tests.summary {summary_pattern!r}"
    begun = "" if summary_pattern else _begun(lines[found[1].line :] if found else lines)
    return f"no closing summary of {begun}" if begun else ""


def _closing(lines: list[str]) -> tuple[Runner, Closing] | None:
    """The last summary in the output, if it stands near its end."""
    best: tuple[Runner, Closing] | None = None
    for runner in RUNNERS:
        closing = runner.closing(lines)
        if closing and (best is None or closing.line > best[1].line):
            best = (runner, closing)
    if best is None or _distance(lines[best[1].line + 1 :]) > _NEAR_END:
        return None
    return best


def _distance(after: list[str]) -> int:
    return sum(1 for line in after if not _TABLE.search(line))


def _begun(lines: list[str]) -> str:
    """The runner that began in these lines."""
    for runner in RUNNERS:
        if runner.begins and any(runner.begins.match(line) for line in lines):
            return runner.name
    return ""


def _contains(lines: list[str], pattern: str) -> bool:
    try:
        return re.search(pattern, "\n".join(lines), re.MULTILINE) is not None
    except re.error as error:
        raise SettingsError(f"[tests] summary: not a regular expression: {error}") from error
