"""runplan service and daemon: manage the login service (systemd or launchd), and run the daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from runplan.cli.verb import Verb, no_arguments
from runplan.errors import Exit

if TYPE_CHECKING:
    import argparse

    from runplan.daemon.service import Manager, Standing


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("install", "uninstall", "status"))
    parser.add_argument("--dry-run", action="store_true", help="only show the file and the commands")
    parser.add_argument("--json", action="store_true", help="print JSON (status)")


def _daemon(_args: argparse.Namespace) -> Exit:
    from runplan.daemon.process import serve
    from runplan.engine.context import refuse_under_agent
    from runplan.settings.load import environment

    refuse_under_agent("daemon")
    serve(environment())
    return Exit.DONE


def _service(args: argparse.Namespace) -> Exit:
    from runplan.daemon import service
    from runplan.engine.context import refuse_under_agent
    from runplan.settings.load import environment

    env = environment()
    manager = service.manager(env)
    if args.what == "status":
        standing = service.standing(manager, env)
        print(_json(standing) if args.json else _lines(standing))
        return Exit.DONE
    refuse_under_agent(f"service {args.what}")
    if args.dry_run:
        _show(manager, args.what)
    elif args.what == "install":
        enabled = service.install(manager, env)
        print(f"wrote {manager.file}")
        print("the daemon runs, and starts at each login" if enabled else f"Not started: {_by_hand(manager)}")
    elif service.uninstall(manager, env):
        print(f"removed {manager.file}")
    else:
        print(f"there is no {manager.file}")
    return Exit.DONE


def _show(manager: Manager, what: str) -> None:
    print(f"# {manager.file}")
    if what == "install":
        print(manager.text, end="")
    for command in manager.enables if what == "install" else manager.disables:
        print(f"# {' '.join(command)}")


def _by_hand(manager: Manager) -> str:
    commands = " && ".join(" ".join(command) for command in manager.enables)
    return f"no {manager.asks[0]} user session here. Once you have one, run: {commands}"


def _lines(standing: Standing) -> str:
    if not standing.installed:
        return f"not installed; there is no {standing.file}\ninstall it: runplan service install"
    running = "running" if standing.active else "not running"
    lines = [f"installed as {standing.file}, {running}"]
    if not standing.answers:
        lines.append("no user session of the service manager here")
    if not standing.current:
        lines.append("written by another version or for another PATH; write it again: runplan service install")
    return "\n".join(lines)


def _json(standing: Standing) -> str:
    from msgspec import to_builtins

    return json.dumps(to_builtins(standing), indent=2, ensure_ascii=False)


VERBS = {
    "daemon": Verb(
        run=_daemon,
        arguments=no_arguments,
        EXAMPLES="  runplan daemon        in the foreground; Ctrl-C lets agents finish, a second one stops them",
    ),
    "service": Verb(
        run=_service,
        arguments=_arguments,
        EXAMPLES="""\
  runplan service install --dry-run      show the file that would be written
  runplan service install                write it, start the daemon, and start it at each login
  runplan service status                 whether it is installed, and whether it runs
  runplan service uninstall              stop the daemon and remove the file""",
    ),
}
