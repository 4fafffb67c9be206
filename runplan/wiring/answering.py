"""Answers what callers ask the daemon for; whatever takes time is answered when it is done."""

from __future__ import annotations

import functools
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Protocol

from runplan.adapters.control.server import unexpected
from runplan.app.desk import Accepted
from runplan.app.holding import Errand
from runplan.app.lending import nothing
from runplan.core.control import Refusal
from runplan.core.errors import Exit, NotFound, RunplanError, Unreachable, UsageError
from runplan.core.events import Approved, Rejected, RunStarted
from runplan.core.eventtext import from_json, name_of, to_json
from runplan.core.quickclass import dataclass
from runplan.core.rows import ScheduleRow, Wish
from runplan.core.times import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from runplan.app.daemon import Daemon
    from runplan.app.keeper import Made
    from runplan.app.lending import Lend
    from runplan.core.control import Request
    from runplan.core.events import Fact
    from runplan.core.run import RunState
    from runplan.ports import Clock
    from runplan.wiring.desks import Environments


class Caller(Protocol):
    """Whoever asks; to be spoken to in the daemon's main thread only."""

    @property
    def gone(self) -> bool: ...

    def answer(self, fields: Mapping[str, Any]) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...

    def tell(self, event: Mapping[str, Any]) -> None: ...


class Household(Protocol):
    """What the daemon's main thread does besides: its end, its settings, what it remembers and measures."""

    def post(self, task: Callable[[], None]) -> None:
        """Let something be done in the main thread; may be called from any."""
        ...

    def remember(self, root: str) -> None:
        """Know the repository across restarts; refused where there is none."""
        ...

    def metrics(self) -> str: ...

    def hand_over(self) -> None:
        """Drain, and end."""
        ...

    def reload(self, *, anew: bool) -> None:
        """Go by the settings as they are now; `anew`: also those whose files look the same."""
        ...

    @property
    def refusal(self) -> str:
        """Why nothing new is begun; "" while it is."""
        ...

    def about(self) -> Mapping[str, Any]:
        """What `status` tells besides."""
        ...


