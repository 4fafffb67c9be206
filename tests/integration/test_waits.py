"""Every wait is in the store with its reason and its end; `status` shows it, and a person is notified once."""

import functools
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runplan.adapters import processes
from runplan.adapters.clock import SystemClock
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice
from runplan.adapters.store.journal import Journal
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run import events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role, WaitKind
from runplan.domain.run.rows import WaitRow
from runplan.hosts.background import Reporter
from runplan.hosts.daemon.state import Known
from runplan.hosts.foreground import ForegroundHost, Interruption
from tests.support.builders import BUILT, CHOSEN, LEASED, SKIPPED, TAKEN, started
from tests.support.cli import a_project

PLAN, RUN = "plans/X.md", "r1"
LATER = "2999-01-01T00:00:00Z"
BEGUN: tuple[e.Event, ...] = (CHOSEN, LEASED)
PROVEN: tuple[e.Event, ...] = (
    *BEGUN,
    e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="robot", cycle=1),
    e.DispatchEnded(id="d1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0),
    TAKEN,
    BUILT,
    SKIPPED,
    e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "y"),), agent="robot"),
)

LIMIT = e.Paused(kind=WaitKind.LIMIT, until=LATER, agent="robot", words="about a limit")
CLAIM = WaitRow(kind=WaitKind.CLAIM, plan=PLAN, about="about a claim", since="2026-01-01T00:00:00Z", wake=LATER)
#: waiting_for -> what happened, `about`, `wake`, words of the text, and whether a person is notified
WAITS: dict[str, tuple[Sequence[e.Event] | WaitRow, str | None, str | None, str, bool]] = {
    "approval": ((*PROVEN, e.ApprovalAsked(tree="t1")), None, None, "for approval", True),
    "checkout": ((*PROVEN, e.LandingHeld(why="a.txt is edited")), "a.txt is edited", None, "a.txt is", True),
    "limit": ((*BEGUN, LIMIT), "robot usage limit", LATER, "resets 2999-01-01", False),
    "claim": (CLAIM, "about a claim", LATER, "The daemon waits: about a claim", True),
}


class Notifier:
    def __init__(self) -> None:
        self.sent: list[Notice] = []

    def send(self, notice: Notice) -> None:
        self.sent.append(notice)


class Log:
    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: self


@pytest.mark.parametrize("kind", WAITS)
def test_a_wait_has_a_reason_and_an_end_and_is_notified_once(tmp_path: Path, kind: str) -> None:
    happened, about, wake, text, notified = WAITS[kind]
    project, notifier = a_project(tmp_path, "1"), Notifier()
    root, me = str(project.path), processes.identity(os.getpid()) or ""
    with closing(SqliteStore(project.path / ".git/runplan")) as store:
        for _ in range(2):  # the second daemon finds the wait of the first
            links = LinkMaker("", tmp_path)
            owner = ForegroundHost(Interruption(0.0), {}).owner
            owner.repository = cast("Any", SimpleNamespace(store=store))
            services: Any = SimpleNamespace(log=Log(), notifier=notifier, links=links)
            reporter = Reporter(Known(common=str(store.path.parent.parent), root=root), owner, services)
            on_event = functools.partial(reporter.tell, PLAN, RUN)
            with store.transaction():
                fence = store.set_claim("plan", PLAN, run=RUN, owner=me)
            journal = Journal(store, SystemClock(), run=RUN, plan=PLAN, fence=fence, on_event=on_event)
            if journal.state.started is None:
                events = BEGUN if isinstance(happened, WaitRow) else happened
                journal.append(started(auto=kind != "approval", test_command=""), *events)
            if isinstance(happened, WaitRow):
                store.put_wait(happened)
            decision = decide(journal.state)
            if decision.waiting:
                reporter.tell_wait(PLAN, RUN, journal.state, decision)
            if kind == "claim":
                reporter.tell_stopped_owner(me, store.list_runs()[0])
        run = project.runplan("status", "X", "--json").json["run"]
        assert (run["waiting_for"], run["about"], run["wake"]) == (kind, about, wake)
        assert text in project.runplan("status", "X").out
        assert [(notice.kind, notice.reason) for notice in notifier.sent] == [("waiting", kind)] * notified
        assert all(notice.command for notice in notifier.sent)
