"""A worker that gets no thread is tried again; it is not lost."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from runplan.clock import SystemClock
from runplan.daemon.logs import open_log
from runplan.daemon.notify import Notifier
from runplan.daemon.observer import Noticed, Observer
from runplan.daemon.slots import HostSlots, SlotTable, Timers
from runplan.daemon.worker import DaemonWorker, Services
from runplan.errors import Unreachable
from runplan.settings.schema import NotifySettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGER_THAN_ANY = 1 << 46


@contextmanager
def without_threads() -> Iterator[None]:
    """No thread can be started: the system has no room for so large a stack."""
    threading.stack_size(LARGER_THAN_ANY)
    try:
        yield
    finally:
        threading.stack_size(0)


def test_a_worker_that_gets_no_thread_is_tried_again(tmp_path: Path) -> None:
    opened = threading.Event()

    def open_up(*_: object) -> NoReturn:
        opened.set()
        raise Unreachable("away")

    log, timers = open_log(tmp_path / "daemon.log"), Timers()
    services = Services(
        open_up=open_up,
        environment={},
        timers=timers,
        clock=SystemClock(),
        slots=HostSlots(SlotTable(host=1, repository=1), lambda _: None),
        observer=Observer(log, Notifier(NotifySettings(), log), Noticed(tmp_path)),
        may_begin=lambda: True,
        rested=lambda: None,
    )
    worker = DaemonWorker(str(tmp_path), tmp_path, services)
    with without_threads():
        worker.wake()
    assert (worker.at_rest, opened.is_set()) == (True, False)
    assert worker.trouble is not None
    assert worker.trouble.error.startswith("can't start new thread; end some processes")
    timers.look_again()
    assert opened.wait(30)
    assert worker.close(30)
    timers.close()
    log.close()
