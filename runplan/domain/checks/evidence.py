"""Looks up the tokens of a verifier's evidence: files of the tree, tests that the gates ran, commands."""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from runplan.domain.checks.guarded import is_test
from runplan.domain.globs import covers
from runplan.domain.run.dispatch import Reference, ReferenceKind
from runplan.domain.run.events import Rows

NOT_SEEN = "not seen to pass"
UNRELATED = "is a file that the phase neither changed nor names"
#: `src/x.py:12`, `src/x.py:12-20`, `src/x.py#L12`
_PLACE = r"(.+?)[:#@]L?(\d{1,9})(?:[-–:,].*)?"
_SYMBOL = r"([^:\s]+):([A-Za-z_][\w./]*)"  #: `pkg/x_test.go:TestX`
_QUOTED = r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^“”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"
#: `test_x[1-2]` is not `test_x`. It begins a word, so that a long text is read once.
_WITH_PARAMETER = r"(?<![^\s`])[(\[{<\"'*]*+[^\s`\[]*\w\[[^\]\n]*\]"
_BETWEEN = r"[\s,;|=()<>\"'`\[\]{}]+"
_OPENING = "([{<\"'`*"
_CLOSING = ")]}>\"'`*,;:.!?…"
#: Between the file, the suites and the title in the name of a test.
_LEVELS = r"::| [›>] |#"
_PACKAGE = r".*\.(?=(?:Test|Fuzz|Example|Benchmark))"  # of a test in Go
_TITLE = r"\w_\w|[a-z][A-Z]|\w \w"  # not a single word of a sentence


class Facts(Struct, frozen=True, kw_only=True, dict=True):
    count_lines: Callable[[str], int | None]  #: of a file of the tree; None when it has no such file
    is_in_base: Callable[[str], bool]
    changed: Sequence[str] = ()  #: paths that the work changed
    text: str = ""  #: of the phase
    touches: Sequence[str] = ()  #: of the phase
    test_paths: Sequence[str] = ()  #: patterns of further test files
    missing: Rows = ()  #: items, each with a path that it names and that was never there
    tests: Mapping[str, bool] | None = None  #: whether each test of the gates passed; None where results have no names
    list_commands: Callable[[], Sequence[str] | None] = lambda: None  #: that ran; None where the stream shows none
    root: str = ""  #: the worktree, in front of absolute paths

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        paths: dict[str, list[str]] = {}
        for path in self.changed:
            paths.setdefault(posixpath.basename(path), []).append(path)
        return paths

    @cached_property
    def words(self) -> set[str]:
        return {word.partition(":")[0].removeprefix("./") for word, _ in _split_tokens(self.text)}

    def is_named(self, path: str) -> bool:
        """Whether the phase names the file: by its path or the end of it, or in `Touches:`."""
        parts = path.split("/")
        ends = ("/".join(parts[first:]) for first in range(len(parts)))
        return any(end in self.words for end in ends) or covers(self.touches, path)

    @cached_property
    def titles(self) -> dict[str, set[str]]:
        """The tests by each of their titles: the whole name, the name without parameters, the function."""
        titles: dict[str, set[str]] = {}
        for name in self.tests or ():
            whole = name.partition("[")[0] if "::" in name else name
            last = re.split(_LEVELS, whole)[-1]
            parameter = f"{last}{name.removeprefix(whole)}"
            for title in (name, whole, last, parameter, last.partition(" (")[0], re.sub(_PACKAGE, "", last)):
                titles.setdefault(title, set()).add(name)
        return titles


class Lookup(Struct, frozen=True):
    is_proof: bool
    words: str = ""
    is_work: bool = False  #: it is a file that the work changed, or a test


class Judgement(Struct, frozen=True, kw_only=True):
    item: str
    passed: bool
    evidence: str  #: the references in words, or what is against the item
    missing: str = ""  #: what a pass lacks to count; the verifier is asked for it once more
    rests_on_work: bool = False  #: its evidence is a file that the work changed, or a test
    absent: tuple[str, ...] = ()  #: files that it names and passes without


