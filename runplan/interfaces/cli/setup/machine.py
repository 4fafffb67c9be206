"""runplan service, daemon and notify: the login service (systemd or launchd), the daemon, and its channels."""

from __future__ import annotations

import argparse
import socket

from runplan.adapters.configuration.load import environment, load_user
from runplan.adapters.configuration.places import key_directory, user_file
from runplan.adapters.notify.channels import Deliveries, list_channels
from runplan.adapters.notify.links import LinkMaker
from runplan.adapters.notify.notices import of_test
from runplan.domain.errors import Exit, RefusedEarly, UsageError
from runplan.domain.text import as_json, plain
from runplan.engine.loop.context import refuse_under_agent
from runplan.hosts.daemon import client, service
from runplan.hosts.daemon.service import Manager, Standing
from runplan.interfaces.cli.show.progress import say


def run_daemon(args: argparse.Namespace) -> None:
    env = environment()
    if args.action != "stop" and load_user(env).fleet.dsn:
        raise RefusedEarly("fleet.dsn is set, so the hosts of the fleet work on plans; start one: runplan worker")
    if args.action is None:
        from runplan.hosts.daemon import process  # slow to import

        process.run_daemon(env)
        return
    pid = client.stop_daemon(env, say)
    if args.action == "restart":
        with client.reach_daemon(env) as connection:
            say(f"the daemon runs as process {connection.hello.pid}")
    else:
        login = "at the next login, or " if service.find_installed(env) else ""
        say(f"The daemon {'has ended' if pid else 'is not running'}. Start it {login}with: runplan daemon restart")


def run_notify(args: argparse.Namespace) -> Exit:
    """Send a test notice, once and without another attempt, through each channel."""
    if not args.test:
        raise UsageError("notify: say what to send: runplan notify --test")
    env = environment()
    user = load_user(env)
    channels = list_channels(user.notify, env)
    if not channels:
        example = 'urls = ["ntfy://TOPIC"]'
        raise RefusedEarly(f"no channel is configured; add one to {user_file(env)} under [notify], e.g. {example}")
    link = LinkMaker(user.web.url, key_directory(env)).link_to_page()
    notice = of_test(socket.gethostname(), link)
    code = Exit.DONE
    for channel in channels:
        why = Deliveries().deliver(channel, notice, env, again=False)
        print(f"{channel.name}: failed: {plain(why)}" if why else f"{channel.name}: sent", flush=True)
        code = Exit.UNREACHABLE if why else code
    return code


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
