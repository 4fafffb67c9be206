"""Finds changes that the plan does not permit: to the plan, to tests and checks, to other files, and secrets.

A path in the text of the phase, or in its Touches: line, may be changed and added to. Only its Allows: line permits
removing or weakening tests, and changing the files that the test command runs.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.checks import testcode, testfiles
from runplan.checks.guarded import weakened
from runplan.checks.secrets import holds_secret, named_like_secret, redacted, secrets_in
from runplan.globs import covers, literal, matches
from runplan.run.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from runplan.checks.guarded import Read
    from runplan.gitfacts import Untracked

#: An untracked file larger than this is not committed for an agent.
LARGEST_UNTRACKED = 5_000_000  # bytes
LARGEST_EXAMINED = 1_000_000  #: characters of a file of tests or settings that is examined

MOST_NAMED = 20  #: tests that one finding lists

#: Files of runplan or an agent for their own use; never committed.
LIFECYCLE = (".runplan/**", ".runplan-*")
#: The prompts of a repository; a weaker one would make every later verdict weaker.
PROMPTS = ("config/prompts/*.md",)

_REMOVES = re.compile(r"\b(?:remov|delet|drop|retir|mov|renam|replac|merg)\w*", re.IGNORECASE)


class TamperKind(StrEnum):
    BOOKKEEPING = "bookkeeping"  #: the plan, its report or runplan's settings
    REMOVED_TEST = "removed-test"
    WEAKENED_TEST = "weakened-test"
    NEW_SKIP = "new-skip"
    LOWERED_THRESHOLD = "lowered-threshold"
    CHANGED_CI = "changed-ci"
    CHANGED_PROMPT = "changed-prompt"
    TEST_COMMAND = "test-command"  #: a file that the test command runs
    OUT_OF_SCOPE = "out-of-scope"
    SECRET = "secret"  # noqa: S105 - the name of a finding
    TOO_LARGE = "too-large"


#: The kinds that an Allows: line permits.
ALLOWABLE = frozenset(
    (
        *(TamperKind.REMOVED_TEST, TamperKind.WEAKENED_TEST, TamperKind.NEW_SKIP, TamperKind.LOWERED_THRESHOLD),
        *(TamperKind.CHANGED_CI, TamperKind.CHANGED_PROMPT, TamperKind.TEST_COMMAND),
    )
)


class Tampering(Struct, frozen=True):
    """One change that blocks the attempt."""

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
    """The changes that the plan permits a phase."""

    text: str  #: the phase's section
    touches: tuple[str, ...] = ()  #: patterns; empty permits every path
    allows: tuple[str, ...] = ()  #: patterns: files that may lose tests, and guarded files that may change
    bookkeeping: tuple[str, ...] = ()  #: plan, report, index, runplan.toml: never permitted
    written: tuple[str, ...] = ()  #: plan, report and index: no file may replace one of their folders

    def names(self, path: str) -> bool:
        """Whether the phase names this path, or the removal of a folder it is in."""
        if path in (literal(pattern) for pattern in self.touches) or _contains_word(self.text, path):
            return True
        return any(_removes_folder(line, path) for line in self.text.splitlines())

    def covers(self, path: str) -> bool:
        """Whether the path is within the phase's Touches:, or named."""
        return not self.touches or covers(self.touches, path) or self.names(path)

    def allowed(self, path: str) -> bool:
        return covers(self.allows, path)

    def permits_ci(self, path: str) -> bool:
        """Whether the phase names the path, or one of its patterns begins with the CI's own folder."""
        top = path.partition("/")[0]
        meant = (p for p in self.touches if literal(p) == path or literal(p).partition("/")[0] == top)
        return self.names(path) or self.allowed(path) or any(matches(pattern, path) for pattern in meant)


def wants_text(path: str) -> bool:
    return testfiles.may_hold_tests(path) or testfiles.sets_checks(path)


def is_lifecycle(path: str) -> bool:
    return covers(LIFECYCLE, path)


def examine(changes: Sequence[FileChange], permit: Permit) -> tuple[Tampering, ...]:
    tests = [change for change in changes if testfiles.may_hold_tests(change.path) and not _too_large(change)]
    work = _TestWork(tests)
    found: list[Tampering] = []
    for change in changes:
        found += _scope(change.path, permit)
        found += () if change.deleted else _in_the_way(change.path, permit)
        if change.added and named_like_secret(change.path) and not permit.names(change.path):
            found.append(Tampering(TamperKind.SECRET, change.path, "looks like a secret"))
        found += _instructions(change, permit)
        if permit.allowed(change.path):
            continue
        if _too_large(change) and not change.added:
            detail = "over 1 MB, too large to check for weakened tests; permit it with Allows:"
            found.append(Tampering(TamperKind.TOO_LARGE, change.path, detail))
            continue
        found += work.findings(change)
        if testfiles.sets_checks(change.path) and change.before is not None:
            lowered = testfiles.lowered(change.before, change.after or "")
            found += (Tampering(TamperKind.LOWERED_THRESHOLD, change.path, one.what, one.line) for one in lowered)
    return tuple(found)


