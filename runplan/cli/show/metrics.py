"""runplan metrics: Prometheus metrics, from the daemon, else from the journal of this repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runplan.cli.terminal import Warnings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from runplan.errors import Exit

EXAMPLES = """\
  runplan metrics        runs, phases, agents, tokens, schedules and the daemon"""


def arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(_args: argparse.Namespace) -> Exit:
    warnings = Warnings()
    text = _from_daemon()
    print(_from_journal(warnings.warn) if text is None else text, end="")
    return warnings.exit


def _from_daemon() -> str | None:
    """The metrics of all repositories and of the daemon; None when no daemon runs."""
    from runplan.daemon.client import NotRunning, connect
    from runplan.daemon.protocol import Metrics, MetricsText
    from runplan.settings.load import environment

    try:
        with connect(environment()) as client:
            return client.call(Metrics(), MetricsText).text
    except NotRunning:
        return None


def _from_journal(warn: Callable[[str], None]) -> str:
    from datetime import UTC, datetime

    from runplan.engine.context import open_context
    from runplan.report.metrics import render, samples

    with open_context(warn=warn) as at:
        store = at.store()
        if store is None:
            return ""
        return render(samples(store, repository=str(at.repository.root), now=datetime.now(UTC)))
