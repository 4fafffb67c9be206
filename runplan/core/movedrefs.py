"""Tells who moved a ref while an agent ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.core.gitfacts import Finding
from runplan.core.gitwords import REPLACED
from runplan.core.guard import OURS, REMOTES, SYMBOLIC, commands, is_agent
from runplan.core.names import PARKED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from runplan.core.dispatch import ToolUsed
    from runplan.core.gitfacts import Oid
    from runplan.core.guard import Evidence, Logged, Stamp

KEPT = "kept ref"  #: the kind of a finding: it is put back whoever is accused
_PUSHED = "update by push"


def judged(name: str, old: Oid, new: Oid, evidence: Evidence) -> Finding | None:
    """What is to be said of a ref that was moved, made or deleted; nothing when it is plainly the user's."""
    if old and (name.startswith(PARKED) or (not new and evidence.prefix and name.startswith(evidence.prefix))):
        return _kept(name, old, new, evidence)
    entries = evidence.entries(name, old) if new else ()
    agents = [entry for entry in entries if entry.who == evidence.agent]
    if agents:
        return _by_reflog(name, old, new, entries, agents)
    # Whoever writes a ref's file leaves a log behind that leads elsewhere, and tells nothing.
    if entries and entries[-1].new == new:
        return _by_others(name, old, new, entries, evidence)
    by_agent = _names_ref(evidence.tools, name) or bool(new and evidence.tagger(new) == evidence.agent)
    by_agent = by_agent or (_is_moved(name, old) and _is_its_work(new, evidence))
    if name.startswith(REPLACED) and new:
        return Finding(kind="ref", name=name, old=old, new=new, by_agent=by_agent, obeyed=(name,))
    if by_agent:
        return Finding(kind="ref", name=name, old=old, new=new, by_agent=True)
    if not old:
        return None  # nothing was lost
    return Finding(kind="ref", name=name, old=old, new=new, by_agent=False)


def _kept(name: str, old: Oid, new: Oid, evidence: Evidence) -> Finding | None:
    """A ref of ours that keeps work, and was taken away: by the agent, or by runplan itself.

    Only `runplan gc` takes parked work away, where the target has it; to have that back for once does no harm.
    """
    by_agent = _names_ref(evidence.tools, name) or any(one.moves_any for one in commands(evidence.tools))
    # Git deletes the log of a branch first, so one that is left says that somebody removed a file.
    left_alone = name.startswith(PARKED) or evidence.entries(name, "") or not evidence.beside()
    if not by_agent and not left_alone:
        return None
    return Finding(kind=KEPT, name=name, old=old, new=new, by_agent=by_agent)


def _by_others(name: str, old: Oid, new: Oid, entries: Sequence[Logged], evidence: Evidence) -> Finding | None:
    """The log names the user, or another run.

    Any process can sign it so: whose commits they are, and what git wrote down of its commands, weigh more.
    """
    values = dict.fromkeys((entries[0].old, *(entry.new for entry in entries)))
    if _is_moved(name, old) and any(_is_its_work(value, evidence) for value in values if value != old):
        return Finding(kind="ref", name=name, old=old, new=new, by_agent=True, safe=_is_its_work(new, evidence))
    named = _named_by(name, entries, evidence)
    if not named and not any(one.moves_any for one in commands(evidence.tools)):
        return None
    # As many commands as there are moves: nobody else made one of them.
    return Finding(kind="ref", name=name, old=old, new=new, by_agent=True, safe=named >= len(entries))


def _named_by(name: str, entries: Sequence[Logged], evidence: Evidence) -> int:
    """How many commands of the agent say that they move the ref."""
    ran = tuple(commands(evidence.tools))
    if name.startswith(REMOTES):
        pushed = any(entry.message == _PUSHED for entry in entries)
        return sum(one.pushes for one in ran) if pushed else 0
    here = commands(evidence.in_checkout) if name == evidence.checked_out else ()
    told = sum(tool.tool == "move_ref" and tool.path == name for tool in evidence.tools)
    return told + sum(one.sets(name) for one in ran) + sum(one.moves_head for one in here)


def _is_moved(name: str, old: Oid) -> bool:
    """Whether it was there before: anybody may make a branch from an agent's commit, or push one."""
    return bool(old) and not name.startswith(REMOTES)


def _is_its_work(oid: Oid, evidence: Evidence) -> bool:
    """Whether a commit is the attempt's, which nobody has proven yet: nobody but its agent has a ref go there."""
    if not oid.strip("0"):
        return False
    who = evidence.committer(oid)
    return (
        oid in evidence.made or who == evidence.agent or (oid in evidence.heads and who is not None and is_agent(who))
    )


def _by_reflog(name: str, old: Oid, new: Oid, entries: Sequence[Logged], agents: Sequence[Logged]) -> Finding | None:
    if name.startswith(REMOTES) and all(entry.message.startswith(("fetch", "pull")) for entry in agents):
        return None  # a copy of what the remote says
    # When somebody has built on it, putting it back would undo their work as well.
    return Finding(kind="ref", name=name, old=old, new=new, by_agent=True, safe=len(agents) == len(entries))


def made_symbolic(before: Stamp, after: Stamp, evidence: Evidence, own: Collection[str]) -> Iterator[Finding]:
    """Refs that came to stand for another one, or no longer do: whoever writes to such a ref writes elsewhere."""
    for name in sorted(before.symbolic.keys() | after.symbolic.keys()):
        was, now = before.symbolic.get(name, ""), after.symbolic.get(name, "")
        ours, leads_to_ours = (is_ours(ref, evidence, own) for ref in (name, now))
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


def is_ours(ref: str, evidence: Evidence, own: Collection[str]) -> bool:
    return ref in own or ref.startswith(OURS) or bool(evidence.prefix and ref.startswith(evidence.prefix))


def _last_own(name: str, target: str, before: Stamp, evidence: Evidence) -> Oid:
    """What a ref of ours held itself, last of all: what its log says since, else what it held before."""
    old = "" if name in before.symbolic else before.refs.get(name, "")
    entries = evidence.entries(name, old) if old else ()
    # Git notes, without a word, where a ref led to when it was made symbolic.
    made = (entry.old for entry in reversed(entries) if not entry.message and entry.new == before.refs.get(target))
    return next(made, entries[-1].new if entries else old)


def _names_ref(tools: Sequence[ToolUsed], ref: str) -> bool:
    told = any(tool.tool == "move_ref" and tool.path == ref for tool in tools)
    return told or any(one.moves(ref) for one in commands(tools))
