"""Finds changes that the plan does not permit: to the plan, to files of the checks, to other files, and secrets."""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.guarded import CI, INSTRUCTIONS, Read, find_changes
from runplan.domain.checks.secrets import SENSITIVE_FILES, redact_text, secrets_in
from runplan.domain.errors import PlanUnreadable
from runplan.domain.globs import covers, literal
from runplan.domain.names import is_below
from runplan.domain.plan.marks import ExecutionKind, Status
from runplan.domain.plan.model import Plan, Remark, parse_plan
from runplan.domain.run.kinds import Reason

LARGEST_ADDED = 5_000_000  #: bytes of a new file that the phase does not name
LIFECYCLE = (".runplan/**", ".runplan-*")  #: files of runplan or an agent for their own use; never committed
PROMPTS = ("config/prompts/*.md",)  #: the prompts of a repository; a weaker one would make every later verdict weaker
_QUOTED_PATH = r"`(?:\./)?(?!/|\.\./)([^`\s]+)`"
_WORD = r"`([^`\n]+)`|([^\s`'\"()\[\]{}<>,;|*]+)"


class TamperKind(StrEnum):
    BOOKKEEPING = "bookkeeping"  #: the plan, its report or runplan's settings
    CHANGED_CI = "changed-ci"
    INSTRUCTIONS = "instructions"  #: of agents
    COMMAND = "command"  #: of a plan, which would run with the user's rights
    CHECK_FILE = "check-file"  #: a file that decides how the checks run
    OUT_OF_SCOPE = "out-of-scope"
    SECRET = "secret"  # noqa: S105 - the name of a finding
    TOO_LARGE = "too-large"


#: The kinds that no commit may contain, also if a later one takes them back; no Allows: line permits them.
_IN_NO_COMMIT = (TamperKind.BOOKKEEPING, TamperKind.SECRET, TamperKind.TOO_LARGE)
_NEVER_ALLOWED = (*_IN_NO_COMMIT, TamperKind.OUT_OF_SCOPE, TamperKind.COMMAND)


class Tampering(Struct, frozen=True):
    kind: TamperKind
    path: str
    detail: str  #: for people, one line

    @property
    def reason(self) -> Reason:
        return Reason.OUT_OF_SCOPE if self.kind is TamperKind.OUT_OF_SCOPE else Reason.TAMPERED

    def __str__(self) -> str:
        return f"{redact_text(self.path)}: {self.detail}"


class FileChange(Struct, frozen=True, kw_only=True):
    path: str
    before: str | None  #: None when it was not there, or not text
    after: str | None  #: None when it is gone, or not text
    deleted: bool = False
    added: bool = False
    size: int = 0  #: bytes; needed for an added file


class Permit(Struct, frozen=True, kw_only=True):
    text: str  #: the phase's section
    touches: tuple[str, ...] = ()  #: patterns; empty permits every path
    allows: tuple[str, ...] = ()  #: patterns: guarded files that may change
    bookkeeping: tuple[str, ...] = ()  #: plan, report, index, runplan.toml: never permitted
    test_paths: tuple[str, ...] = ()  #: tests.paths
    written: tuple[str, ...] = ()  #: plan, report and index: no file may replace one of their folders
    built: str = ""  #: the file from which the image of the run's containers is built
    setup: tuple[str, ...] = ()  #: patterns: scripts that run.setup names
    instructions: tuple[str, ...] = INSTRUCTIONS  #: patterns: files that agents of the run take as instructions

    def names(self, path: str) -> bool:
        return path in (literal(pattern) for pattern in self.touches) or path in _path_words(self.text)

    def covers(self, path: str) -> bool:
        return not self.touches or covers(self.touches, path) or self.names(path)


@lru_cache(maxsize=4)
def _path_words(text: str) -> frozenset[str]:
    words = [quoted or word for quoted, word in re.findall(_WORD, text)]
    tokens = (*words, *(word.rstrip(".:!?") for word in words), *(word.partition(":")[0] for word in words))
    return frozenset(token.removeprefix("./").lstrip("/") for token in tokens)


def examine_changes(
    changes: Sequence[FileChange], permit: Permit, *, messages: Iterable[str] = ()
) -> tuple[Tampering, ...]:
    findings = (finding for change in changes for finding in _examine_change(change, permit))
    return tuple(dict.fromkeys((*findings, *_find_leaks(changes, messages, permit))))


