"""What the verbs that speak with the daemon share: what is sent, what is told, and which exit code comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from runplan.cli import carrying, progress
from runplan.core import options as words_of
from runplan.core.commands import command
from runplan.core.errors import Exit, Interrupted
from runplan.core.events import Rejected
from runplan.core.schedule import parse, spell
from runplan.core.times import parse_iso, zone
from runplan.wiring import handing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from runplan.app.holding import Errand
    from runplan.core.events import RunStarted
    from runplan.wiring.here import Here


def start(
    at: Here,
    plan_word: str,
    words: Sequence[str],
    *,
    wait: bool,
    again: bool = False,
    like: RunStarted | None = None,
) -> Exit:
    """Hand what the words ask for to the daemon; `again`: as a retry of the plan's last run."""
    asked = words_of.parse_words(words, phases=None)
    timing = None
    if asked.every is not None:
        timing = handing.Timing(every=spell(parse(asked.every)).removeprefix("every "), now=asked.now)
    found = carrying.prepared(at, plan_word, words, like=like)
    if isinstance(found, str):
        progress.say(f"runplan: {found}")
        return Exit.DONE
    at, errand = found
    carrying.admit_agents(at)
    return hand(at, replace(errand, again=again), timing, wait=wait)


def hand(at: Here, errand: Errand, timing: handing.Timing | None = None, *, wait: bool = False) -> Exit:
    """Hand the errand over, and say what came of it."""
    plan = errand.started.plan
    answer = handing.hand_over(at, errand, timing, notice=takes_long, say=waits_for)
    slot = answer.get("scheduled") or answer.get("first")
    if timing is not None and slot is not None:
        first = parse_iso(str(slot)).astimezone(zone(at.settings.run.timezone))
        instead = f" instead of every {answer['instead']}" if answer.get("instead") else ""
        progress.say(f"runplan: {plan} is worked every {timing.every}{instead}, first at {first:%Y-%m-%d %H:%M %Z}")
    if "scheduled" in answer:
        return Exit.DONE
    if answer.get("declined") == "" and timing is not None:
        return left_to_person(answer)
    if answer.get("declined") == "":
        return carrying.over(errand, str(answer["why"]))
    if isinstance(errand.answer, Rejected) and "run" in answer:
        kept = "it ends, and its work is kept on its branch"
        progress.say(f"runplan: {answer['run']} is rejected: {kept}; see: {command('runplan', 'status', plan)}")
    else:
        told_begun(plan, answer)
    if not wait or "declined" in answer:
        return Exit.DONE
    return _follow(at, plan, str(answer["run"]))


def _follow(at: Here, plan: str, run: str) -> Exit:
    """Tell what happens in the run until it ends or waits for a person; who leaves before that leaves it at work."""
    try:
        for event in handing.follow(at, plan, run):
            progress.tell(event)
    except KeyboardInterrupt:
        again, stop = command("runplan", "logs", plan, "-f"), command("runplan", "stop", plan)
        raise Interrupted(f"interrupted; {run} goes on without you, follow it: {again}; end it: {stop}") from None
    return carrying.outcome(at, plan, run)


def waits_for(whom: str) -> None:
    """The daemon that is there cannot be used yet."""
    progress.say(f"runplan: {whom}")


def takes_long() -> None:
    """Who waits is told for what, and need not wait."""
    progress.say(
        "runplan: the daemon is at a step that takes long, with git or a remote; "
        "this is done after it, and also if you leave now (Ctrl-C)"
    )


def left_to_person(answer: Mapping[str, Any]) -> Exit:
    """A firing has met what a person was asked."""
    progress.say(f"runplan: nothing was begun: {answer['why']}")
    return Exit.WAITING


def told_begun(plan: str, answer: Mapping[str, Any]) -> None:
    """What became of a run that was asked for."""
    for words in answer.get("warnings") or ():
        progress.warn(str(words))
    if "declined" in answer:
        progress.say(f"runplan: {plan} is being worked by another process ({answer['declined']}); nothing was changed")
    elif answer.get("fresh"):
        progress.say(f"runplan: accepted as {answer['run']}; follow it: {command('runplan', 'logs', plan, '-f')}")
    else:
        progress.say(f"runplan: {plan} is at work already ({answer['run']}); see: {command('runplan', 'status', plan)}")
