"""A person is told once of each wait, whichever daemon sees it."""

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import Notice
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run import events as e
from runplan.domain.run.decide import decide
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role, RunStatus
from runplan.domain.run.rows import RunRow
from runplan.domain.run.state import fold
from runplan.hosts.background import BackgroundHost
from runplan.hosts.daemon.state import Known
from tests.support.builders import BUILT, CHOSEN, LEASED, SKIPPED, TAKEN, started

PLAN, NOW = "plans/X.md", "2026-03-01T12:00:00Z"
WAITS: tuple[e.Event, ...] = (
    *(started(auto=False, test_command=""), CHOSEN, LEASED),
    e.DispatchStarted(id="d1", role=Role.IMPLEMENT, agent="robot", cycle=1),
    e.DispatchEnded(id="d1", role=Role.IMPLEMENT, ending=Ending.EXITED, code=0),
    *(TAKEN, BUILT, SKIPPED),
    e.VerdictGiven(tree="t1", patch="p", passed=True, items=(("W1", True, "y"),), agent="robot"),
    e.ApprovalAsked(tree="t1"),
)


class Log:
    def __getattr__(self, _name: str) -> Any:
        return lambda *_, **__: self


def test_a_change_that_waits_and_a_stopped_owner_of_a_run_are_told_once(tmp_path: Path) -> None:
    sent: list[Notice] = []
    state = fold(WAITS)
    row = RunRow(id="r1", plan=PLAN, started=NOW, state=RunStatus.RUNNING, since=NOW, landing="cherry-pick")
    with closing(SqliteStore(tmp_path)) as store:
        for _ in range(2):  # the second daemon finds the wait of the first
            notifier = SimpleNamespace(send=sent.append)
            services: Any = SimpleNamespace(log=Log(), notifier=notifier, links=LinkMaker("", tmp_path), environment={})
            host = BackgroundHost(Known(common=str(tmp_path), root=str(tmp_path)), services)
            host.owner.repository = cast("Any", SimpleNamespace(store=store))
            for _ in range(2):
                host.tell_wait(PLAN, "r1", state, decide(state))
            host.tell_stopped_owner("7:1:boot", row)
    told = [("waiting", "approval", "runplan diff plans/X.md 1"), ("waiting", "claim", "kill -CONT 7")]
    assert [(notice.kind, notice.reason, notice.command) for notice in sent] == told
