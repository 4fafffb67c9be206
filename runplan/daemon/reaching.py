"""Reaches the daemon that lives, also when its socket was taken away: as a logout does with what belongs to it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from runplan.adapters import processes
from runplan.adapters.places import state_directory
from runplan.adapters.processtable import this_table
from runplan.daemon import singleton
from runplan.daemon.client import NOBODY, STOPPED_S, Client, NotRunning, Silent, find_socket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from runplan.daemon.singleton import Holder

LISTENS_S = 10.0  #: a daemon that is well listens anew within that, and one that was just ending has ended
LOOK_AGAIN_S = 0.02


def reached(env: Mapping[str, str]) -> Client:
    """A connection to the daemon; whoever lives and is not to be found is asked to listen anew."""
    try:
        return Client(find_socket(env))
    except NotRunning:
        if not ring(env):
            raise
    began = time.monotonic()
    while (found := singleton.holder(state_directory(env))) is not None:
        try:
            return Client(find_socket(env))
        except NotRunning as error:
            stopped = this_table().stopped(found.pid)
            waited_s = time.monotonic() - began
            if waited_s >= (STOPPED_S if stopped else LISTENS_S):
                raise _silent(found, waited_s, stopped=stopped) from error
        time.sleep(LOOK_AGAIN_S)
    raise NotRunning(NOBODY)


def ring(env: Mapping[str, str]) -> bool:
    """Let the daemon look up as soon as it can, at its socket and at what is noted for it; False without one."""
    found = singleton.holder(state_directory(env))
    process = processes.living(found.identity) if found else None
    if process is not None:
        processes.send(process, signal.SIGHUP)
    return process is not None


def _silent(found: Holder, waited_s: float, *, stopped: bool) -> Silent:
    if stopped:
        helps = f"it is stopped; let it go on: kill -CONT {found.pid}"
    elif found.draining:
        helps = "it is about to end; ask again when it has"
    else:
        helps = f"look at its log, or end it: kill {found.pid}"
    return Silent(f"the daemon (process {found.pid}) has not listened at {found.socket} for {waited_s:.0f} s; {helps}")
