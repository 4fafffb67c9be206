"""Schedules survive, a plan has one, and a slot is answered once."""

from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from runplan.run.rows import FiringRow, ScheduleRow
from runplan.store.sqlite import Store

NOW = "2026-03-01T12:00:00Z"
ROW = ScheduleRow(plan="plans/X.md", spec="4h", zone="UTC", misfire="run-once", request="{}", anchor=NOW, made=NOW)


def test_a_plan_has_one_schedule_that_can_be_paused_and_dropped(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        schedules = store.schedules
        schedules.put(ROW)
        schedules.put(replace(ROW, spec="day at 9am"))
        assert [row.spec for row in schedules.all()] == ["day at 9am"]
        assert schedules.pause(ROW.plan, "phase 2 failed")
    with closing(Store(tmp_path, writable=False)) as store:
        kept = store.schedules.get(ROW.plan)
        assert kept is not None
        assert kept.paused == "phase 2 failed"
    with closing(Store(tmp_path)) as store:
        assert store.schedules.pause(ROW.plan, None)
        assert store.schedules.drop(ROW.plan)
        assert not store.schedules.drop(ROW.plan)
        assert not store.schedules.pause(ROW.plan, "x")


def test_a_slot_is_answered_once(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as one, closing(Store(tmp_path)) as two:
        one.schedules.put(ROW)
        fired = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at=NOW, answer="fired")
        assert one.schedules.answer(fired)
        assert not two.schedules.answer(replace(fired, answer="skipped", why="too late"))
        assert two.rows(FiringRow, "firings") == [fired]
        kept = two.schedules.get(ROW.plan)
        assert kept is not None
        assert kept.last == fired.slot


def test_an_answer_from_the_future_gives_way_to_the_real_one(tmp_path: Path) -> None:
    """It was recorded while the clock was ahead."""
    with closing(Store(tmp_path)) as store:
        schedules = store.schedules
        schedules.put(ROW)
        missed = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at="2028-03-01T12:00:00Z", answer="missed")
        fired = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at="2026-03-01T16:00:01Z", answer="fired", why="r1")
        assert schedules.answer(missed)
        assert schedules.answer(fired)
        assert store.rows(FiringRow, "firings") == [fired]


def test_the_next_slot_is_recorded_until_the_schedule_changes_or_fires(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        schedules = store.schedules

        def recorded() -> str | None:
            row = schedules.get(ROW.plan)
            assert row is not None
            return row.next

        changes = (
            lambda: schedules.put(ROW),
            lambda: schedules.answer(FiringRow(plan=ROW.plan, slot="s", at=NOW, answer="fired")),
        )
        for change in changes:
            schedules.put(ROW)
            schedules.arm(ROW.plan, NOW)
            assert recorded() == NOW
            change()
            assert recorded() is None
