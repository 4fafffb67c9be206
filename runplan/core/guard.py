"""Tells an agent's doings in the main repository from the user's: attribute before accusing.

What counts as evidence, and what is done without any, is written down in docs/adr/0005-attribute-before-accusing.md.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.gitconfig import newly_obeyed, summary
from runplan.core.gitfacts import Finding, Identity
from runplan.core.gitwords import REPLACED, git_commands
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
    return {"GIT_TRACE2_EVENT": str(trace), "GIT_TRACE2_EVENT_NESTING": "1"}


def is_agent(who: Identity) -> bool:
    """Whether it is the name of an agent of ours, whichever dispatch it was."""
    user, _, host = who.email.partition("@")
    own, _, place = AGENT.email.partition("@")
    return who.name == AGENT.name and host == place and user.partition("+")[0] == own


STASH = "refs/stash"
SYMBOLIC = "ref: "  #: how git writes a ref that stands for another one
OURS = "refs/runplan/"
REMOTES = "refs/remotes/"
#: Files of the git directory in which each line is obeyed, whatever it says.
BY_LINE = ("info/attributes", "info/grafts", "objects/info/alternates")
_MOST_KEYS = 3  #: that are named to a person
#: Tools that change a file, by the names agents give them; whoever only reads is not asked about a change.
_WRITES = re.compile(r"write|edit|append|delete|create|patch|remove|move|replace|mkdir|hook", re.IGNORECASE)
_SHELL = re.compile(r"bash|shell|command|exec|terminal", re.IGNORECASE)
_CHANGES_FILES = re.compile(r">|\b(?:cp|mv|tee|ln|install|rm|chmod|dd|sed|perl|python3?|node)\b")
_NAMED_ANEW = ("Branch: renamed", "Branch: copied")
_ENTRY = re.compile(r"([0-9a-f]+) ([0-9a-f]+) ([^\t]*) <([^\t]*?)> \d+ [+-]\d{4}(?:\t(.*))?")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What there is to go by; `entries` gives a ref's reflog since the first stamp, `tagger` who made a tag."""

    entries: Callable[[str, Oid], Sequence[Logged]]
    tagger: Callable[[Oid], Identity | None]
    head_entries: Sequence[Logged] = ()  #: of the main checkout's HEAD, since the first stamp
    other_heads: Mapping[str, Sequence[Logged]] = MappingProxyType({})  #: the same of other worktrees, by ref
    tools: Sequence[ToolUsed] = ()
    agent: Identity = AGENT  #: who is judged; what agents of other runs do, their own guards judge
    prefix: str = ""  #: full ref prefix of the branches runplan itself makes and removes


def compare(before: Stamp, after: Stamp, evidence: Evidence, *, own: Collection[str]) -> tuple[Finding, ...]:
    """What changed and is not plainly the user's: by the agent on evidence, else only as a warning."""
    names = sorted(before.refs.keys() | after.refs.keys())
    moved = [
        (name, before.refs.get(name, ""), after.refs.get(name, ""))
        for name in names
        if before.refs.get(name) != after.refs.get(name)
    ]
    found: list[Finding | None] = [
        _ref(name, old, new, evidence)
        for name, old, new in moved
        if name not in own and name != STASH and not name.startswith(OURS) and not name.endswith("/HEAD")
        if before.symbolic.get(name) == after.symbolic.get(name)
    ]
    found += _symbolic(before, after, evidence, own)
    found += _stashes(before, after, evidence)
    heads = [("HEAD", before.head, after.head, evidence.head_entries)]
    heads += [
        (name, was, after.heads.get(name, ""), evidence.other_heads.get(name, ())) for name, was in before.heads.items()
    ]
    found += [_head(name, was, now, entries, evidence, own) for name, was, now, entries in heads]
    found += [_file(path, before.files.get(path), after.files.get(path), evidence) for path in _files(before, after)]
    return tuple(finding for finding in found if finding is not None)


def _ref(name: str, old: Oid, new: Oid, evidence: Evidence) -> Finding | None:
    entries = evidence.entries(name, old) if new else ()
    agents = [entry for entry in entries if entry.who == evidence.agent]
    if agents:
        return _by_reflog(name, old, new, entries, agents)
    if entries:
        return None  # the user's, by their own name, or another run's
    by_agent = _names_ref(evidence.tools, name) or bool(new and evidence.tagger(new) == evidence.agent)
    if name.startswith(REPLACED) and new:
        return Finding(kind="ref", name=name, old=old, new=new, by_agent=by_agent, obeyed=(name,))
    if by_agent:
        return Finding(kind="ref", name=name, old=old, new=new, by_agent=True)
    if not old or (not new and evidence.prefix and name.startswith(evidence.prefix)):
        return None  # nothing was lost; or it is one of ours, which runplan removes itself
    return Finding(kind="ref", name=name, old=old, new=new, by_agent=False)


