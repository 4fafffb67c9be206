"""runplan service and daemon: the login service (systemd or launchd), and the daemon."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from runplan.cli.show.progress import say
from runplan.daemon import client, service
from runplan.engine.context import refuse_under_agent
from runplan.report.views import as_json
from runplan.settings.load import environment

if TYPE_CHECKING:
    from runplan.daemon.service import Manager, Standing


def run_daemon(args: argparse.Namespace) -> None:
    env = environment()
    if args.action is None:
        from runplan.daemon import process  # slow to import

        process.run_daemon(env)
        return
    pid = client.stop_daemon(env, say)
    if args.action == "restart":
        with client.reach_daemon(env) as connection:
            say(f"the daemon runs as process {connection.hello.pid}")
    else:
        login = "at the next login, or " if service.find_installed(env) else ""
        say(f"The daemon {'has ended' if pid else 'is not running'}. Start it {login}with: runplan daemon restart")


def run_service(args: argparse.Namespace) -> None:
    env = environment()
    manager = service.find_manager(env)
    if args.action == "status":
        standing = service.inspect_service(manager, env)
        print(as_json(standing) if args.json else _describe_service(standing))
        return
    refuse_under_agent(f"service {args.action}")
    if args.dry_run:
        _show_service(manager, args.action)
    elif args.action == "install":
        enabled = service.install_service(manager, env)
        print(f"wrote {manager.file}")
        by_hand = " && ".join(" ".join(command) for command in manager.enables)
        later = f"Not started: no {manager.asks[0]} user session here. Once you have one, run: {by_hand}"
        print("the daemon runs, and starts at each login" if enabled else later)
    else:
        is_removed = service.uninstall_service(manager, env)
        print(f"removed {manager.file}" if is_removed else f"there is no {manager.file}")


def _show_service(manager: Manager, action: str) -> None:
    print(f"# {manager.file}")
    if action == "install":
        print(manager.text, end="")
    for command in manager.enables if action == "install" else manager.disables:
        print(f"# {' '.join(command)}")


def _describe_service(standing: Standing) -> str:
    if not standing.installed:
        return f"not installed; there is no {standing.file}\ninstall it: runplan service install"
    lines = [f"installed as {standing.file}, {'running' if standing.active else 'not running'}"]
    if not standing.answers:
        lines.append("no user session of the service manager here")
    if not standing.current:
        lines.append("written by another version or for another PATH; write it again: runplan service install")
    return "\n".join(lines)