def judge_evidence(item: str, evidence: Sequence[Reference], facts: Facts, absent: tuple[str, ...] = ()) -> Judgement:
    """A pass counts if a file or a test resolves; `absent` are the paths that the item names and that are not there."""
    lookups = [(reference, look_up(reference, facts, absent)) for reference in evidence]
    if not any(lookup.is_proof for _, lookup in lookups):
        wrong = "; ".join(f"{reference.ref}: {lookup.words}" for reference, lookup in lookups if lookup.words)
        missing = wrong or "no file or test is named"
        unproven = f"passed, but no reference resolves: {missing}"
        return Judgement(item=item, passed=False, evidence=unproven, missing=missing)
    said = (f"{reference.ref} ({lookup.words})" if lookup.words else reference.ref for reference, lookup in lookups)
    is_work = any(lookup.is_work for _, lookup in lookups)
    return Judgement(item=item, passed=True, evidence="; ".join(said), rests_on_work=is_work, absent=absent)


def look_up(reference: Reference, facts: Facts, missing: Sequence[str] = ()) -> Lookup:
    match reference.kind:
        case _ if reference.absent:
            is_true = reference.ref in missing
            return Lookup(is_true, "absent" if is_true else "is not a missing file that the item names")
        case ReferenceKind.COMMAND:
            shown = facts.list_commands()
            wanted = " ".join(reference.ref.split())
            is_known = shown is None or (wanted and any(wanted in " ".join(line.split()) for line in shown))
            return Lookup(False, "" if is_known else "is not among the commands that ran")
        case ReferenceKind.TEXT:
            wrong: dict[str, None] = {}
            best = None
            for token, is_code in _split_tokens(reference.ref):
                lookup = _look_up_token(token, facts, is_code=is_code)
                if lookup is not None and lookup.is_proof:
                    best = max(best or lookup, lookup, key=lambda proof: (proof.is_work, not proof.words))
                elif lookup is not None and (lookup.words == UNRELATED or re.fullmatch(r"\S*(?:/|::|:\d)\S*", token)):
                    wrong[lookup.words if token == reference.ref else f"{token} {lookup.words}"] = None
            return best or Lookup(False, "; ".join([*wrong][:3]) or "names no file of the tree and no test that ran")
        case ReferenceKind.FILE if reference.gone:
            path = _in_tree(reference.ref, facts)
            return _look_up_gone(path, facts) or Lookup(False, "is not a file that the work removed")
        case ReferenceKind.FILE if "::" not in reference.ref:
            return _look_up_file(reference.ref, facts, is_unchanged=reference.unchanged)
        case _:
            return _look_up_test(reference.ref, facts, is_unchanged=reference.unchanged)


def _look_up_gone(path: str, facts: Facts) -> Lookup | None:
    return Lookup(True, "gone", is_work=True) if facts.is_in_base(path) and facts.count_lines(path) is None else None


def _look_up_file(ref: str, facts: Facts, *, is_unchanged: bool = False) -> Lookup:
    files, line = _find_files(ref, facts)
    if not files:
        return Lookup(False, "is not a file of the tree")
    lines = max(files.values())
    if not 0 <= line <= lines:
        return Lookup(False, f"has {lines} lines")
    if any(file in facts.by_name.get(posixpath.basename(file), ()) for file in files):
        return Lookup(True, is_work=True)
    if is_unchanged:
        return Lookup(True, "unchanged")
    (file,) = files  # where there are several, the work changed one
    return Lookup(True) if facts.is_named(file) else Lookup(False, UNRELATED)


def _in_tree(path: str, facts: Facts) -> str:
    return path.strip().removeprefix(f"{facts.root}/").removeprefix("./")