#: What would begin something.
BEGINNING = ("start", "approve", "reject", "retry", "now", "resume")
#: What works a run that the caller describes.
STARTING = ("start", "approve", "reject", "retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Who is told what happens in a run."""

    caller: Caller
    root: str
    plan: str
    run: str  #: "" for whichever the plan has

    def means(self, root: str, plan: str, run: str) -> bool:
        return (self.root, self.plan) == (root, plan) and self.run in ("", run)


class Answering:
    """The verbs of the protocol."""

    def __init__(self, daemon: Daemon, household: Household, *, environments: Environments, clock: Clock) -> None:
        self._daemon = daemon
        self._household = household
        self._post = household.post
        self._environments = environments
        self._clock = clock
        self._followers: list[Follower] = []

    def take(self, request: Request, caller: Caller) -> Mapping[str, Any] | None:
        """The answer; None when it comes later."""
        self._household.reload(anew=request.verb == "reload")
        if request.verb in BEGINNING and (why := self._household.refusal):
            raise Unreachable(why)
        match request.verb:
            case "metrics":
                return {"text": self._household.metrics()}
            case "status":
                turns = self._daemon.turns.now
                lines = {"working": turns.working, "queued": turns.waiting}
                closed = [asdict(one) for one in self._daemon.closed]
                return {"repositories": list(self._daemon.roots), "closed": closed, **lines, **self._household.about()}
            case "follow":
                run = str(request.fields.get("run") or "")
                self._follow(Follower(caller=caller, root=self._root(request), plan=_text(request, "plan"), run=run))
                return None
            case "drain":
                self._post(self._household.hand_over)
                return {}
            case "reload":
                return {}
            case _:
                self._order(request, caller)
                return None

    def _order(self, request: Request, caller: Caller) -> None:
        root = self._root(request)
        keeper = self._daemon.keeper(root)
        plan = request.fields.get("plan")
        by = str(request.fields.get("by") or "a person")
        match request.verb:
            case verb if verb in STARTING:
                self._start(root, request, caller)
            case "now":
                self._keep_environment(root, request)
                self._later(keeper.fire_now(_text(request, "plan")), caller, _begun_or_none)
            case "stop":
                wish = Wish(plan=str(plan) if plan else "", by=by)
                self._later(keeper.want(wish), caller, lambda told: {"stopped": told})
            case "pause" | "resume" as what:
                self._keep_environment(root, request)
                wish = Wish(plan=_text(request, "plan"), by=by, what=what)
                self._later(keeper.want(wish), caller, lambda told: {"done": bool(told), "told": told})
            case verb:
                raise UsageError(f"{verb} cannot be asked of the daemon")

    def _root(self, request: Request) -> str:
        """Whose repository is meant; one that nobody has asked for yet has to be there."""
        root = _text(request, "root")
        if request.verb in STARTING or root not in self._daemon.roots:
            self._household.remember(root)
        return root

    def _start(self, root: str, request: Request, caller: Caller) -> None:
        started = from_json("RunStarted", _text(request, "started"))
        if not isinstance(started, RunStarted):
            raise UsageError("start: there is nothing to start in what was sent")
        lend = self._lend(root, request)
        started = replace(started, daemon=True, needs=tuple(sorted(request.fields.get("needs") or ())))
        keeper = self._daemon.keeper(root)
        shape: Callable[[Any], Mapping[str, Any]] = _begun
        if every := request.fields.get("every"):
            row = ScheduleRow(
                plan=started.plan,
                spec=str(every),
                zone=str(request.fields.get("zone") or "UTC"),
                misfire=str(request.fields.get("misfire") or "run-once"),
                errand=to_json(replace(started, settings="")),
                anchor=iso(self._clock.now()),
                made=iso(self._clock.now()),
                given=",".join(str(name) for name in request.fields.get("given") or ()),
            )
            made = keeper.schedule(row, lend)
            if not request.fields.get("now"):
                self._later(made, caller, lambda one: {"scheduled": iso(one.first), "instead": one.instead})
                return
            shape = functools.partial(_begun_and_scheduled, made)
        answer, again = _answer(request.fields.get("answer")), bool(request.fields.get("again"))
        errand = Errand(started=started, answer=answer, fired=bool(every), again=again)
        self._later(keeper.begin(errand, lend), caller, shape)

    def _lend(self, root: str, request: Request) -> Lend:
        """What the caller sent is for the run it asks for; who only answers brings it to the one that waits."""
        if request.verb != "start" or request.fields.get("answer"):
            self._keep_environment(root, request)
            return nothing
        plan, sent = _text(request, "plan"), _environment(request)
        return lambda anew: self._environments.lend(root, plan, sent, anew=anew)

    def _keep_environment(self, root: str, request: Request) -> None:
        self._environments.keep(root, str(request.fields.get("plan") or ""), _environment(request), anew=False)

    def _later(self, future: Future[Any], caller: Caller, shape: Callable[[Any], Mapping[str, Any]]) -> None:
        def reply() -> None:
            if caller.gone:
                return
            error = future.exception()
            if isinstance(error, RunplanError):
                caller.refuse(Refusal(error=str(error), exit=error.exit))
            elif error is not None:
                caller.refuse(Refusal(error=unexpected(error), exit=Exit.UNREACHABLE))
            else:
                self._say(caller, shape, future.result())

        future.add_done_callback(lambda _: self._post(reply))

    def _say(self, caller: Caller, shape: Callable[[Any], Mapping[str, Any]], result: Any) -> None:
        try:
            caller.answer(shape(result))
        except RunplanError as error:
            caller.refuse(Refusal(error=str(error), exit=error.exit))

    # --- followers ------------------------------------------------------------------------------------------

    def _follow(self, follower: Follower) -> None:
        """Until the run is over; it may be so already, as it did not wait for anybody to follow it."""
        self._followers.append(follower)

        def known(goes_on: Future[bool]) -> None:
            if goes_on.exception() is not None or not goes_on.result():
                self._post(lambda: self._dismiss([follower], {"outcome": "waiting"}))

        self._daemon.keeper(follower.root).goes_on(follower.plan, follower.run).add_done_callback(known)

    def told(self, root: str, plan: str, run: str, fact: Fact) -> None:
        """Something happened in a run; called in any thread."""
        fields = {"plan": plan, "type": name_of(fact), "body": to_json(fact)}
        self._post(lambda: self._tell(root, plan, run, fields))

    def over(self, root: str, plan: str, run: str, state: RunState | None) -> None:
        """A run has ended, or waits for a person: whoever followed it need not wait any longer."""
        outcome = state.ended.outcome if state is not None and state.ended is not None else "waiting"
        fields = {"run": run, "outcome": outcome}
        self._post(lambda: self._dismiss([one for one in self._followers if one.means(root, plan, run)], fields))

    def _tell(self, root: str, plan: str, run: str, fields: Mapping[str, Any]) -> None:
        self._followers = [one for one in self._followers if not one.caller.gone]
        for one in self._followers:
            if one.means(root, plan, run):
                one.caller.tell(fields)

    def _dismiss(self, followers: Sequence[Follower], fields: Mapping[str, Any]) -> None:
        for one in followers:
            if one in self._followers:
                self._followers.remove(one)
                if not one.caller.gone:
                    one.caller.answer(fields)


def _text(request: Request, name: str) -> str:
    found = request.fields.get(name)
    if not isinstance(found, str) or not found:
        raise UsageError(f"{request.verb}: {name} is missing")
    return found


def _environment(request: Request) -> dict[str, str]:
    sent = request.fields.get("env")
    return {str(name): str(value) for name, value in sent.items()} if isinstance(sent, dict) else {}


def _answer(sent: object) -> Approved | Rejected | None:
    match sent:
        case {"approve": str(tree)}:
            return Approved(tree=tree)
        case {"reject": str(tree), **rest}:
            return Rejected(tree=tree, why=str(rest.get("why", "")))
        case _:
            return None


def _begun(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Accepted):
        return {"run": answer.run, "fresh": answer.fresh, "warnings": list(answer.warnings)}
    return {"declined": answer.owner, "why": answer.why, "readable": answer.readable}


def _begun_and_scheduled(made: Future[Made], answer: Any) -> dict[str, Any]:
    """The schedule was made first."""
    if (error := made.exception()) is not None:
        raise Unreachable(f"begun, but there is no schedule: {error}")
    return {"first": iso(made.result().first), "instead": made.result().instead, **_begun(answer)}


def _begun_or_none(answer: Any) -> dict[str, Any]:
    if answer is None:
        raise NotFound("the plan has no schedule any more; make one: runplan start PLAN auto every 4h")
    return _begun(answer)
