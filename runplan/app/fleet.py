"""The fleet of the user: set up its database, read its state, take a host out and back in, be a host."""

import re
import socket
from collections.abc import Collection, Sequence
from pathlib import Path

from runplan import __version__
from runplan.adapters.configuration.places import user_file
from runplan.adapters.store import hosts
from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.heartbeat import WorkerRow
from runplan.adapters.store.location import FleetLocation, hide_password
from runplan.adapters.store.postgres import initialize, list_fleet
from runplan.app.operations.model import Caller
from runplan.domain.errors import RefusedEarly, UsageError
from runplan.domain.fleet import MAX_LABELS, FleetState
from runplan.domain.plan.body import HOST_LABEL
from runplan.engine.loop.context import remote_url
from runplan.hosts.fleet.worker import work_on_plans


def read_fleet(caller: Caller) -> FleetState:
    return hosts.read_fleet(require_dsn(caller))


def set_draining(caller: Caller, host: str, *, draining: bool) -> None:
    caller.refuse_to_agents(f"fleet {'drain' if draining else 'up'}")
    hosts.set_draining(require_dsn(caller), host, draining=draining)


def forget_host(caller: Caller, host: str) -> None:
    caller.refuse_to_agents("fleet forget")
    hosts.forget_host(require_dsn(caller), host)


def set_up_fleet(caller: Caller, urls: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Create the tables, and add the repositories, or that of this directory; the database, and the roles by URL."""
    caller.refuse_to_agents("fleet init")
    dsn = require_dsn(caller)
    remotes = [str(Path(url).resolve()) if Path(url).exists() else url for url in urls]
    if not remotes:
        with caller.open() as context:
            remotes = [remote_url(context, context.settings)]
            if not remotes[0]:
                missing = f"there is no remote {context.settings.run.remote} here"
                raise RefusedEarly(f"{missing}; name the repository: runplan fleet init --repository URL")
    initialize(dsn, remotes)
    return hide_password(dsn), {known.url: FleetLocation(dsn, known.url).role for known in list_fleet(dsn)}


def work(caller: Caller, host: str, labels: Collection[str], slots: int | None) -> None:
    """Work on plans of the fleet until the process is ended; `host` is by default the name of the machine."""
    caller.refuse_to_agents("worker")
    require_dsn(caller)
    slots = caller.user_settings.daemon.max_parallel if slots is None else slots
    host = host or socket.gethostname()
    if slots < 1 or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host):
        raise UsageError("worker: --slots is at least 1, and --host has letters, digits, '.', '_' and '-' only")
    if len(labels) > MAX_LABELS or not all(re.fullmatch(HOST_LABEL, label) for label in labels):
        raise UsageError(f"worker: --labels are at most {MAX_LABELS} words of letters, digits, '.', '_' and '-'")
    row = WorkerRow(owner=name_owner(host), host=host, labels=sorted(labels), slots=slots, version=__version__)
    work_on_plans(caller.env, row, caller.say)


def require_dsn(caller: Caller) -> str:
    if dsn := caller.user_settings.fleet.dsn:
        return dsn
    place = user_file(caller.env)
    raise RefusedEarly(f"fleet.dsn is not set; set it in {place} or RUNPLAN_FLEET_DSN, to postgresql://…")