def _by_reflog(name: str, old: Oid, new: Oid, entries: Sequence[Logged], agents: Sequence[Logged]) -> Finding | None:
    if name.startswith(REMOTES) and all(entry.message.startswith(("fetch", "pull")) for entry in agents):
        return None  # a copy of what the remote says
    # When somebody has built on it, putting it back would undo their work as well.
    return Finding(kind="ref", name=name, old=old, new=new, by_agent=True, safe=len(agents) == len(entries))


def _symbolic(before: Stamp, after: Stamp, evidence: Evidence, own: Collection[str]) -> Iterator[Finding]:
    """Refs that came to stand for another one, or no longer do: whoever writes to such a ref writes elsewhere."""
    for name in sorted(before.symbolic.keys() | after.symbolic.keys()):
        was, now = before.symbolic.get(name, ""), after.symbolic.get(name, "")
        ours, leads_to_ours = (_is_ours(ref, evidence, own) for ref in (name, now))
        if ours and now:
            # No run makes one and no user needs one here, so it needs no further evidence.
            old = _last_own(name, now, before, evidence)
            yield Finding(kind="symref", name=name, old=old, new=f"{SYMBOLIC}{now}", by_agent=True)
        elif was != now and not ours and not name.endswith("/HEAD"):
            old = f"{SYMBOLIC}{was}" if was else before.refs.get(name, "")
            new = f"{SYMBOLIC}{now}" if now else after.refs.get(name, "")
            # Whoever has a ref of theirs stand for one that runplan will remove would lose it.
            by_agent = leads_to_ours or _names_ref(evidence.tools, name)
            yield Finding(kind="symref", name=name, old=old, new=new, by_agent=by_agent)


def _is_ours(ref: str, evidence: Evidence, own: Collection[str]) -> bool:
    return ref in own or ref.startswith(OURS) or bool(evidence.prefix and ref.startswith(evidence.prefix))


def _last_own(name: str, target: str, before: Stamp, evidence: Evidence) -> Oid:
    """What a ref of ours held itself, last of all: what its log says since, else what it held before."""
    old = "" if name in before.symbolic else before.refs.get(name, "")
    entries = evidence.entries(name, old) if old else ()
    # Git notes, without a word, where a ref led to when it was made symbolic.
    made = (entry.old for entry in reversed(entries) if not entry.message and entry.new == before.refs.get(target))
    return next(made, entries[-1].new if entries else old)


def _stashes(before: Stamp, after: Stamp, evidence: Evidence) -> Iterator[Finding]:
    for entry in evidence.entries(STASH, ""):
        if entry.new in after.stashes and entry.new not in before.stashes and entry.who == evidence.agent:
            yield Finding(kind="stash", name=STASH, old="", new=entry.new, by_agent=True)
    by_agent = any(command.loses_stashes for command in _commands(evidence.tools))
    for oid in before.stashes:
        if oid not in after.stashes:
            yield Finding(kind="stash", name=STASH, old=oid, new="", by_agent=by_agent)


def _head(
    name: str, was: str, now: str, entries: Sequence[Logged], evidence: Evidence, own: Collection[str]
) -> Finding | None:
    """A worktree of the user's that stands elsewhere now."""
    agents = [entry for entry in entries if entry.who == evidence.agent]
    if was == now:
        return None
    if agents:
        safe = len(agents) == len(entries) and agents[0].old == agents[-1].new
        return Finding(kind="head", name=name, old=was, new=now, by_agent=True, safe=safe)
    ours, before = (_is_ours(head.removeprefix(SYMBOLIC), evidence, own) for head in (now, was))
    if not ours or before or _switched(entries, now):
        return None
    # The branch is checked out in the run's own worktree, so git would not have led anybody to it: nobody but the
    # agent gains by that, and whoever stands there stands on nothing once the branch is removed.
    return Finding(kind="head", name=name, old=was, new=now, by_agent=True)


def _switched(entries: Sequence[Logged], head: str) -> bool:
    """Whether it was git that led there, and so took index and files along."""
    branch = head.removeprefix(f"{SYMBOLIC}refs/heads/")
    return any(entry.message.startswith("checkout: ") and entry.message.endswith(f" to {branch}") for entry in entries)


def _files(before: Stamp, after: Stamp) -> list[str]:
    paths = sorted(before.files.keys() | after.files.keys())
    return [path for path in paths if before.files.get(path) != after.files.get(path)]


