"""Finds what an agent changed and may not: the plan, the checks it is judged by, files beyond its phase.

A path that stands in the text of the phase, or in its Touches: line, may be changed and added to. Only its Allows:
line permits removing or weakening tests, and changing the files that the test command runs.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks import testfiles
from runplan.checks.secrets import holds_secret, named_like_secret, redacted
from runplan.checks.testcommand import weakened
from runplan.globs import covers, literal, matches
from runplan.run.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from runplan.checks.testcommand import Read
    from runplan.gitfacts import Untracked

#: An untracked file larger than this is not committed for an agent.
LARGEST_UNTRACKED = 5_000_000  # bytes
LARGEST_EXAMINED = 5_000_000  #: characters of a file of tests or settings that is looked into

MOST_NAMED = 20  #: tests that one finding lists

#: What runplan or an agent leaves lying about for itself; never committed.
LIFECYCLE = (".runplan/**", ".runplan-*")

_REMOVES = re.compile(r"\b(?:remov|delet|drop|retir|mov|renam|replac|merg)\w*", re.IGNORECASE)


class TamperKind(StrEnum):
    """What was done."""

    BOOKKEEPING = "bookkeeping"  #: the plan, its report or runplan's settings
    REMOVED_TEST = "removed-test"
    WEAKENED_TEST = "weakened-test"
    NEW_SKIP = "new-skip"
    LOWERED_THRESHOLD = "lowered-threshold"
    CHANGED_CI = "changed-ci"
    TEST_COMMAND = "test-command"  #: a file that the test command runs
    OUT_OF_SCOPE = "out-of-scope"
    SECRET = "secret"  # noqa: S105 - the name of a finding
    TOO_LARGE = "too-large"


#: What an Allows: line permits.
ALLOWABLE = frozenset(
    (
        *(TamperKind.REMOVED_TEST, TamperKind.WEAKENED_TEST, TamperKind.NEW_SKIP, TamperKind.LOWERED_THRESHOLD),
        *(TamperKind.CHANGED_CI, TamperKind.TEST_COMMAND),
    )
)


class Tampering(Struct, frozen=True, kw_only=True):
    """One thing that blocks the attempt."""

    kind: TamperKind
    path: str
    detail: str  #: for people, one line
    line: int = 0  #: 0 for the whole file

    @property
    def reason(self) -> Reason:
        return Reason.OUT_OF_SCOPE if self.kind is TamperKind.OUT_OF_SCOPE else Reason.TAMPERED

    def __str__(self) -> str:
        return f"{redacted(self.path)}{f':{self.line}' if self.line else ''}: {self.detail}"


class FileChange(Struct, frozen=True, kw_only=True):
    """One changed file; the texts are needed only where `wants_text` says so."""

    path: str
    before: str | None  #: None when it was not there, or not text
    after: str | None  #: None when it is gone, or not text
    deleted: bool = False
    added: bool = False


class Permit(Struct, frozen=True, kw_only=True):
    """What the plan lets a phase change."""

    text: str  #: the phase's section
    touches: tuple[str, ...] = ()  #: patterns; empty permits every path
    allows: tuple[str, ...] = ()  #: patterns: what may lose tests, and guarded files that may change
    bookkeeping: tuple[str, ...] = ()  #: plan, report, runplan.toml: never permitted
    written: tuple[str, ...] = ()  #: plan and report: nothing may stand where their folders are

    def names(self, path: str) -> bool:
        """Whether the phase speaks of this very path, or of removing a folder it is in."""
        if path in (literal(pattern) for pattern in self.touches) or _stands_in(self.text, path):
            return True
        return any(_removes_folder(line, path) for line in self.text.splitlines())

    def covers(self, path: str) -> bool:
        """Whether the path is within the phase's Touches:, or named."""
        return not self.touches or covers(self.touches, path) or self.names(path)

    def allowed(self, path: str) -> bool:
        """Whether the phase's Allows: covers the path."""
        return covers(self.allows, path)

    def permits_ci(self, path: str) -> bool:
        """Whether the phase means the CI: it names the path, or a pattern begins with the CI's own folder."""
        top = path.partition("/")[0]
        meant = (p for p in self.touches if literal(p) == path or literal(p).partition("/")[0] == top)
        return self.names(path) or self.allowed(path) or any(matches(pattern, path) for pattern in meant)


def wants_text(path: str) -> bool:
    """Whether `examine` looks into this file."""
    return testfiles.may_hold_tests(path) or testfiles.sets_checks(path)


def is_lifecycle(path: str) -> bool:
    """Whether the file is never committed."""
    return covers(LIFECYCLE, path)


def examine(changes: Sequence[FileChange], permit: Permit) -> tuple[Tampering, ...]:
    """Everything in the changes that the plan does not permit."""
    names_now = frozenset[str]().union(
        *(
            testfiles.test_names(c.after)
            for c in changes
            if c.after and testfiles.may_hold_tests(c.path) and not _too_large(c)
        )
    )
    found: list[Tampering] = []
    for change in changes:
        found += _scope(change.path, permit)
        found += () if change.deleted else _in_the_way(change.path, permit)
        if change.added and named_like_secret(change.path) and not permit.names(change.path):
            found.append(_found(TamperKind.SECRET, change.path, "looks like a secret"))
        found += _ci(change, permit)
        if permit.allowed(change.path):
            continue
        if _too_large(change):
            detail = "over 5 MB, too large to see whether its checks are weakened; permit it with Allows:"
            found.append(_found(TamperKind.TOO_LARGE, change.path, detail))
            continue
        found += _tests(change, names_now)
        found += _settings(change)
    return tuple(found)


