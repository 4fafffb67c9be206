"""Metrics are counted from the journal; the daemon measures itself."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run.rows import FiringRow, ScheduleRow
from runplan.domain.times import iso
from runplan.engine.report.metrics import collect_samples, read_journals, render_samples, this_process
from tests.support.builders import NOW, read, record


def ending(role: str, agent: str, **more: object) -> tuple[str, dict[str, Any]]:
    return "DispatchEnded", {"id": "x", "role": role, "agent": agent, "ending": "exited", "code": 0, **more}


def a_journal(place: Path) -> SqliteStore:
    store = SqliteStore(place)
    record(
        store,
        "r1",
        "plans/x.md",
        ("RunStarted", {"mode": "finish"}),
        ending("implement", "claude", input_tokens=10, output_tokens=5, cached_tokens=4, usd=0.5, seconds=2.5),
        ending("implement", "claude", input_tokens=1, output_tokens=2, usd=0.25, seconds=0.5),
        ending("gate", ""),
        ("Landed", {"phase": "1"}),
        ("Landed", {"phase": ""}),
        state="done",
        outcome="done",
    )
    record(store, "r2", "plans/x.md", ("RunStarted", {"mode": "undo"}), ("Landed", {"phase": "1"}), state="done")
    record(store, "r3", "plans/y.md", ("PhaseFailed", {"phase": "1", "reason": "timeout"}), state="failed")
    waits: dict[str, Any] = {"state": "waiting", "waiting_for": "approval", "since": iso(NOW - timedelta(minutes=90))}
    record(store, "r4", "plans/y.md", ("ApprovalAsked", {"tree": "0"}), ("ClaimTaken", {"owner": "me"}), **waits)
    schedule = {"zone": "UTC", "misfire": "skip", "request": "{}", "anchor": iso(NOW), "made": iso(NOW)}
    store.put_schedule(ScheduleRow(plan="plans/x.md", spec="4h", **schedule))
    store.put_schedule(ScheduleRow(plan="plans/y.md", spec="4h", paused="phase 1 failed", **schedule))
    store.answer_slot(FiringRow(plan="plans/x.md", slot="1", at=iso(NOW), answer="skipped"))
    return store


def test_the_journal_is_counted(tmp_path: Path) -> None:
    text = render_samples(collect_samples(a_journal(tmp_path), repository="/app", now=NOW))
    found = {(name.removeprefix("runplan_"), *list(labels.values())[1:]): value for name, labels, value in read(text)}
    who, gate = ("implement", "claude", "exited"), ("gate", "", "exited")
    assert found == {
        ("runs", "plans/x.md", "done"): 2,
        ("runs", "plans/y.md", "failed"): 1,
        ("runs", "plans/y.md", "waiting"): 1,
        ("phases_landed_total", "plans/x.md"): 1,
        ("phases_failed_total", "plans/y.md", "timeout"): 1,
        ("waiting_seconds", "plans/y.md", "approval"): 5400,
        ("schedules", "plans/x.md", "active"): 1,
        ("schedules", "plans/y.md", "paused"): 1,
        ("schedule_slots_total", "plans/x.md", "skipped"): 1,
        ("dispatches_total", *gate): 1,
        ("dispatch_seconds_total", *gate): 0,
        ("dispatches_total", *who): 2,
        ("dispatch_seconds_total", *who): 3,
        ("usd_total", *who): 0.75,
        ("tokens_total", *who, "input"): 11,
        ("tokens_total", *who, "output"): 7,
        ("tokens_total", *who, "cached"): 4,
    }


def test_repositories_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    a_journal(tmp_path / "one").close()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/journal.db").write_bytes(b"no journal" * 1000)
    states = {"/one": tmp_path / "one", "/damaged": tmp_path / "damaged", "/gone": tmp_path / "gone"}
    process = this_process(version="1", uptime_s=3.0, repositories=3, working=2, queued=1)
    found = read(render_samples([*process, *read_journals(states, now=NOW)]))
    assert {labels["repository"] for _, labels, _ in found if "repository" in labels} == {"/one"}
    own = {name.removeprefix("runplan_daemon_"): value for name, _, value in found if "_daemon_" in name}
    assert (own["uptime_seconds"], own["repositories"], own["runs_working"], own["runs_queued"]) == (3, 3, 2, 1)
    assert own["threads"] >= 1
    assert own["cpu_seconds_total"] > 0
