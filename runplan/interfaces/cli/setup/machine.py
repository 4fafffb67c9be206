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
        if args.json:
            print(as_json(state))
        elif not state.installed:
            print(f"not installed; there is no {state.file}\ninstall it: runplan service install")
        else:
            print(f"installed as {state.file}, {'running' if state.active else 'not running'}")
            if not state.answers:
                print("no user session of the service manager here")
            if not state.current:
                print("written by another version or for another PATH; write it again: runplan service install")
        return
    print(machine.change_service(Caller(), args.action, dry_run=args.dry_run))
