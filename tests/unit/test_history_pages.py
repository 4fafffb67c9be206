"""The journal and the costs as lines and rows of a page."""

from datetime import UTC, datetime

from runplan.app.views.plan_page import LONGEST, describe_records
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role
from runplan.domain.run.recorded import Recorded
from runplan.interfaces.web.pages.plan import MOST_EVENTS, read_page

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def recorded(*events: e.Event) -> list[Recorded[e.Event]]:
    return [Recorded(seq=seq, run="r", at="2026-03-01T00:00:00Z", event=event) for seq, event in enumerate(events, 1)]


def test_the_newest_event_comes_first_with_its_sentence() -> None:
    ended = e.DispatchEnded(id="d", role=Role.GATE, ending=Ending.EXITED, code=0, seconds=61)
    lines = describe_records(recorded(e.Queued(), e.StopRequested(by="x" * 5_000), ended), now=NOW)
    assert [(line.seq, line.name) for line in lines] == [(3, "process ended"), (2, "stop requested"), (1, "queued")]
    assert (lines[0].text, lines[2].text) == ("gate       took 1m01s", "")
    assert len(lines[1].text) == LONGEST


def test_a_page_that_does_not_exist_is_the_first_one() -> None:
    count = MOST_EVENTS + 1
    assert [read_page(text, count) for text in ("", "1", "2", "-1", "x", "²", "9" * 30)] == [0, 1, 0, 0, 0, 0, 0]
