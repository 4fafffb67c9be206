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
        store.put_schedule(ROW)
        store.put_schedule(replace(ROW, spec="day at 9am"))
        assert [row.spec for row in store.list_schedules()] == ["day at 9am"]
        assert store.pause_schedule(ROW.plan, "phase 2 failed")
    with closing(Store(tmp_path, writable=False)) as store:
        kept = store.get_schedule(ROW.plan)
        assert kept is not None
        assert kept.paused == "phase 2 failed"
    with closing(Store(tmp_path)) as store:
        assert store.pause_schedule(ROW.plan, None)
        assert store.drop_schedule(ROW.plan)
        assert not store.drop_schedule(ROW.plan)
        assert not store.pause_schedule(ROW.plan, "x")


def test_a_slot_is_answered_once(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as one, closing(Store(tmp_path)) as two:
        one.put_schedule(ROW)
        fired = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at=NOW, answer="fired")
        assert one.answer_slot(fired)
        assert not two.answer_slot(replace(fired, answer="skipped", why="too late"))
        assert two.rows(FiringRow, "firings") == [fired]
        kept = two.get_schedule(ROW.plan)
        assert kept is not None
        assert kept.last == fired.slot


def test_an_answer_from_the_future_gives_way_to_the_real_one(tmp_path: Path) -> None:
    """It was recorded while the clock was ahead."""
    with closing(Store(tmp_path)) as store:
        store.put_schedule(ROW)
        missed = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at="2028-03-01T12:00:00Z", answer="missed")
        fired = FiringRow(plan=ROW.plan, slot="2026-03-01T16:00", at="2026-03-01T16:00:01Z", answer="fired", why="r1")
        assert store.answer_slot(missed)
        assert store.answer_slot(fired)
        assert store.rows(FiringRow, "firings") == [fired]


def test_the_next_slot_is_recorded_until_the_schedule_changes_or_fires(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:

        def recorded() -> str | None:
            row = store.get_schedule(ROW.plan)
            assert row is not None
            return row.next

        changes = (
            lambda: store.put_schedule(ROW),
            lambda: store.answer_slot(FiringRow(plan=ROW.plan, slot="s", at=NOW, answer="fired")),
        )
        for change in changes:
            store.put_schedule(ROW)
            store.arm_schedule(ROW.plan, NOW)
            assert recorded() == NOW
            change()
            assert recorded() is None
