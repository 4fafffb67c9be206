"""runplan metrics: what can be measured, for Prometheus; from the daemon, else from the journal of this repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from runplan.errors import Exit

EXAMPLES = """\
  runplan metrics        runs, phases, agents, tokens, schedules and the daemon, in the text format of Prometheus"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing can be chosen."""


def run(_args: argparse.Namespace) -> Exit:
    from runplan.cli.show.aside import Aside

    aside = Aside()
    text = _from_daemon()
    print(_from_journal(aside.warn) if text is None else text, end="")
    return aside.code


def _from_daemon() -> str | None:
    """All repositories and the daemon itself; None when no daemon runs."""
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
    from runplan.report.figures import figures
    from runplan.report.metrics import render, samples

    with open_context(warn=warn) as at:
        store = at.store()
        if store is None:
            return ""
        return render(samples([figures(store, repository=str(at.repository.root), now=datetime.now(UTC))]))
