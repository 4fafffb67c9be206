"""Hands what a person asks for to the daemon, which is started where none runs."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from runplan.adapters import processes, singleton
from runplan.adapters.callerenv import for_a_run, needed_by_a_run
from runplan.adapters.control import reaching
from runplan.adapters.control.client import NotRunning
from runplan.adapters.launching import reach
from runplan.adapters.places import state_directory
from runplan.adapters.settings import environment, variables
from runplan.core.events import Approved, Rejected
from runplan.core.eventtext import recorded_as, to_json
from runplan.core.quickclass import dataclass
from runplan.landing import modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from runplan.app.holding import Errand
    from runplan.core.events import Fact
    from runplan.wiring.here import Here


#: What a schedule is timed by, and how a caller sets it over the files.
TIMED = {"zone": "RUNPLAN_RUN_TIMEZONE", "misfire": "RUNPLAN_RUN_MISFIRE"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When it is to be worked, besides now."""

    every: str  #: canonical, without `every`
    now: bool  #: at once as well


def hand_over(
    at: Here, errand: Errand, timing: Timing | None = None, *, notice: Callable[[], None], say: Callable[[str], None]
) -> Mapping[str, Any]:
    """Ask the daemon to work the errand; what it answers. `notice` is called when that takes long.

    Whoever has to wait for the daemon itself is told so by `say`.
    """
    agents = at.settings.agents
    checks = at.settings.tests.env
    sent = for_a_run(at.env, agents, checks=checks)
    needed = needed_by_a_run(sent, agents, pushes=modes.uses_remote(errand.started.landing), checks=checks)
    fields: dict[str, Any] = {
        "root": str(at.repository.root),
        "plan": errand.started.plan,
        "started": to_json(errand.started),
        "env": sent,
        "needs": list(needed),
        "answer": _answer(errand.answer),
        "again": errand.again,
    }
    if timing is not None:
        run, set_by = at.settings.run, variables(at.env)
        given = [name for name, variable in TIMED.items() if variable in set_by]
        fields |= {"every": timing.every, "now": timing.now, "zone": run.timezone, "misfire": run.misfire}
        fields["given"] = given
    with reach(at.env, say=say) as client:
        return client.await_answer("start", notice, **fields)


def ask(at: Here, verb: str, plan: str | None, *, by: str = "") -> Mapping[str, Any] | None:
    """Tell the daemon to stop or to pause a plan of this repository, which it answers before long; None without one."""
    try:
        with reaching.reached(at.env) as client:
            return client.call(verb, root=str(at.repository.root), plan=plan, by=by)
    except NotRunning:
        return None


def resume(at: Here, plan: str, *, say: Callable[[str], None]) -> Mapping[str, Any]:
    """Have the daemon go on with a plan, by the keys of this caller."""
    with reach(at.env, say=say) as client:
        return client.call("resume", **_of_caller(at, plan))


def now(at: Here, plan: str, *, notice: Callable[[], None], say: Callable[[str], None]) -> Mapping[str, Any]:
    """Have the daemon fire the schedule of a plan, with the keys of this caller."""
    with reach(at.env, say=say) as client:
        return client.await_answer("now", notice, **_of_caller(at, plan))


def _of_caller(at: Here, plan: str) -> dict[str, Any]:
    env = for_a_run(at.env, at.settings.agents, checks=at.settings.tests.env)
    return {"root": str(at.repository.root), "plan": plan, "env": env}


def ring(at: Here) -> None:
    """Let the daemon look at what is noted for it, as soon as it can; one that is stopped, when it goes on."""
    reaching.ring(at.env)


def follow(at: Here, plan: str, run: str) -> Iterator[Fact]:
    """The events of that run of the plan, until it ends or waits for a person."""
    with reach(at.env) as client:
        for told in client.stream("follow", root=str(at.repository.root), plan=plan, run=run):
            fact = recorded_as(str(told.get("type")), str(told.get("body")))
            if fact is not None:
                yield fact


def end_politely(owner: str, *, force: bool) -> bool:
    """Ask the process that owns a plan to end, as Ctrl-C does; False for one that is gone, the daemon and this one."""
    daemon = singleton.holder(state_directory(environment()))
    process = processes.living(owner)
    own = owner == processes.identity(os.getpid())  # a stop owns the runs that it ends itself
    if process is None or own or (daemon is not None and daemon.identity == owner):
        return False
    # Of two the second ends the agents; the same one twice could be heard as one.
    for number in (signal.SIGKILL,) if force else (signal.SIGTERM, signal.SIGINT):
        processes.send(process, number)
    return True


def _answer(answer: Approved | Rejected | None) -> dict[str, str] | None:
    match answer:
        case Approved(tree=tree):
            return {"approve": tree}
        case Rejected(tree=tree, why=why):
            return {"reject": tree, "why": why}
        case None:
            return None
