"""The report over all repositories: landings, failures and waits since a moment."""

import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.store.sqlite import SqliteStore
from runplan.app.operations.model import Caller
from runplan.app.views.reports import read_news
from runplan.domain.errors import UsageError
from runplan.domain.run import events as e
from runplan.domain.run.events import Event
from runplan.domain.run.kinds import Reason, RunOutcome
from runplan.domain.run.rows import ScheduleRow
from runplan.domain.times import iso
from runplan.engine.report.summary import morning_report, news_of, of_morning
from tests.support.builders import NOW, record, started
from tests.unit.test_summary import FAILED, LANDED, LEASED, ROBOT

TODAY = iso(NOW - timedelta(hours=8))


def add(place: Path, run: str, plan: str, *events: Event, age: timedelta = timedelta(), **row: Any) -> None:
    store = SqliteStore(place)
    facts = [(type(one).__name__, to_builtins(one)) for one in (started(), *events)]
    record(store, run, plan, *facts, now=NOW - age, title="X", **row)
    store.close()


def test_the_report_lists_what_landed_what_failed_and_what_waits(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    add(first, "r1", "plans/x.md", LEASED, ROBOT, LANDED, state="done", outcome="done")
    add(first, "r2", "plans/y.md", LEASED, FAILED, state="failed", outcome="failed", reason="tests-failed")
    stopped = replace(FAILED, reason=Reason.STOPPED, detail="stopped by runplan stop")
    add(first, "r5", "plans/w.md", LEASED, stopped, state="stopped", outcome="stopped", reason="stopped")
    add(second, "r3", "plans/z.md", LEASED, state="waiting", waiting_for="approval", age=timedelta(days=3))
    add(second, "r4", "plans/old.md", LEASED, LANDED, state="done", outcome="done", age=timedelta(days=2))
    fixed = {"zone": "UTC", "misfire": "run-once", "request": "{}", "anchor": TODAY, "made": TODAY}
    SqliteStore(second).put_schedule(ScheduleRow(plan="plans/s.md", spec="4h", paused="phase 1 failed", **fixed))
    news = news_of({"/src/a": first, "/src/b c": second, "/src/none": tmp_path / "none"}, since=TODAY)
    assert morning_report(news, since="today") == (
        "# Report since today\n\n"
        "Phases: 1 waiting for you, 1 failed, 1 landed, 1 stopped. Time: 4m00s (agents 1m00s), 1,000 tokens, $0.50.\n\n"
        "## Needs you\n\n"
        "- b c: X, phase 1\n  waits for approval\n  `cd '/src/b c' && runplan diff plans/z.md 1`\n"
        "- b c: the schedule of `plans/s.md` is paused: phase 1 failed\n  "
        "`cd '/src/b c' && runplan resume plans/s.md`\n\n"
        "## Failed\n\n"
        "- a: X, phase 1\n  tests-failed at gate, 1m00s\n  `cd /src/a && runplan retry plans/y.md`\n\n"
        "## Landed\n\n"
        "- a: X, phase 1\n  `abcdef0`, 2m00s (agents 1m00s), 1,000 tokens, $0.50\n  "
        "`cd /src/a && runplan report plans/x.md`\n\n"
        "## Stopped\n\n"
        "- a: X, phase 1\n  stopped by runplan stop, 1m00s\n  `cd /src/a && runplan retry plans/w.md`\n"
    )
    notice = of_morning(news)
    assert notice is not None
    assert (notice.kind, notice.command) == ("morning", "runplan report --since yesterday")
    assert notice.title.startswith("runplan: Phases: 1 waiting for you, 1 failed, 1 landed")
    assert notice.text == "Repositories: a, b c."
    assert of_morning(news_of({"/src/a": first}, since=iso(NOW + timedelta(days=1)))) is None, "a day without news"


def test_a_run_that_ended_with_blocked_phases_needs_a_person(tmp_path: Path) -> None:
    over = e.RunEnded(outcome=RunOutcome.FAILED, reason="blocked", detail="phase 2 is marked blocked; clear its status")
    failed: dict[str, Any] = {"state": "failed", "outcome": "failed", "reason": "blocked"}
    add(tmp_path, "r1", "plans/x.md", LEASED, LANDED, over, **failed)
    add(tmp_path, "r2", "plans/failed phase.md", LEASED, FAILED, over, **failed)
    add(tmp_path, "r3", "plans/continued.md", over, age=timedelta(hours=1), **failed)
    add(tmp_path, "r4", "plans/continued.md", LEASED, LANDED, state="done", outcome="done")
    add(tmp_path, "r5", "plans/old.md", over, age=timedelta(days=2), **failed)
    text = morning_report(news_of({"/src/a": tmp_path}, since=TODAY), since="today")
    assert "Phases: 1 failed, 2 landed. Runs that need you: 1. Time: " in text
    needs = text.partition("## Needs you\n\n")[2].partition("\n\n## Failed")[0]
    assert needs == (
        "- a: the run of `plans/x.md` failed: blocked: phase 2 is marked blocked; clear its status\n  "
        "`cd /src/a && runplan retry plans/x.md`"
    )


def test_a_journal_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.db").write_bytes(b"no journal at all, but long enough to be read as one")
    news = news_of({"/src/a": tmp_path}, since=TODAY)
    assert "## Needs you\n\n- `/src/a` cannot be read: " in morning_report(news, since="today")


@pytest.mark.parametrize(
    ("word", "moment"),
    [
        ("today", datetime(2026, 11, 15)),
        ("Yesterday", datetime(2026, 11, 14)),
        ("2026-11-01", datetime(2026, 11, 1)),
        ("2026-11-01 08:30", datetime(2026, 11, 1, 8, 30)),
        ("8h", datetime(2026, 11, 15, 1, 30)),
        ("1d12h", datetime(2026, 11, 13, 21, 30)),
    ],
)
def test_words_of_since_mean_a_local_moment_and_others_are_errors(word: str, moment: datetime, tmp_path: Path) -> None:
    caller = Caller(env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    now = datetime(2026, 11, 15, 9, 30).astimezone()
    assert read_news(caller, word, now=now).since == iso(moment.astimezone())
    for wrong in ("soon", "", "2026-13-45", "8 hours", "1", "99999999d"):
        with pytest.raises(UsageError, match="unknown moment; use today, yesterday, 8h"):
            read_news(caller, wrong, now=now)