def examine_command(command: str, permit: Permit, *, before: Read, after: Read) -> tuple[Tampering, ...]:
    """What of the files that the test command runs was changed in the tree `after`."""
    return tuple(
        Tampering(kind=TamperKind.TEST_COMMAND, path=one.path, detail=one.detail, line=one.line)
        for one in weakened(command, before, after)
        if not permit.allowed(one.path)
    )


def remedy(found: Sequence[Tampering]) -> str:
    """The line of the plan that would permit all of it, to follow its account; "" when no line would."""
    paths = dict.fromkeys(one.path for one in found if one.kind in ALLOWABLE)
    if not paths or any(one.kind not in ALLOWABLE for one in found):
        return ""
    return f"; if the plan means it, add to the phase: Allows: {', '.join(paths)}"


def unwanted(
    untracked: Sequence[Untracked], permit: Permit, *, texts: Mapping[str, str] | None = None
) -> tuple[Tampering, ...]:
    """The untracked files that may not be committed; `texts` holds the beginnings of those that were read."""
    found: list[Tampering] = []
    for file in untracked:
        if is_lifecycle(file.path):
            continue
        found += _scope(file.path, permit)
        found += _in_the_way(file.path, permit)
        if permit.names(file.path):
            continue
        if file.size > LARGEST_UNTRACKED:
            found.append(_found(TamperKind.TOO_LARGE, file.path, f"{file.size} bytes, untracked and over 5 MB"))
        if named_like_secret(file.path) or holds_secret(file.path) or holds_secret((texts or {}).get(file.path, "")):
            found.append(_found(TamperKind.SECRET, file.path, "looks like a secret"))
    return tuple(found)


def _too_large(change: FileChange) -> bool:
    return max(len(change.before or ""), len(change.after or "")) > LARGEST_EXAMINED


def _found(kind: TamperKind, path: str, detail: str) -> Tampering:
    return Tampering(kind=kind, path=path, detail=detail)


def _scope(path: str, permit: Permit) -> Iterator[Tampering]:
    if path in permit.bookkeeping:
        yield _found(TamperKind.BOOKKEEPING, path, "belongs to runplan, no agent may change it")
    elif not permit.covers(path):
        yield _found(TamperKind.OUT_OF_SCOPE, path, f"outside Touches: {', '.join(permit.touches)}")


def _in_the_way(path: str, permit: Permit) -> Iterator[Tampering]:
    for own in permit.written:
        if own.startswith(f"{path}/"):
            yield _found(TamperKind.BOOKKEEPING, path, f"stands in the way of {own}, which belongs to runplan")


def _ci(change: FileChange, permit: Permit) -> Iterator[Tampering]:
    if testfiles.is_ci(change.path) and not permit.permits_ci(change.path):
        yield _found(TamperKind.CHANGED_CI, change.path, "the CI was changed, and the phase does not say so")


def _tests(change: FileChange, names_now: frozenset[str]) -> Iterator[Tampering]:
    if not testfiles.may_hold_tests(change.path):
        return
    before, after = change.before or "", change.after or ""
    had = testfiles.test_names(before)
    if gone := sorted(had - names_now):
        yield _found(TamperKind.REMOVED_TEST, change.path, f"tests removed: {_listed(gone)}")
    elif change.deleted and not had and testfiles.is_test(change.path):
        yield _found(TamperKind.REMOVED_TEST, change.path, "the test file was removed")
    elif not change.deleted:
        yield from _weakened(change.path, before, after)
    if testfiles.skips(after) > testfiles.skips(before):
        yield _found(TamperKind.NEW_SKIP, change.path, "tests are skipped that were not, or new ones are")


def _weakened(path: str, before: str, after: str) -> Iterator[Tampering]:
    if emptied := sorted(testfiles.gutted(before, after)):
        yield _found(TamperKind.WEAKENED_TEST, path, f"assert nothing any more: {_listed(emptied)}")
        return
    kept = testfiles.test_names(before) <= testfiles.test_names(after)
    lost = testfiles.assertions(before) - testfiles.assertions(after)
    if kept and lost > 0 and testfiles.is_test(path):
        yield _found(TamperKind.WEAKENED_TEST, path, f"{lost} fewer assertions in the same tests")


def _settings(change: FileChange) -> Iterator[Tampering]:
    if not testfiles.sets_checks(change.path) or change.before is None:
        return
    after = change.after or ""
    if keys := testfiles.lowered(change.before, after):
        yield _found(TamperKind.LOWERED_THRESHOLD, change.path, f"thresholds changed: {', '.join(keys)}")
    if testfiles.left_out(after) > testfiles.left_out(change.before):
        yield _found(TamperKind.NEW_SKIP, change.path, "the settings leave tests out that ran before")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return shown if len(names) <= MOST_NAMED else f"{shown} and {len(names) - MOST_NAMED} more"


def _stands_in(text: str, word: str) -> bool:
    """Whether the word stands in the text by itself, not as a part of a longer path or name."""
    return word in text and re.search(rf"(?<![\w./-]){re.escape(word)}(?!\.?[\w/-])", text) is not None


def _removes_folder(line: str, path: str) -> bool:
    if not _REMOVES.search(line):
        return False
    folders = re.findall(r"(?<![\w./-])/*+([\w.][\w./-]*+)(?<=/)(?:\*\*)?(?![\w.*-])", line)
    return any(path.startswith(folder) for folder in folders)
