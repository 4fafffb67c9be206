"""Reads TAP, and the reports of node's own test runner, which also has a form of its own."""

from __future__ import annotations

import re

from runplan.checks.runners.output import Report, Runner, TestState, count_states, find_last

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


def read_tap(lines: list[str], at: int, plan: re.Match[str]) -> Report | None:
    """TAP is complete when the last point has the number that the plan announced."""
    point = find_last(lines, _TOP_POINT)
    if int(plan[1]) != (int(point[1][1]) if point else 0):
        return None
    return count_states(_read_points(lines), end=max(at, point[0] if point else 0))


def read_node(lines: list[str], at: int, closing: re.Match[str]) -> Report | None:
    passes = find_last(lines[:at], _PASS)
    if passes is None:
        return None
    others = {found[1]: int(found[2]) for line in lines[at : at + 5] if (found := _OTHER.match(line))}
    has_details = find_last(lines[at:], _DETAILS)  # every failure again, with its trace
    return Report(
        end=len(lines) - 1 if has_details else at,
        passed=int(passes[1][1]),
        failed=int(closing[1]) + others.get("cancelled", 0),
        skipped=others.get("skipped", 0) + others.get("todo", 0),
        tests=_read_points(lines[:at]) or _read_spec(lines[:at]),
    )


def _read_points(lines: list[str]) -> list[tuple[str, TestState]]:
    """The points without sub-tests; a point that follows deeper ones is their parent."""
    found: list[tuple[int, str, TestState]] = []
    for line in lines:
        if not (point := _POINT.match(line)):
            continue
        depth, name = len(point[1]), point[4].strip() or f"test {point[3]}"
        first = next((n for n in range(len(found), 0, -1) if found[n - 1][0] <= depth), 0)
        if children := found[first:]:
            found[first:] = [(depth, f"{name} › {child}", state) for _, child, state in children]
        else:
            state = TestState.FAILED if point[2] else TestState.PASSED
            found.append((depth, name, TestState.SKIPPED if point[5] else state))
    return [(name, state) for _, name, state in found]


def _read_spec(lines: list[str]) -> list[tuple[str, TestState]]:
    """The tests of node's spec report; `▶` begins a suite, and a line at its depth ends it."""
    found: list[tuple[str, TestState]] = []
    suites: dict[int, str] = {}
    for line in lines:
        if not (match := _SPEC.match(line)):
            continue
        depth, mark, name = len(match[1]), match[2], match[3]
        is_end = suites.get(depth) == name and mark != "▶"
        suites = {deep: suite for deep, suite in suites.items() if deep < depth}
        if mark == "▶":
            suites[depth] = name
        elif not is_end:
            state = TestState.FAILED if mark == "✖" else TestState.PASSED
            found.append((" › ".join((*suites.values(), name)), TestState.SKIPPED if match[4] else state))
    return found


NODE = Runner("node", _FAIL, read_node)
TAP = Runner("tap", _PLAN, read_tap, re.compile(r"^TAP version \d+$|^Bail out!|^1\.\.[1-9]\d{0,8}(?:\s|$)"))
