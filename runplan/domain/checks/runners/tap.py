"""Reads TAP, and the reports of node's own test runner, which also has a form of its own."""

from __future__ import annotations

import re

from runplan.domain.checks.runners.output import Report, Runner, TestState, count_states, find_last, match_lines

_PLAN = re.compile(r"^1\.\.(\d{1,9})(?:\s|$)")
_POINT = re.compile(
    r"^( *)(not )?ok\b(?: (\d{1,9}))?(?: +-)?((?: (?!# (?i:skip|todo)\b)\S*)*) *(# (?i:skip|todo)\b.*)?$"
)
_TOP_POINT = re.compile(r"^(?:not )?ok (\d{1,9})\b")

_FAIL = re.compile(r"^[#ℹ] fail (\d{1,9})$")
_PASS = re.compile(r"^[#ℹ] pass (\d{1,9})$")
_OTHER = re.compile(r"^[#ℹ] (cancelled|skipped|todo) (\d{1,9})$")
_DETAILS = re.compile(r"^✖ failing tests:$")
_SPEC = re.compile(r"^( *)([✔✖▶﹣]) (.+?)(?: \([\d.]+ms\))?( # .*)?$")


def read_tap(lines: list[str], end: int, plan: re.Match[str]) -> Report | None:
    """TAP is complete when the last point has the number that the plan announced."""
    point = find_last(lines, _TOP_POINT)
    if int(plan[1]) != (int(point[1][1]) if point else 0):
        return None
    return count_states(read_points(lines), lines_after=max(0, point[0] - end) if point else 0)


def read_node(lines: list[str], end: int, closing: re.Match[str]) -> Report | None:
    passes = find_last(lines[:end], _PASS)
    if passes is None:
        return None
    others = {other[1]: int(other[2]) for other in match_lines(lines[end : end + 5], _OTHER)}
    has_details = find_last(lines[end:], _DETAILS)  # every failure again, with its trace
    return Report(
        lines_after=len(lines) - 1 - end if has_details else 0,
        passed=int(passes[1][1]),
        failed=int(closing[1]) + others.get("cancelled", 0),
        skipped=others.get("skipped", 0) + others.get("todo", 0),
        tests=read_points(lines[:end]) or _read_spec(lines[:end]),
    )


def read_points(lines: list[str]) -> list[tuple[str, TestState]]:
    """The points without sub-tests; a point that follows deeper ones is their parent."""
    points: list[tuple[int, str, TestState]] = []
    for point in match_lines(lines, _POINT):
        depth = len(point[1])
        name = point[4].strip() or f"test {point[3]}"
        first = next((n for n in range(len(points), 0, -1) if points[n - 1][0] <= depth), 0)
        if children := points[first:]:
            points[first:] = [(depth, f"{name} › {child}", state) for _, child, state in children]
        else:
            state = TestState.FAILED if point[2] else TestState.PASSED
            points.append((depth, name, TestState.SKIPPED if point[5] else state))
    return [(name, state) for _, name, state in points]


def _read_spec(lines: list[str]) -> list[tuple[str, TestState]]:
    """The tests of node's spec report; `▶` begins a suite, and a line at its depth ends it."""
    tests: list[tuple[str, TestState]] = []
    suites: dict[int, str] = {}
    for match in match_lines(lines, _SPEC):
        depth = len(match[1])
        _, mark, name, remark = match.groups()
        is_end = suites.get(depth) == name and mark != "▶"
        suites = {deep: suite for deep, suite in suites.items() if deep < depth}
        if mark == "▶":
            suites[depth] = name
        elif not is_end:
            state = TestState.FAILED if mark == "✖" else TestState.PASSED
            tests.append((" › ".join((*suites.values(), name)), TestState.SKIPPED if remark else state))
    return tests


NODE = Runner("node", _FAIL, read_node)
TAP = Runner("tap", _PLAN, read_tap, re.compile(r"^TAP version \d+$|^Bail out!|^1\.\.[1-9]\d{0,8}(?:\s|$)"))