def _file(path: str, old: FileStamp | None, new: FileStamp | None, evidence: Evidence) -> Finding:
    kind = "hook" if path.startswith("hooks/") else "config"
    # Nobody else works in a worktree of ours, so what git obeys there needs no further evidence.
    by_agent = path.startswith("worktrees/") or any(_wrote(tool, path) for tool in evidence.tools)
    if not by_agent and path.startswith(("config", "/")):
        by_agent = any(tool.tool == "config" and path[0] != "/" for tool in evidence.tools) or any(
            command.writes_user_config or command.writes_file(path) if path.startswith("/") else command.writes_config
            for command in _commands(evidence.tools)
        )
    obeyed = _obeyed(path, old, new) if kind == "config" else ()
    return Finding(kind=kind, name=path, old=spelled(old), new=spelled(new), by_agent=by_agent, obeyed=obeyed)


def _obeyed(path: str, old: FileStamp | None, new: FileStamp | None) -> tuple[str, ...]:
    texts = (kept.text if kept else "" for kept in (old, new))
    if path.startswith("/"):
        return newly_obeyed(*texts)
    return newly_obeyed(*(summary(text, by_line=path in BY_LINE) for text in texts))


def obeyed_words(finding: Finding) -> str:
    """What a finding means for the landing, to follow its name; what is the agent's is put back or named besides."""
    if not finding.obeyed:
        return ""
    keys = ", ".join(finding.obeyed[:_MOST_KEYS])
    if finding.by_agent:
        return "" if finding.kind == "ref" else f" ({keys})"
    does = "shows something else than what is stored" if finding.kind == "ref" else f"obeys {keys} now"
    return f": git {does}, so nothing is landed on it; if it is not yours, {_remedy(finding)}"


def _remedy(finding: Finding) -> str:
    key = finding.obeyed[0]
    if finding.kind == "ref":
        return f"take it out: {command('git', 'replace', '-d', finding.name.removeprefix(REPLACED))}"
    if "." not in key:
        return "look into that file, and take out what is new there"
    file = ("--file", finding.name) if finding.name.startswith("/") else ("--local",)
    return f"take it out: {command('git', 'config', *file, '--unset-all', key)}"


def _wrote(tool: ToolUsed, path: str) -> bool:
    """Whether a tool that changes files names this one, below the git directory or in full."""
    if not path.startswith("/"):
        return tool.path.endswith(f"/{path}") if _WRITES.search(tool.tool) else _writes_to(tool, f".git/{path}")
    end = "/".join(path.split("/")[-2:]) if path.endswith(("/config", "/attributes")) else path.rpartition("/")[2]
    return tool.path == path if _WRITES.search(tool.tool) else _writes_to(tool, f"/{end}")


def _writes_to(tool: ToolUsed, path: str) -> bool:
    """Whether it is a command line that names the file together with something that changes files."""
    return bool(_SHELL.search(tool.tool) and path in tool.path and _CHANGES_FILES.search(tool.path))


def spelled(kept: FileStamp | None) -> str:
    """A file in one string, its mode in the first line; empty when there is none."""
    return f"{kept.mode:o}\n{kept.text}" if kept else ""


def unspelled(text: str) -> FileStamp | None:
    mode, _, content = text.partition("\n")
    return FileStamp(text=content, mode=int(mode, 8)) if mode else None


def _names_ref(tools: Sequence[ToolUsed], ref: str) -> bool:
    told = any(tool.tool == "move_ref" and tool.path == ref for tool in tools)
    return told or any(command.moves(ref) for command in _commands(tools))


def _commands(tools: Sequence[ToolUsed]) -> Iterator[GitCommand]:
    for tool in tools:
        yield from git_commands(tool.path)


def written_files(tools: Sequence[ToolUsed]) -> tuple[str, ...]:
    """The paths an agent says it wrote to."""
    return tuple(dict.fromkeys(tool.path for tool in tools if tool.path and _WRITES.search(tool.tool)))


def read_log(text: str) -> tuple[Logged, ...]:
    """A reflog file, oldest entry first."""
    found = (_ENTRY.fullmatch(line) for line in text.split("\n"))
    return tuple(
        Logged(old=entry[1], new=entry[2], who=Identity(name=entry[3], email=entry[4]), message=entry[5] or "")
        for entry in found
        if entry is not None
    )


def since(entries: Sequence[Logged], old: Oid) -> tuple[Logged, ...]:
    """The newest entries back to the one that left `old`; all of a log that begins later.

    A renamed or copied branch brings its log along; what was before that happened to another name.
    """
    start = next((at for at in range(len(entries) - 1, -1, -1) if entries[at].old == old), 0)
    named = (at for at in range(len(entries) - 1, start, -1) if entries[at].message.startswith(_NAMED_ANEW))
    return tuple(entries[next(named, start) :])
