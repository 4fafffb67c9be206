"""Tells what happens while it happens: one line per fact, on standard error."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from runplan.run import events as e
from runplan.run.reasons import describe_pause, percent_full
from runplan.text import plain

if TYPE_CHECKING:
    from runplan.run.events import Event, Fact


def tell(fact: Fact) -> None:
    told = told_of(fact)
    if told:
        say(told)


def warn(told: str) -> None:
    say(f"runplan: warning: {told}")


def say(told: str) -> None:
    """Print it, if anybody listens: a run does not end because a pipe was closed."""
    with contextlib.suppress(OSError, ValueError):
        print(plain(told), file=sys.stderr, flush=True)


def told_of(fact: Fact) -> str:
    """The same for a fact of a lane, every line with the lane's name."""
    if not isinstance(fact, e.LaneFact):
        return sentence(fact)
    return "\n".join(f"[{fact.lane}] {line}" for line in sentence(fact.event).splitlines() if line)


def sentence(event: Event) -> str:
    """What a person is told of an event; "" for what only the journal needs."""
    match event:
        case e.ClaimTaken(took_over=dead) if dead:
            return f"runplan: took the plan over from process {dead.partition(':')[0]}, which has ended"
        case e.PlanRead(choice="next", phase=phase, title=title):
            return f"\nphase {phase}  {title}"
        case e.PlanRead(choice="undo", phase=phase, title=title):
            return f"\nundo phase {phase}  {title}"
        case e.PlanRead(choice="all-done"):
            return "\nevery phase is done; the plan is marked complete"
        case e.LanesChosen(lanes=lanes) if lanes:
            told = ", ".join(f"phase {phase} as [{name}]" for name, phase, _ in lanes)
            return f"\nside by side: {told}"
        case e.Leased(branch=branch, parked=parked):
            kept = f"; the earlier attempt is kept at {parked}" if parked else ""
            return f"  worktree   on branch {branch.removeprefix('refs/heads/')}{kept}"
        case e.DispatchStarted(role=role, agent=agent, despite=despite, again=again):
            told = f" (called on despite its {despite})" if despite else ""
            told += f" (tried once more: {again})" if again else ""
            return f"  {role:<10} {agent or 'runs'} …{told}"
        case e.DispatchEnded(ending="lost", role=role):
            return f"  {role:<10} vanished without a trace"
        case e.Paused(until=until) as pause:
            return f"  waiting    until {until} ({describe_pause(pause)})"
        case e.HandoverArmed(percent=percent, estimated=estimated):
            return f"  context    {percent_full(percent, estimated=estimated)}; a hand-over is prepared"
        case e.HandedOver(number=number, why=why):
            return f"  hand-over  {number}: {why}; a fresh agent goes on"
        case e.WorkTaken(commits=commits, files=files):
            return f"  work       {_count(commits, 'commit')}, {_count(len(files), 'file')}"
        case _:
            return _proof(event) or _ending(event)


def _proof(event: Event) -> str:
    match event:
        case e.BaselineKnown():
            return "  baseline   known"
        case e.GateJudged(answer="skipped", line=line):
            return f"  gate       {line}"
        case e.GateJudged(answer=answer, line=line):
            return f"  gate       {answer}: {line}"
        case e.VerdictGiven(passed=passed, items=items):
            good = sum(1 for _, ok, _ in items if ok)
            told = f"  verdict    {'passed' if passed else 'failed'}: {good} of {_count(len(items), 'item')} proven"
            return "\n".join([told, *(f"             {item}: {why}" for item, ok, why in items if not ok)])
        case e.GuardFound(lines=lines):
            return "\n".join(f"  guard      {line}" for line in lines)
        case e.CandidateBuilt(tree=tree, onto=onto):
            return f"  candidate  tree {tree[:12]} on {onto[:12]}"
        case e.CandidateConflicted(paths=paths):
            return f"  candidate  conflicts in {', '.join(paths)}"
        case _:
            return ""


def _ending(event: Event) -> str:
    match event:
        case e.ApprovalAsked():
            return "  approval   needed before it lands"
        case e.LandingHeld(why=why):
            return f"  landing    waits: {why}"
        case e.LandingMoved(tip=tip):
            return f"  landing    the target moved to {tip[:12]}; building again"
        case e.LandingRefused(why=why):
            return f"  landing    refused: {why}"
        case e.Landed(tip=tip, note=note):
            return f"  landed     {tip[:12]}" + (f"\n             {note}" if note else "")
        case e.PhaseFailed(reason=reason, detail=detail):
            return f"  failed     {reason}: {detail}"
        case _:
            return ""


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