def examine_command(command: str, permit: Permit, *, before: Read, after: Read) -> tuple[Tampering, ...]:
    """The changes in the tree `after` to files that the test command runs."""
    return tuple(
        Tampering(TamperKind.TEST_COMMAND, path, detail, line)
        for path, line, detail in weakened(command, before, after)
        if not permit.allowed(path)
    )


def remedy(found: Sequence[Tampering]) -> str:
    """The line of the plan that would permit all of it; "" when no line would."""
    paths = dict.fromkeys(one.path for one in found if one.kind in ALLOWABLE)
    if not paths or any(one.kind not in ALLOWABLE for one in found):
        return ""
    return f"; if the plan means it, add to the phase: Allows: {', '.join(paths)}"


def unwanted(
    untracked: Sequence[Untracked], permit: Permit, *, texts: Mapping[str, str] | None = None
) -> tuple[Tampering, ...]:
    """The untracked files that may not be committed; `texts` are the beginnings of those that were read."""
    found: list[Tampering] = []
    for file in untracked:
        if is_lifecycle(file.path):
            continue
        found += _scope(file.path, permit)
        found += _in_the_way(file.path, permit)
        if permit.names(file.path):
            continue
        if file.size > LARGEST_UNTRACKED:
            found.append(Tampering(TamperKind.TOO_LARGE, file.path, f"{file.size} bytes, untracked and over 5 MB"))
        if named_like_secret(file.path) or holds_secret(file.path) or holds_secret((texts or {}).get(file.path, "")):
            found.append(Tampering(TamperKind.SECRET, file.path, "looks like a secret"))
    return tuple(found)


def _too_large(change: FileChange) -> bool:
    return max(len(change.before or ""), len(change.after or "")) > LARGEST_EXAMINED


def _scope(path: str, permit: Permit) -> Iterator[Tampering]:
    if path in permit.bookkeeping:
        yield Tampering(TamperKind.BOOKKEEPING, path, "belongs to runplan; an agent may not change it")
    elif not permit.covers(path):
        yield Tampering(TamperKind.OUT_OF_SCOPE, path, f"outside Touches: {', '.join(permit.touches)}")


def _in_the_way(path: str, permit: Permit) -> Iterator[Tampering]:
    for own in permit.written:
        if own.startswith(f"{path}/"):
            yield Tampering(TamperKind.BOOKKEEPING, path, f"is in the way of {own}, which belongs to runplan")


def _instructions(change: FileChange, permit: Permit) -> Iterator[Tampering]:
    if testfiles.is_ci(change.path) and not permit.permits_ci(change.path):
        yield Tampering(
            TamperKind.CHANGED_CI, change.path, "a file of the CI or a hook was changed, and the phase does not name it"
        )
    if covers(PROMPTS, change.path) and not permit.allowed(change.path):
        yield Tampering(TamperKind.CHANGED_PROMPT, change.path, "a prompt of runplan's agents was changed")


