"""runplan fleet: set up the database of a fleet, show its hosts and its queue, take a host out and back in."""

from __future__ import annotations

import argparse
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

from runplan import __version__
from runplan.adapters.configuration.load import environment, load_user
from runplan.adapters.configuration.places import user_file
from runplan.adapters.store.claims import name_owner
from runplan.adapters.store.heartbeat import WorkerRow
from runplan.adapters.store.hosts import FleetState, Host, read_fleet, set_draining
from runplan.adapters.store.location import FleetLocation, hide_password
from runplan.adapters.store.postgres import initialize, list_fleet
from runplan.domain.errors import Exit, RefusedEarly, UsageError
from runplan.domain.plan.body import HOST_LABEL
from runplan.domain.run.rules.hosts import MAX_LABELS
from runplan.domain.text import as_json, counted, in_words, localized, plain
from runplan.engine.loop.context import open_context, refuse_under_agent, remote_url
from runplan.engine.report.metrics import collect_fleet_samples, metrics_text
from runplan.hosts.fleet.worker import work_on_plans
from runplan.interfaces.cli.show.progress import say


def run_fleet(args: argparse.Namespace) -> Exit:
    if args.action not in ("status", "metrics"):
        refuse_under_agent(f"fleet {args.action}")
    dsn = require_dsn()
    match args.action:
        case "status":
            return _show_status(dsn, args.host, is_json=args.json)
        case "metrics":
            state = read_fleet(dsn)
            stores = {url: FleetLocation(dsn, url) for url in state.repositories}
            print(metrics_text(stores, now=datetime.now(UTC), process=collect_fleet_samples(state)), end="")
        case "drain" | "up":
            if args.host is None:
                raise UsageError(f"fleet {args.action}: name the host; see: runplan fleet status")
            set_draining(dsn, args.host, draining=args.action == "drain")
            words = "finishes its agents and takes no plans" if args.action == "drain" else "takes plans"
            print(f"{args.host} {words}")
        case _:
            given = [str(Path(url).resolve()) if Path(url).exists() else url for url in args.repository or ()]
            initialize(dsn, given or [_remote_here()])
            print(f"The database {hide_password(dsn)} is set up, with the repositories:")
            print("".join(f"  {repository.url}\n" for repository in list_fleet(dsn)), end="")
    return Exit.DONE


def run_worker(args: argparse.Namespace) -> None:
    refuse_under_agent("worker")
    require_dsn()
    env = environment()
    slots = load_user(env).daemon.max_parallel if args.slots is None else args.slots
    labels = sorted({label.strip().lower() for label in args.labels.split(",")} - {""})
    host = args.host or socket.gethostname()
    if slots < 1 or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", host):
        raise UsageError("worker: --slots is at least 1, and --host has letters, digits, '.', '_' and '-' only")
    if len(labels) > MAX_LABELS or not all(re.fullmatch(HOST_LABEL, label) for label in labels):
        raise UsageError(f"worker: --labels are at most {MAX_LABELS} words of letters, digits, '.', '_' and '-'")
    row = WorkerRow(owner=name_owner(host), host=host, labels=labels, slots=slots, version=__version__)
    work_on_plans(env, row, say)


def require_dsn() -> str:
    """The address of the fleet's database; refused without one."""
    env = environment()
    if dsn := load_user(env).fleet.dsn:
        return dsn
    raise RefusedEarly(f"fleet.dsn is not set; set it in {user_file(env)} or RUNPLAN_FLEET_DSN, to postgresql://…")


def _remote_here() -> str:
    with open_context() as context:
        if url := remote_url(context.repository, context.settings):
            return url
        missing = f"there is no remote {context.settings.run.remote} here"
        raise RefusedEarly(f"{missing}; name the repository: runplan fleet init --repository URL")


# --- the state of the fleet -------------------------------------------------------------------------------


def _show_status(dsn: str, host: str | None, *, is_json: bool) -> Exit:
    """Show the fleet; or one host, and exit with 5 when it is dead."""
    state = read_fleet(dsn)
    if host is None:
        print(as_json(state) if is_json else render_fleet(state))
        return Exit.DONE
    chosen = state.get_host(host)
    print(as_json(chosen) if is_json else "\n".join(_render_host(chosen, len(host))))
    return Exit.UNREACHABLE if chosen.dead else Exit.DONE


def render_fleet(state: FleetState) -> str:
    width = max((len(host.name) for host in state.hosts), default=0)
    lines = [line for host in state.hosts for line in _render_host(host, width)]
    lines = lines or ["No host has registered. Start one: runplan worker"]
    oldest = f", the oldest for {in_words(max(queued.age_s for queued in state.queue))}" if state.queue else ""
    lines += ["", f"Queue: {counted(len(state.queue), 'plan')}{oldest}"]
    lines += [f"  {queued.plan} of {queued.repository}: {queued.why}" for queued in state.queue]
    permits = state.permits
    most = f"{permits.most or 'any number'} at once, {permits.most_in_repository} in a repository"
    lines.append(f"Runs: {permits.working} at work, {permits.waiting} waiting for their turn; at most {most}")
    lines += [f"Usage limit of {limit.account}: until {limit.until} ({limit.words})" for limit in state.limits]
    lines.append(f"Repositories: {', '.join(state.repositories) or 'none'}")
    return localized(plain("\n".join(lines)), now=datetime.now(UTC))


def _render_host(host: Host, width: int) -> list[str]:
    """A line about the host, and one for each plan that it has in hand."""
    standing = "dead" if host.dead else "draining" if host.draining else "up"
    parts = [f"{len(host.plans)} of {counted(host.slots, 'slot')} in use", f"seen {in_words(host.seen_s)} ago"]
    parts += [f"labels {', '.join(host.labels)}"] if host.labels else []
    parts.append(f"version {host.version}")
    plans = [f"  {claimed.plan} of {claimed.repository}" for claimed in host.plans]
    return [f"{host.name:<{width}}  {standing:<8}  {', '.join(parts)}", *plans]
