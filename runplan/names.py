"""Names: what a plan, its branches, its worktree and its report are called."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from runplan.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADS = "refs/heads/"
CANDIDATES = "refs/runplan/candidate/"  #: where the commits of a run are kept until they land
PARKED = "refs/runplan/parked/"  #: where work is kept that is nowhere else
BASES = "refs/runplan/base/"  #: protects the base of a run from the user's `git gc`

_NOT_IN_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")
_LONGEST = 128  # bytes; a file name may have 255, and names are put together
_LONGEST_SLUG = 80


def slug(path: str) -> str:
    """What a plan is called in branches and reports: its file name, lower case, words joined by dashes."""
    name = PurePosixPath(path).name
    stem = name[:-3] if name.lower().endswith(".md") else name
    made = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    if made and len(made) <= _LONGEST_SLUG:
        return made
    # Nothing, or too much, is left of the name: its hash keeps it apart from its like.
    return f"{made[:_LONGEST_SLUG].rstrip('-') or 'plan'}-{_hash(stem)}"


def is_plain(path: str) -> bool:
    """Whether git, the journal and a terminal can take the path: UTF-8 without control characters."""
    return not any(char < " " or char == "\x7f" or "\ud800" <= char <= "\udfff" for char in path)


def shown(path: str) -> str:
    """The path on one line; what is not plain is escaped: `a\\nb`, `a\\xff`."""
    return path if is_plain(path) else "".join(char if is_plain(char) else _escaped(char) for char in path)


def as_utf8(text: str) -> str:
    """The text with what UTF-8 cannot hold escaped, as a byte of a file's name: `a\\xff`."""
    return _NOT_UTF8.sub(lambda found: _escaped(found.group()), text)


def _escaped(char: str) -> str:
    byte = ord(char) - 0xDC00  # Python's stand-in for a byte that is no UTF-8
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else char.encode("unicode_escape").decode()


def require_plain(path: str) -> None:
    """Refuse the path of a plan that cannot be worked because of its name."""
    if not is_plain(path):
        raise UsageError(
            f"{shown(path)}: the name holds control characters or bytes that are not UTF-8, so the plan cannot be "
            "worked; rename the file, commit it, and name it again"
        )


def plan_key(path: str, others: Iterable[str]) -> str:
    """The plan's slug; with a short hash of its path when another known plan has the same one."""
    mine = slug(path)
    here = PurePosixPath(path)
    if any(PurePosixPath(other) != here and slug(other) == mine for other in others):
        return f"{mine}-{_hash(str(here))}"
    return mine


def branch(prefix: str, slug: str, phase: str) -> str:
    """The short name of the branch a phase is worked on."""
    return f"{prefix}{slug}/{_ref_part(phase)}"


def report_path(reports_dir: str, slug: str) -> str:
    """Where the plan's report lies, relative to the repository."""
    return str(PurePosixPath(reports_dir) / f"plan-{slug}.md")


def worktree_name(root: str, slug: str, lane: str = "") -> str:
    """The directory of a run's worktree; repositories of one name share the place it is made in."""
    project = sanitise(PurePosixPath(root).name or "repository")[:40]
    return mark(f"{project}-{slug}-{_hash(root)}", lane)


def mark(run: str, lane: str) -> str:
    """What belongs to one lane of a run is named after both."""
    return f"{run}_{lane}" if lane else run


def candidate_ref(run: str, lane: str = "") -> str:
    """The ref of what is about to land; `run` may be a mark already."""
    return f"{CANDIDATES}{mark(run, lane)}"


def parked_under(slug: str, phase: str) -> str:
    """The refs that keep the work of a phase aside begin with this."""
    words = (re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "unnamed" for name in (slug, phase))
    return f"{PARKED}{'/'.join(words)}/"


def base_ref(run: str, lane: str = "") -> str:
    """The ref of the user's repository that protects a base; `run` may be a mark already."""
    return f"{BASES}{mark(run, lane)}"


def run_of(mark: str) -> str:
    """The run that a mark belongs to."""
    return mark.partition("_")[0]


def sanitise(text: str) -> str:
    """`text` as one safe file name: everything unusual becomes an underscore; at most 128 characters."""
    if not text:
        raise UsageError("a name must not be empty")
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:_LONGEST]


def valid_ref(name: str) -> bool:
    """Whether git takes `name` for a branch (the rules of git check-ref-format --branch)."""
    parts = name.split("/")
    return (
        not _NOT_IN_REF.search(name)
        and all(part and not part.startswith(".") and not part.endswith(".lock") for part in parts)
        and not name.startswith("-")
        and not name.endswith(".")
        and name not in ("@", "HEAD")
    )


def _ref_part(phase: str) -> str:
    """A phase id as one part of a ref; one that had to be changed carries its hash, to stay distinct."""
    safe = sanitise(phase)
    if safe == phase and valid_ref(safe):
        return safe
    return f"{safe.replace('.', '_').strip('-')}-{_hash(phase)}"


def _hash(text: str) -> str:
    import hashlib  # dear, and most names need none

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
