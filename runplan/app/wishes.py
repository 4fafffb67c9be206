"""What a person wants of a plan that is there: answered before long, whatever step the desk is at, and done in the end.

A desk takes one step after the other, and one that asks a silent remote takes its time. What cannot be done before long
is noted beside the journal, by another thread, or by the caller when no thread of the daemon answers: the desk does it
after that step, or the next daemon does. Where nothing can be written, as on a full disk, a stop ends the agents all
the same and is kept in memory: until it can be noted, nothing else is done at that desk.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from runplan.core.errors import Fenced, RunplanError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from runplan.app.desk import Desk
    from runplan.app.station import Opened
    from runplan.core.rows import Wish

LATE_S = 3.0  #: a person waits so long
_SOON = {"stop": "is stopped", "pause": "is paused", "resume": "goes on"}


class Leaving(Unreachable):
    """The daemon ends; nothing more is done at its desks."""


class Beside(Protocol):
    """What can be done for a repository beside its desk; may be called from any thread."""

    def note(self, root: str, wish: Wish) -> None:
        """Have it done by whoever opens a desk there next."""
        ...

    def end_agents(self, root: str, plan: str = "") -> list[str]:
        """End every process of the daemon's runs, or of its run of one plan; says of which plans there were any.

        Whoever goes on with them sees that they have ended.
        """
        ...


class Noted(Protocol):
    """What is noted, for the thread of the desk."""

    def all(self) -> list[Wish]: ...

    def note(self, wish: Wish) -> Wish: ...

    def drop(self, wish: Wish) -> None: ...


class Granting(Protocol):
    """Who does at a desk what is wanted."""

    def grant(self, wish: Wish, desk: Desk, opened: Opened) -> list[str]:
        """What was done, a sentence each; none where there was nothing to do it with."""
        ...

    def failed(self, wish: Wish, error: RunplanError) -> None:
        """What was noted cannot be done, and nobody waits to hear why."""
        ...


class Wished:
    """What people want in one repository."""

    def __init__(
        self,
        root: str,
        order: Callable[[Callable[[Desk, Opened], list[str]]], Future[list[str]]],
        *,
        beside: Beside,
        granting: Granting,
    ) -> None:
        self._root = root
        self._order = order
        self._beside = beside
        self._granting = granting
        self._kept: list[Wish] = []  #: stops that could not be noted

    @property
    def keeps(self) -> bool:
        """Whether something is wanted that could not be noted yet."""
        return bool(self._kept)

    def insist(self, wish: Wish) -> Future[list[str]]:
        """Have it done at the desk; what was done, or that it is as soon as it can be."""
        asked = _Asked(wish, note=lambda: self._beside.note(self._root, wish), unrecorded=self._unrecorded)

        def do(desk: Desk, opened: Opened) -> list[str]:
            asked.begin()
            if asked.noted:
                self.grant_noted(desk, opened)  # unless another word has come since
                return []
            return self._granting.grant(wish, desk, opened)

        return asked.follow(self._order(do))

    def grant_noted(self, desk: Desk, opened: Opened) -> None:
        """Do what was wanted while nobody could; a run in other hands is stopped when it is in ours.

        A stop that cannot be recorded is trouble of the whole desk: nothing goes on there as if nobody had asked.
        """
        while self._kept:
            opened.wishes.note(self._kept[0])
            del self._kept[0]
        wishes = opened.wishes.all()
        if not wishes:
            return
        foreign = {started.plan for started in opened.left()} - {*desk.plans}
        for wish in wishes:
            try:
                self._granting.grant(wish, desk, opened)
            except RunplanError as error:
                if _is_unrecorded(wish, error):
                    raise
                self._granting.failed(wish, error)
            if wish.plan in foreign:
                continue
            for plan in () if wish.plan else foreign:  # not all that is begun here until then
                opened.wishes.note(replace(wish, plan=plan))
            opened.wishes.drop(wish)

    def _unrecorded(self, wish: Wish, why: Exception) -> Unreachable:
        """Stop what can be stopped without a record, and keep in mind what is to be recorded; what to say of it."""
        if wish not in self._kept:
            self._kept.append(wish)
        try:
            ended = self._beside.end_agents(self._root, wish.plan)
            told = [f"the agent at work on {plan} was ended" for plan in ended]
        except (RunplanError, OSError) as error:
            told = [f"its agents could not be ended: {error}"]
        what = f"that {wish.plan or 'everything here'} be stopped could not be recorded"
        return Unreachable(
            "; ".join([*told, f"{what}, which this daemon does as soon as it can: {without_start(str(why))}"])
        )


def without_start(words: str) -> str:
    """What is told of a journal that cannot be written, for whoever wants nothing to start."""
    return words.removesuffix(", then start again")


def _is_unrecorded(wish: Wish, error: BaseException | None) -> bool:
    """Whether it is a stop that holds, although it could not be recorded; not of a run that others have taken over."""
    return wish.what == "stop" and isinstance(error, Unreachable) and not isinstance(error, Fenced)


class _Asked:
    """One wish on its way to the desk: it is begun there, or noted, and never noted after it was begun."""

    def __init__(
        self, wish: Wish, *, note: Callable[[], None], unrecorded: Callable[[Wish, Exception], Unreachable]
    ) -> None:
        self._wish = wish
        self._note = note
        self._unrecorded = unrecorded
        self._lock = threading.Lock()
        self._begun = False
        self.noted = False
        self._answer: Future[list[str]] = Future()
        self._timer = threading.Timer(LATE_S, self._late)
        self._timer.daemon = True

    def begin(self) -> None:
        """The desk is at it now."""
        with self._lock:
            self._begun = True

    def follow(self, order: Future[list[str]]) -> Future[list[str]]:
        """Wait for the desk, but not for long."""
        self._timer.start()
        order.add_done_callback(self._settled)
        return self._answer

    def _settled(self, order: Future[list[str]]) -> None:
        self._timer.cancel()
        error = order.exception()
        if isinstance(error, Leaving):
            self._late()
            return
        with self._lock:
            if self._answer.done():
                return
            self._begun = True  # or given up: nothing is noted any more
        if isinstance(error, Unreachable) and _is_unrecorded(self._wish, error):
            error = self._unrecorded(self._wish, error)
        if error is not None:
            self._answer.set_exception(error)
        else:
            self._answer.set_result(order.result())

    def _late(self) -> None:
        with self._lock:
            if self._begun or self._answer.done():
                return
            try:
                self._note()
            except (RunplanError, OSError) as error:
                self._answer.set_exception(self._unnoted(error))
                return
            self.noted = True
            what = f"{self._wish.plan or 'everything here'} {_SOON[self._wish.what]}"
            self._answer.set_result(
                [f"{what} as soon as the step that is being taken is over: git or a remote takes long"]
            )

    def _unnoted(self, error: Exception) -> Unreachable:
        if self._wish.what != "stop":
            told = f"the daemon is at a step that takes long, and this could not be noted for later: {error}"
            return Unreachable(told)
        self.noted = True  # as good as that: it is kept
        return self._unrecorded(self._wish, error)
