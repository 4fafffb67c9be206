"""What tells an agent's doings in the main repository from the user's: names, stamps, logs, tools.

What counts as evidence, and what is done without any, is written down in docs/adr/0005-attribute-before-accusing.md;
who is accused of what is decided in core/findings.py and core/movedrefs.py.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from runplan.core.gitfacts import Identity
from runplan.core.gitwords import git_commands
from runplan.core.quickclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from runplan.core.dispatch import ToolUsed
    from runplan.core.gitfacts import Oid
    from runplan.core.gitwords import GitCommand

AGENT = Identity(name="runplan agent", email="agent@runplan.invalid")


def signing(dispatch: str) -> Identity:
    """By which name the agent of one dispatch, and of no other, moves refs."""
    return Identity(name=AGENT.name, email=f"agent+{dispatch}@runplan.invalid")


def attributed(dispatch: str, trace: Path) -> dict[str, str]:
    """The variables by which all that git does below a process is known as its doing.

    Reflogs get its name; and git writes every command down in `trace` (adapters/gittrace.py).
    """
    who = signing(dispatch)
    return {"GIT_COMMITTER_NAME": who.name, "GIT_COMMITTER_EMAIL": who.email, **traced(trace)}


def traced(trace: Path) -> dict[str, str]:
    """What an environment needs so that every git below it appends to the file `trace` (absolute)."""
    # Where a command ran is told by these variables when git itself knows of no checkout there.
    named = {"GIT_TRACE2_ENV_VARS": "GIT_DIR,PWD"}
    return {"GIT_TRACE2_EVENT": str(trace), "GIT_TRACE2_EVENT_NESTING": "1", **named}


def is_agent(who: Identity) -> bool:
    """Whether it is the name of an agent of ours, whichever dispatch it was."""
    user, _, host = who.email.partition("@")
    own, _, place = AGENT.email.partition("@")
    return who.name == AGENT.name and host == place and user.partition("+")[0] == own


STASH = "refs/stash"
SYMBOLIC = "ref: "  #: how git writes a ref that stands for another one
OURS = "refs/runplan/"
REMOTES = "refs/remotes/"
#: Tools that change a file, by the names agents give them; whoever only reads is not asked about a change.
_WRITES = re.compile(r"write|edit|append|delete|create|patch|remove|move|replace|mkdir|hook", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|command|exec|terminal", re.IGNORECASE)
_CHANGES_FILES = re.compile(r">|\b(?:cp|mv|tee|ln|install|rm|chmod|dd|sed|perl|python3?|node)\b")
_NAMED_ANEW = ("Branch: renamed", "Branch: copied")
_COMMITS = ("commit", "cherry-pick", "revert")
_LED = "ast-forward"  #: to a commit that was there
_ENTRY = re.compile(r"([0-9a-f]+) ([0-9a-f]+) ([^\t]*) <([^\t<>]*)> \d+ [+-]\d{4}(?:\t(.*))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStamp:
    """A file of the git directory as it stood."""

    text: str
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What the main repository looks like at one moment."""

    refs: Mapping[str, Oid]
    head: str  #: what the main checkout's HEAD says
    stashes: tuple[Oid, ...]  #: oldest first
    #: Configuration and hooks, by path below the common directory; others by full path, with a summary for a text.
    files: Mapping[str, FileStamp]
    heads: Mapping[str, str] = MappingProxyType({})  #: what HEAD says in the user's other worktrees
    symbolic: Mapping[str, str] = MappingProxyType({})  #: refs that stand for another one, and for which


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One entry of a reflog."""

    old: Oid
    new: Oid
    who: Identity
    message: str


def _others() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The process whose doings are judged."""

    agent: Identity = AGENT  #: the name it signs with
    trace: Path | None = None  #: what git wrote down below it (adapters/gittrace.py)
    worktree: Path | None = None  #: of its attempt
    branch: str = ""  #: of its attempt; a full ref name
    beside: Callable[[], bool] = _others  #: whether other runs may have been at work meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What there is to go by; `entries` gives a ref's reflog since the first stamp, `tagger` who made a tag."""

    entries: Callable[[str, Oid], Sequence[Logged]]
    tagger: Callable[[Oid], Identity | None]
    committer: Callable[[Oid], Identity | None]
    head_entries: Sequence[Logged] = ()  #: of the main checkout's HEAD, since the first stamp
    other_heads: Mapping[str, Sequence[Logged]] = MappingProxyType({})  #: the same of other worktrees, by ref
    tools: Sequence[ToolUsed] = ()
    agent: Identity = AGENT  #: who is judged; what agents of other runs do, their own guards judge
    prefix: str = ""  #: full ref prefix of the branches runplan itself makes and removes
    heads: Collection[Oid] = ()  #: where the branch of the attempt stood, and stands
    made: Collection[Oid] = ()  #: what was committed in the attempt's own worktree, whatever name it carries
    own_entries: Sequence[Logged] = ()  #: of the HEAD of the attempt's worktree, since the first stamp
    beside: Callable[[], bool] = (
        _others  #: whether other runs, which remove what they have landed, may have been at work
    )
    in_checkout: Sequence[ToolUsed] = ()  #: the git commands that ran in the main checkout
    checked_out: str = ""  #: the branch that the main checkout is on
    traced: Sequence[ToolUsed] | None = None  #: what git has written down below it; None where it was not asked to


