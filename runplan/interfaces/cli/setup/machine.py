"""runplan service, daemon and notify: the login service (systemd or launchd), the daemon, and its channels."""

from __future__ import annotations

import argparse

from runplan.app import machine
from runplan.app.operations.model import Caller
from runplan.domain.decoding import as_json
from runplan.domain.errors import Exit, UsageError
from runplan.domain.text import plain
from runplan.interfaces.cli.show.progress import say


def run_daemon(args: argparse.Namespace) -> None:
    machine.control_daemon(Caller(say=say), args.action)


def run_notify(args: argparse.Namespace) -> Exit:
    if not args.test:
        raise UsageError("notify: say what to send: runplan notify --test")
    code = Exit.DONE
    for name, why in machine.send_test_notice(Caller()):
        print(f"{name}: failed: {plain(why)}" if why else f"{name}: sent", flush=True)
        code = Exit.UNREACHABLE if why else code
    return code


def run_service(args: argparse.Namespace) -> None:
    if args.action == "status":
        state = machine.inspect_service(Caller())
        print(as_json(state) if args.json else _describe_service(state))
        return
    change = machine.change_service(Caller(), args.action, dry_run=args.dry_run)
    if args.dry_run:
        print(f"# {change.file}\n{change.text}", end="")
        print("".join(f"# {command}\n" for command in change.commands), end="")
    elif args.action == "install":
        by_hand = " && ".join(change.commands)
        later = f"Not started: no {change.manager} user session here. Once you have one, run: {by_hand}"
        print(f"wrote {change.file}")
        print("the daemon runs, and starts at each login" if change.is_done else later)
    else:
        print(f"removed {change.file}" if change.is_done else f"there is no {change.file}")


def _describe_service(state: machine.ServiceState) -> str:
    if not state.installed:
        return f"not installed; there is no {state.file}\ninstall it: runplan service install"
    lines = [f"installed as {state.file}, {'running' if state.active else 'not running'}"]
    if not state.answers:
        lines.append("no user session of the service manager here")
    if not state.current:
        lines.append("written by another version or for another PATH; write it again: runplan service install")
    return "\n".join(lines)