def _find_files(ref: str, facts: Facts) -> tuple[dict[str, int], int]:
    """The lines of each file that is meant, and the line that is; a changed file also by the end of its path."""
    path = _in_tree(ref, facts)
    place = re.fullmatch(_PLACE, path)
    for meant, line in ((path, 0), *([(place[1], int(place[2]) or -1)] if place else [])):
        changed = facts.by_name.get(posixpath.basename(meant), ())
        candidates = (meant, *(other for other in changed if other.endswith(f"/{meant}")))
        if files := {file: lines for file in candidates if (lines := facts.count_lines(file)) is not None}:
            return files, line
    return {}, 0


def _look_up_test(ref: str, facts: Facts, *, is_unchanged: bool = False) -> Lookup:
    ref = _in_tree(ref, facts)
    if symbol := re.fullmatch(_SYMBOL, ref):
        ref = f"{symbol[1]}::{symbol[2]}"
    file, *rest = re.split(_LEVELS, ref)
    files, line = _find_files(file, facts)
    if facts.tests is None or (files and not rest):
        lookup = _look_up_file(file, facts, is_unchanged=is_unchanged)
        names_test = facts.tests is None and (rest or line) and any(is_test(path, facts.test_paths) for path in files)
        if names_test and (lookup.is_proof or lookup.words == UNRELATED):
            return Lookup(True, NOT_SEEN, is_work=True)
        results = [(facts.tests or {})[name] for name in _of_file(file, facts)]
        return lookup if results and all(results) else replace(lookup, words=lookup.words or NOT_SEEN)
    names = facts.titles.get(ref, set())
    if not names and (files or "/" not in file):  # `file::suite::title` or `suite.title`
        place, title = (file, rest[-1]) if rest else file.rpartition(".")[::2]
        titled = facts.titles.get(title, set())
        suffix = posixpath.splitext(place)[1]
        has_files = suffix and any(f"{suffix}::" in name or f"{suffix} " in name for name in titled)
        of_file = _of_file(place, facts)
        names = titled & of_file if of_file or has_files else titled
    if not names:
        return Lookup(False, "is not among the tests that ran")
    return Lookup(True, is_work=True) if all(facts.tests[name] for name in names) else Lookup(False, "failed")


def _of_file(place: str, facts: Facts) -> set[str]:
    stem = posixpath.basename(place).partition(".")[0]
    pattern = re.compile(rf"(?<!\w){re.escape(stem)}(?!\w)")
    names = facts.tests or {}
    return {name for name in names if name.startswith(place)} or {name for name in names if pattern.search(name)}


def _split_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The words, quotes and parts of words of a text, and whether each stands in backticks."""
    yield text.strip(), False
    for quote in re.finditer(_QUOTED, text):
        yield next(filter(None, quote.groups())), quote[1] is not None
    for test in re.findall(_WITH_PARAMETER, text):
        yield test.lstrip(_OPENING), False
    for word in dict.fromkeys((*text.split(), *re.split(_BETWEEN, re.sub(_WITH_PARAMETER, "", text)))):
        yield word.lstrip(_OPENING).rstrip(_CLOSING), False


def _look_up_token(token: str, facts: Facts, *, is_code: bool) -> Lookup | None:
    """None for a token that is no reference."""
    if not token:
        return None
    title = token if " " in token else token.rpartition(".")[2]  # `Suite.title`
    if "::" in token or (title in facts.titles and (is_code or re.search(_TITLE, title))):
        return _look_up_test(token, facts)
    if (symbol := re.fullmatch(_SYMBOL, token)) and _find_files(symbol[1], facts)[0]:
        return _look_up_test(token, facts) if symbol[2] in facts.titles else _look_up_file(symbol[1], facts)
    is_word = not re.search(r"[/.]|[:#@]L?\d", token)
    if is_word and not is_code and token not in facts.by_name:
        return None
    gone = _look_up_gone(token, facts) if token in facts.changed else None
    return gone or _look_up_file(token, facts)