def spelled(kept: FileStamp | None) -> str:
    """A file in one string, its mode in the first line; empty when there is none."""
    return f"{kept.mode:o}\n{kept.text}" if kept else ""


def unspelled(text: str) -> FileStamp | None:
    mode, _, content = text.partition("\n")
    return FileStamp(text=content, mode=int(mode, 8)) if mode else None


def commands(tools: Sequence[ToolUsed]) -> Iterator[GitCommand]:
    """The calls of git that an agent's tools, or git itself, tell of."""
    for tool in tools:
        yield from git_commands(tool.path)


def writes(tool: ToolUsed) -> bool:
    """Whether it is a tool that changes the file it names."""
    return bool(_WRITES.search(tool.tool))


def writes_to(tool: ToolUsed, path: str) -> bool:
    """Whether it is a command line that names the file together with something that changes files."""
    return bool(_SHELL.search(tool.tool) and path in tool.path and _CHANGES_FILES.search(tool.path))


def written_files(tools: Sequence[ToolUsed]) -> tuple[str, ...]:
    """The paths an agent says it wrote to."""
    return tuple(dict.fromkeys(tool.path for tool in tools if tool.path and writes(tool)))


def read_log(text: str) -> tuple[Logged, ...]:
    """A reflog file, oldest entry first."""
    found = (_ENTRY.fullmatch(line) for line in text.split("\n"))
    return tuple(
        Logged(old=entry[1], new=entry[2], who=Identity(name=entry[3], email=entry[4]), message=entry[5] or "")
        for entry in found
        if entry is not None
    )


def since(entries: Sequence[Logged], old: Oid) -> tuple[Logged, ...]:
    """The newest entries back to the one that left `old`, or came after it; all of a log that knows nothing of it.

    A renamed or copied branch brings its log along; what was before that happened to another name.
    """
    places = range(len(entries) - 1, -1, -1)
    came = next((at + 1 for at in places if entries[at].new == old), 0)
    start = next((at for at in places if entries[at].old == old), came)
    named = (at for at in places if at > start and entries[at].message.startswith(_NAMED_ANEW))
    return tuple(entries[next(named, start) :])


def made_there(entries: Sequence[Logged]) -> frozenset[Oid]:
    """The commits that were made in a worktree, by the log of its HEAD; not those that it was only led to."""
    own = (entry for entry in entries if entry.message.startswith(_COMMITS) and _LED not in entry.message)
    return frozenset(entry.new for entry in own)
