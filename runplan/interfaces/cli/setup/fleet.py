"""runplan fleet: set up the database of a fleet, show its hosts and its queue, take a host out and back in."""

import argparse
from datetime import UTC, datetime

from runplan.app import fleet
from runplan.app.operations.model import Caller
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, UsageError
from runplan.domain.fleet import WorkerHost
from runplan.domain.text import counted, in_words, localized, plain
from runplan.interfaces.cli.show.progress import say, warn


def run_fleet(args: argparse.Namespace) -> Exit:
    caller = Caller()
    match args.action:
        case "status" if args.host is not None:
            host = fleet.read_fleet(caller).get_host(args.host)
            print(as_json(host) if args.json else "\n".join(_render_host(host, len(args.host))))
            return Exit.UNREACHABLE if host.dead else Exit.DONE
        case "status" if args.json:
            print(as_json(fleet.read_fleet(caller)))
        case "status":
            state = fleet.read_fleet(caller)
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
            print(localized(plain("\n".join(lines)), now=datetime.now(UTC)))
        case "metrics":
            from runplan.app.fleet_metrics import read_metrics, serve_metrics  # a worker does without it

            if args.serve:
                serve_metrics(Caller(say=say, warn=warn), args.address, args.port)
            else:
                print(read_metrics(caller), end="")
        case "drain" | "up" | "forget" if args.host is None:
            raise UsageError(f"fleet {args.action}: name the host; see: runplan fleet status")
        case "forget":
            fleet.forget_host(caller, args.host)
            print(f"{args.host} is forgotten")
        case "drain" | "up":
            fleet.set_draining(caller, args.host, draining=args.action == "drain")
            words = "finishes its agents and takes no plans" if args.action == "drain" else "takes plans"
            print(f"{args.host} {words}")
        case _:
            database, roles = fleet.set_up_fleet(caller, args.repository or ())
            print(f"The database {database} is set up, with the repositories:")
            for url, role in roles.items():
                print(f'  {url}, for members of the role "{role}"')
    return Exit.DONE


def run_worker(args: argparse.Namespace) -> None:
    labels = {label.strip().lower() for label in args.labels.split(",")} - {""}
    fleet.work(Caller(say=say), args.host, labels, args.slots)


def _render_host(host: WorkerHost, width: int) -> list[str]:
    standing = "dead" if host.dead else "draining" if host.draining else "sick" if host.sick else "up"
    parts = [f"{len(host.plans)} of {counted(host.slots, 'slot')} in use", f"seen {in_words(host.seen_s)} ago"]
    parts += [f"labels {', '.join(host.labels)}"] if host.labels else []
    parts.append(f"version {host.version}")
    parts += [f"takes no plans: {host.sick}"] if host.sick and not host.dead else []
    plans = [f"  {claimed.plan} of {claimed.repository}" for claimed in host.plans]
    return [f"{host.name:<{width}}  {standing:<8}  {', '.join(parts)}", *plans]