def _examine_change(change: FileChange, permit: Permit) -> Iterator[Tampering]:
    path = change.path
    if is_below(path, permit.bookkeeping):
        yield Tampering(TamperKind.BOOKKEEPING, path, "belongs to runplan; an agent may not change it")
    elif not permit.covers(path):
        yield Tampering(TamperKind.OUT_OF_SCOPE, path, f"outside Touches: {', '.join(permit.touches)}")
    for file in () if change.deleted else permit.written:
        if file.startswith(f"{path}/"):
            yield Tampering(TamperKind.BOOKKEEPING, path, f"is in the way of {file}, which belongs to runplan")
    is_new = change.added and not permit.names(path)
    if is_new and change.size > LARGEST_ADDED:
        yield Tampering(TamperKind.TOO_LARGE, path, f"{change.size} bytes, a new file of over 5 MB")
    if is_new and re.search(SENSITIVE_FILES, path):
        yield Tampering(TamperKind.SECRET, path, "looks like a secret")
    # A phase permits files of the CI by their names, or by a pattern that begins with the CI's own folder.
    top = path.partition("/")[0]
    folders = {pattern: literal(pattern).partition("/")[0] for pattern in permit.touches}
    meant = [pattern for pattern in permit.touches if literal(pattern) == path or folders[pattern] == top]
    subject = "a file of the CI or a hook" if covers(CI, path) else ""
    subject = "the file of agents.container.build" if path == permit.built else subject
    subject = "a script of run.setup" if covers(permit.setup, path) else subject
    if subject and not (permit.names(path) or covers((*permit.allows, *meant), path)):
        detail = f"{subject} was changed, and the phase does not name it"
        yield Tampering(TamperKind.CHANGED_CI, path, detail)
    if covers((*PROMPTS, *permit.instructions), path) and not covers(permit.allows, path):
        yield Tampering(TamperKind.INSTRUCTIONS, path, "instructions of agents were changed")
    if new := _list_commands(path, change.after) - _list_commands(path, change.before):
        detail = f"only a person writes `Execution: delegate {min(new)}` into a plan; it runs without a sandbox"
        yield Tampering(TamperKind.COMMAND, path, detail)


def examine_commits(changes: Sequence[FileChange], permit: Permit, *, messages: Iterable[str]) -> tuple[Tampering, ...]:
    findings = examine_changes(changes, permit, messages=messages)
    return tuple(finding for finding in findings if finding.kind in _IN_NO_COMMIT)


def examine_checks(
    commands: Iterable[str], changed: Iterable[str], permit: Permit, *, before: Read, after: Read
) -> tuple[Tampering, ...]:
    changes = find_changes(commands, changed, before=before, after=after, test_paths=permit.test_paths)
    refused = ((path, detail) for path, detail in changes if not covers(permit.allows, path))
    refused = ((path, detail) for path, detail in refused if before(path) is not None or not permit.names(path))
    return tuple(Tampering(TamperKind.CHECK_FILE, path, detail) for path, detail in refused)


def foresee_refusals(plan: Plan, commands: Sequence[str], usual: Permit, *, read: Read) -> Iterator[Remark]:
    """Why changes to files that open phases name in backticks would be refused. Criteria may name what they run."""
    for phase in (phase for phase in plan.phases if phase.status is not Status.DONE):
        criteria = (re.escape(item.text) for item in phase.items if item.id.startswith("C"))
        named = dict.fromkeys(re.findall(_QUOTED_PATH, re.sub("|".join(criteria) or "(?!)", "", phase.text)))
        paths = [path for path in named if read(path) is not None]
        changes = [FileChange(path=path, before="", after="\n") for path in paths]
        permit = replace(usual, text=phase.text, touches=phase.touches, allows=phase.allows)
        guarded = examine_checks(commands, paths, permit, before=read, after=lambda path: f"{read(path)}\n")
        for finding in (*examine_changes(changes, permit), *guarded):
            words = f"names {finding.path}, which agents may not change{describe_remedy([finding])}"
            yield Remark(phase.heading_line, f"phase {phase.id} {words}")


def describe_remedy(findings: Sequence[Tampering]) -> str:
    paths = dict.fromkeys(finding.path for finding in findings)
    if not paths or any(finding.kind in _NEVER_ALLOWED for finding in findings):
        return ""
    return f"; if the plan means it, add to the phase: Allows: {', '.join(paths)}"


def _list_commands(path: str, text: str | None) -> set[str]:
    if not text or (ExecutionKind.DELEGATE not in text.lower() and not path.endswith(".json")):  # it may be escaped
        return set()
    try:
        phases = parse_plan(text.encode("utf-8", "replace"), path=path).phases
    except PlanUnreadable:
        return set()
    return {phase.execution.argument for phase in phases if phase.execution.kind is ExecutionKind.DELEGATE}


def _find_leaks(files: Sequence[FileChange], messages: Iterable[str], permit: Permit) -> Iterator[Tampering]:
    """Secrets in files that the phase does not name, and in messages, that none of the files had before."""
    known = {secret for file in files for secret in secrets_in(file.before or "")}
    texts: list[tuple[str, str, str]] = []
    for file in files:
        if not permit.names(file.path):
            texts.append((file.path, "seems to contain", file.after or ""))
            texts += [(file.path, "its name contains", file.path)] if file.added else []
    texts += (("a commit message", "seems to contain", message) for message in messages)
    for path, how, text in texts:
        for secret, kind in secrets_in(text).items():
            if secret not in known:
                yield Tampering(TamperKind.SECRET, path, f"{how} {kind}")
