"""Looks up the evidence of a verifier: files of the tree, tests that the gates ran, commands.

A text is cut into tokens, and each token is looked up. No word has a meaning of its own.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from runplan.run.dispatch import ReferenceKind

if TYPE_CHECKING:
    from runplan.run.dispatch import Reference

NOT_SEEN = "not seen to pass"
_NO_FILE = "is not a file of the tree"

#: `src/x.py:12`, `src/x.py:12-20`, `src/x.py#L12`
_PLACE = r"(.+?)[:#@]L?(\d{1,9})(?:[-–:,].*)?"
#: `pkg/x_test.go:TestX`
_SYMBOL = r"([^:\s]+):([A-Za-z_][\w./]*)"
_QUOTED = r"`([^`\n]+)`|\"([^\"\n]+)\"|“([^“”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"
_BETWEEN = r"[\s,;|=()<>\"'`\[\]{}]+"
_OPENING = "([{<\"'`*"
_CLOSING = ")]}>\"'`*,;:.!?…"
#: Between the file, the suites and the title in the name of a test.
_LEVELS = r"::| [›>] |#"
_PACKAGE = r".*\.(?=(?:Test|Fuzz|Example|Benchmark))"  # of a test in Go
_TITLE = r"\w_\w|[a-z][A-Z]|\w \w"  # not a single word of a sentence


class Facts(Struct, frozen=True, kw_only=True, dict=True):
    """What runplan knows about the tree that is judged."""

    count_lines: Callable[[str], int | None]  #: of a file of the tree; None when it has no such file
    is_in_base: Callable[[str], bool]
    changed: Sequence[str] = ()  #: paths that the work changed
    tests: Mapping[str, bool] | None = None  #: whether each test of the gates passed; None where results have no names
    list_commands: Callable[[], Sequence[str] | None] = lambda: None  #: that ran; None where the stream shows none
    root: str = ""  #: the worktree, in front of absolute paths

    @cached_property
    def by_name(self) -> dict[str, list[str]]:
        """The changed paths by the name of the file."""
        paths: dict[str, list[str]] = {}
        for path in self.changed:
            paths.setdefault(posixpath.basename(path), []).append(path)
        return paths

    @cached_property
    def titles(self) -> dict[str, set[str]]:
        """The tests by each of their titles: the whole name, the name without parameters, the function."""
        titles: dict[str, set[str]] = {}
        for name in self.tests or ():
            whole = name.partition("[")[0] if "::" in name else name
            last = re.split(_LEVELS, whole)[-1]
            for title in (name, whole, last, last.partition(" (")[0], re.sub(_PACKAGE, "", last)):
                titles.setdefault(title, set()).add(name)
        return titles


class Lookup(Struct, frozen=True):
    """Whether a reference proves something, and what is to be said about it."""

    is_proof: bool
    words: str = ""


class Resolved(Struct, frozen=True, kw_only=True):
    is_proven: bool  #: a file or a test resolves
    words: str  #: the references for people, each with a remark where it needs one
    unresolved: tuple[str, ...]  #: the references that do not resolve, each with the reason


def resolve_evidence(evidence: Sequence[Reference], facts: Facts) -> Resolved:
    lookups = [(reference, look_up(reference, facts)) for reference in evidence]
    said = [f"{reference.ref} ({lookup.words})" if lookup.words else reference.ref for reference, lookup in lookups]
    return Resolved(
        is_proven=any(lookup.is_proof for _, lookup in lookups),
        words="; ".join(said),
        unresolved=tuple(
            f"{reference.ref}: {lookup.words}" for reference, lookup in lookups if lookup.words and not lookup.is_proof
        ),
    )


def look_up(reference: Reference, facts: Facts) -> Lookup:
    match reference.kind:
        case ReferenceKind.COMMAND:
            return _look_up_command(reference.ref, facts)
        case ReferenceKind.TEXT:
            return _look_up_text(reference.ref, facts)
        case ReferenceKind.FILE if "::" not in reference.ref:
            return _look_up_file(reference.ref, facts, is_gone=reference.gone)
        case _:
            return _look_up_test(reference.ref, facts)


def _look_up_file(ref: str, facts: Facts, *, is_gone: bool = False) -> Lookup:
    path = _in_tree(ref, facts)
    if is_gone:
        is_true = facts.is_in_base(path) and facts.count_lines(path) is None
        return Lookup(is_true, "gone" if is_true else "is not a file that the work removed")
    if _count_lines(path, facts) is not None:
        return Lookup(True)
    if (place := re.fullmatch(_PLACE, path)) is None or (lines := _count_lines(place[1], facts)) is None:
        return Lookup(False, _NO_FILE)
    return Lookup(True) if 0 < int(place[2]) <= lines else Lookup(False, f"has {lines} lines")


def _in_tree(path: str, facts: Facts) -> str:
    return path.strip().removeprefix(f"{facts.root}/").removeprefix("./")


def _count_lines(path: str, facts: Facts) -> int | None:
    """The lines of a file; of a changed file also by the end of its path."""
    changed = facts.by_name.get(posixpath.basename(path), ())
    meant = (path, *(other for other in changed if other.endswith(f"/{path}")))
    return max((lines for candidate in meant if (lines := facts.count_lines(candidate)) is not None), default=None)


def _look_up_test(ref: str, facts: Facts) -> Lookup:
    ref = _in_tree(ref, facts)
    if symbol := re.fullmatch(_SYMBOL, ref):
        ref = f"{symbol[1]}::{symbol[2]}"
    file, *rest = re.split(_LEVELS, ref)
    has_file = _look_up_file(file, facts).is_proof
    if facts.tests is None:
        return Lookup(True, NOT_SEEN) if has_file else Lookup(False, f"the results name no tests; {file} {_NO_FILE}")
    if has_file and not rest:
        names = _of_file(file, facts)
        return Lookup(True, "" if names and all(facts.tests[name] for name in names) else NOT_SEEN)
    names = facts.titles.get(ref, set())
    if not names and (has_file or "/" not in file):
        names = _of_title(file, rest, facts)
    if not names:
        return Lookup(False, "is not among the tests that ran")
    return Lookup(True) if all(facts.tests[name] for name in names) else Lookup(False, "failed")


def _of_title(place: str, rest: Sequence[str], facts: Facts) -> set[str]:
    """The tests that `file::suite::title` or `suite.title` means."""
    if not rest:
        place, _, title = place.rpartition(".")
        rest = (title,)
    titled = facts.titles.get(rest[-1]) or facts.titles.get(rest[-1].partition("[")[0], set())
    suffix = posixpath.splitext(place)[1]
    has_files = suffix and any(f"{suffix}::" in name or f"{suffix} " in name for name in titled)
    of_file = _of_file(place, facts)
    return titled & of_file if of_file or has_files else titled


def _of_file(place: str, facts: Facts) -> set[str]:
    """The tests whose name has the file, module or class."""
    stem = posixpath.basename(place).partition(".")[0]
    pattern = re.compile(rf"(?<!\w){re.escape(stem)}(?!\w)")
    names = facts.tests or {}
    return {name for name in names if name.startswith(place)} or {name for name in names if pattern.search(name)}


def _look_up_command(command: str, facts: Facts) -> Lookup:
    """A command alone proves nothing."""
    shown = facts.list_commands()
    wanted = " ".join(command.split())
    is_known = shown is None or (wanted and any(wanted in " ".join(line.split()) for line in shown))
    return Lookup(False, "" if is_known else "is not among the commands that ran")


# --- texts --------------------------------------------------------------------------------------------------


def _look_up_text(text: str, facts: Facts) -> Lookup:
    wrong: dict[str, None] = {}
    doubtful = None
    for token, is_code in _split_tokens(text):
        lookup = _look_up_token(token, facts, is_code=is_code)
        if lookup is not None and lookup.is_proof:
            doubtful = lookup
            if not lookup.words:
                return lookup
        elif lookup is not None and re.fullmatch(r"\S*(?:/|::|:\d)\S*", token):
            wrong[lookup.words if token == text else f"{token} {lookup.words}"] = None
    return doubtful or Lookup(False, "; ".join([*wrong][:3]) or "names no file of the tree and no test that ran")


def _split_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The words, quotes and parts of words of a text, and whether each stands in backticks."""
    yield text.strip(), False
    for quote in re.finditer(_QUOTED, text):
        yield next(filter(None, quote.groups())), quote[1] is not None
    for word in dict.fromkeys((*text.split(), *re.split(_BETWEEN, text))):
        yield word.lstrip(_OPENING).rstrip(_CLOSING), False


def _look_up_token(token: str, facts: Facts, *, is_code: bool) -> Lookup | None:
    """None for a token that is no reference."""
    if not token:
        return None
    title = token if " " in token else token.rpartition(".")[2]  # `Suite.title`
    if "::" in token or (title in facts.titles and (is_code or re.search(_TITLE, title))):
        return _look_up_test(token, facts)
    if (symbol := re.fullmatch(_SYMBOL, token)) and _look_up_file(symbol[1], facts).is_proof:
        return _look_up_test(token, facts) if symbol[2] in facts.titles else Lookup(True)
    is_word = not re.search(r"[/.]|[:#@]L?\d", token)
    if is_word and not is_code and token not in facts.by_name:
        return None
    lookup = _look_up_file(token, facts)
    is_gone = not lookup.is_proof and token in facts.changed
    return _look_up_file(token, facts, is_gone=True) if is_gone else lookup
