"""Finds what changed in the main repository while an agent ran: by the agent on evidence, else only as a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.commands import command
from runplan.core.gitconfig import newly_obeyed, summary
from runplan.core.gitfacts import Finding
from runplan.core.gitwords import REPLACED
from runplan.core.guard import OURS, STASH, SYMBOLIC, commands, spelled, writes, writes_to
from runplan.core.movedrefs import is_ours, judged, made_symbolic
from runplan.core.names import PARKED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from runplan.core.dispatch import ToolUsed
    from runplan.core.guard import Evidence, FileStamp, Logged, Stamp

#: Files of the git directory in which each line is obeyed, whatever it says.
BY_LINE = ("info/attributes", "info/grafts", "objects/info/alternates")
RECORD = "record"  #: a finding of this kind: what git wrote down below the agent is gone
_MOST_KEYS = 3  #: that are named to a person


def compare(before: Stamp, after: Stamp, evidence: Evidence, *, own: Collection[str]) -> tuple[Finding, ...]:
    """What changed and is not plainly the user's: by the agent on evidence, else only as a warning."""
    names = sorted(before.refs.keys() | after.refs.keys())
    moved = [
        (name, before.refs.get(name, ""), after.refs.get(name, ""))
        for name in names
        if before.refs.get(name) != after.refs.get(name)
    ]
    found: list[Finding | None] = [
        judged(name, old, new, evidence)
        for name, old, new in moved
        if name not in own and name != STASH and not name.endswith("/HEAD")
        if not name.startswith(OURS) or (old and name.startswith(PARKED))
        if before.symbolic.get(name) == after.symbolic.get(name)
    ]
    found += made_symbolic(before, after, evidence, own)
    found += _stashes(before, after, evidence)
    heads = [("HEAD", before.head, after.head, evidence.head_entries)]
    heads += [
        (name, was, after.heads.get(name, ""), evidence.other_heads.get(name, ())) for name, was in before.heads.items()
    ]
    found += [_head(name, was, now, entries, evidence, own) for name, was, now, entries in heads]
    found += _hidden(before, after, evidence, own)
    found += [_file(path, before.files.get(path), after.files.get(path), evidence) for path in _files(before, after)]
    return tuple(finding for finding in found if finding is not None)


def _hidden(before: Stamp, after: Stamp, evidence: Evidence, own: Collection[str]) -> Iterator[Finding]:
    """A ref was moved by the agent's name, and git, which has both from one environment, wrote no such command down."""
    if evidence.traced is None or not all(one.keeps_refs for one in commands(evidence.traced)):
        return
    moved = [name for name in own if name in before.refs and before.refs[name] != after.refs.get(name)]
    logged = [entry for name in moved for entry in evidence.entries(name, before.refs[name])]
    if any(entry.who == evidence.agent for entry in (*evidence.own_entries, *logged)):
        yield Finding(kind=RECORD, name="", old="", new="", by_agent=True, safe=False)


def _stashes(before: Stamp, after: Stamp, evidence: Evidence) -> Iterator[Finding]:
    for entry in evidence.entries(STASH, ""):
        if entry.new in after.stashes and entry.new not in before.stashes and entry.who == evidence.agent:
            yield Finding(kind="stash", name=STASH, old="", new=entry.new, by_agent=True)
    by_agent = any(one.loses_stashes for one in commands(evidence.tools))
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
    ours, before = (is_ours(head.removeprefix(SYMBOLIC), evidence, own) for head in (now, was))
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
            one.writes_user_config or one.writes_file(path) if path.startswith("/") else one.writes_config
            for one in commands(evidence.tools)
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
        return tool.path.endswith(f"/{path}") if writes(tool) else writes_to(tool, f".git/{path}")
    end = "/".join(path.split("/")[-2:]) if path.endswith(("/config", "/attributes")) else path.rpartition("/")[2]
    return tool.path == path if writes(tool) else writes_to(tool, f"/{end}")
