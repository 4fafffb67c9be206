"""runplan daemon: run the user's daemon in the foreground."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.errors import Exit

if TYPE_CHECKING:
    import argparse

EXAMPLES = """\
  runplan daemon        in the foreground; Ctrl-C lets agents finish, a second one stops them"""


def arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # it takes none


def run(args: argparse.Namespace) -> Exit:
    del args
    from runplan.daemon.process import serve
    from runplan.engine.context import refuse_under_agent
    from runplan.settings.load import environment

    refuse_under_agent("daemon")
    serve(environment())
    return Exit.DONE