class _TestWork:
    """All changes to test files together: a test may move from one file to another."""

    def __init__(self, changes: Sequence[FileChange]) -> None:
        self._before = {c.path: testcode.parse(c.before or "", c.path) for c in changes}
        self._after = {c.path: testcode.parse(c.after or "", c.path) for c in changes}
        self._was = {path: testcode.by_name(source.cases) for path, source in self._before.items()}
        self._now = {path: testcode.by_name(source.cases) for path, source in self._after.items()}
        self._names_before = frozenset[str]().union(*self._was.values())
        self._arrived: dict[str, list[tuple[str, testcode.TestCase]]] = {}  #: new to a path, by name and by body
        for path, cases in self._now.items():
            for case in (case for name, case in cases.items() if name not in self._was[path]):
                keys = (case.name,) if case.name in self._names_before else (case.name, _body(case))
                for key in keys:
                    self._arrived.setdefault(key, []).append((path, case))
        self._taken: set[tuple[str, str]] = set()
        self._helpers_before = _all_helpers(self._before.values())
        self._helpers_now = _all_helpers(self._after.values())
        assertions = Counter[str]()
        for path, source in self._before.items():
            assertions.update(testcode.assertion_lines(source.plain))
            assertions.subtract(testcode.assertion_lines(self._after[path].plain))
        self._lost_assertions = +assertions
        self._skips_before = Counter(skip.key for source in self._before.values() for skip in testcode.skips(source))

    def findings(self, change: FileChange) -> Iterator[Tampering]:
        path = change.path
        if path not in self._before:
            return
        gone: list[testcode.TestCase] = []
        for name, was in self._was[path].items():
            now = self._now[path].get(name) or self._take_arrival(was, is_collected=testfiles.is_collected(path))
            if now is None:
                gone.append(was)
            elif why := self._weaker(was, now):
                yield Tampering(TamperKind.WEAKENED_TEST, path, f"{name} {why}", now.line)
        if gone:
            names = ", ".join(sorted(case.name for case in gone)[:MOST_NAMED])
            more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
            yield Tampering(TamperKind.REMOVED_TEST, path, f"tests removed: {names}{more}", gone[0].line)
        if not self._was[path] and testfiles.is_test(path) and not path.endswith("__init__.py"):
            yield from _nameless(change, self._before[path], self._after[path])
        yield from self._new_skips(change)

    def _take_arrival(self, was: testcode.TestCase, *, is_collected: bool) -> testcode.TestCase | None:
        """The test in its new file, or under a new name with the same body."""
        for key in (was.name, _body(was)):
            for path, case in self._arrived.get(key, ()):
                if (path, case.name) not in self._taken and (testfiles.is_collected(path) or not is_collected):
                    self._taken.add((path, case.name))
                    return case
        return None

    def _weaker(self, was: testcode.TestCase, now: testcode.TestCase) -> str:
        before = testcode.strength(was.body, self._helpers_before)
        after = testcode.strength(now.body, self._helpers_now)
        return testcode.weaker(was, now, before=before, after=after, lost=self._lost_assertions)

    def _new_skips(self, change: FileChange) -> Iterator[Tampering]:
        for skip in testcode.skips(self._after[change.path]):
            if self._skips_before[skip.key] > 0:
                self._skips_before[skip.key] -= 1
            elif self._names_before & skip.tests or (
                testfiles.is_test(change.path) and not (skip.tests or change.added)
            ):
                yield Tampering(TamperKind.NEW_SKIP, change.path, "a test is newly skipped or disarmed", skip.line)


def _body(case: testcode.TestCase) -> str:
    return "".join(case.body.split())


def _all_helpers(sources: Iterable[testcode.TestSource]) -> dict[str, int]:
    return {name: asserted for source in sources for name, asserted in testcode.helpers_of(source).items()}


def _nameless(change: FileChange, before: testcode.TestSource, after: testcode.TestSource) -> Iterator[Tampering]:
    """Findings about a test file in which no test has a name, such as a shell script."""
    if change.deleted:
        yield Tampering(TamperKind.REMOVED_TEST, change.path, "the test file was removed")
    elif testcode.assertion_lines(before.plain).total() > testcode.assertion_lines(after.plain).total():
        yield Tampering(TamperKind.WEAKENED_TEST, change.path, "the file has fewer assertions")


def _contains_word(text: str, word: str) -> bool:
    """Whether the text contains the word, not as a part of a longer path or name."""
    return word in text and re.search(rf"(?<![\w./-]){re.escape(word)}(?!\.?[\w/-])", text) is not None


def _removes_folder(line: str, path: str) -> bool:
    if not _REMOVES.search(line):
        return False
    folders = re.findall(r"(?<![\w./-])/*+([\w.][\w./-]*+)(?<=/)(?:\*\*)?(?![\w.*-])", line)
    return any(path.startswith(folder) for folder in folders)


# --- secrets -----------------------------------------------------------------------------------------------

MESSAGE = "a commit message"


def leaks(files: Sequence[FileChange], messages: Iterable[str], permit: Permit) -> tuple[Tampering, ...]:
    """The files, file names and commit messages with a secret that none of the files had before.

    A file that the phase names may contain secrets.
    """
    known = {secret for file in files for secret in secrets_in(file.before or "")}
    found: dict[Tampering, None] = {}
    for file in files:
        if not permit.names(file.path):
            kinds = secrets_in(file.path).values() if file.added else ()
            found |= dict.fromkeys(_leaks(file.path, file.after or "", known))
            found |= dict.fromkeys(
                Tampering(TamperKind.SECRET, file.path, f"its name contains {kind}") for kind in kinds
            )
    for message in messages:
        found |= dict.fromkeys(_leaks(MESSAGE, message, known))
    return tuple(found)


def _leaks(path: str, text: str, known: set[str]) -> list[Tampering]:
    kinds = (kind for secret, kind in secrets_in(text).items() if secret not in known)
    return [Tampering(TamperKind.SECRET, path, f"seems to contain {kind}") for kind in kinds]
