"""The journal and the costs as lines and rows of a page."""

from datetime import UTC, datetime

from runplan.app.views.plan_page import LONGEST, describe_records
from runplan.domain.run import events as e
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import GateAnswer, Role
from runplan.domain.run.recorded import Recorded

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def recorded(*events: e.Event) -> list[Recorded[e.Event]]:
    return [Recorded(seq=seq, run="r", at="2026-03-01T00:00:00Z", event=event) for seq, event in enumerate(events, 1)]


def test_the_newest_event_comes_first_with_its_sentence() -> None:
    ended = e.DispatchEnded(id="d", role=Role.GATE, ending=Ending.EXITED, code=0, seconds=61)
    lines = describe_records(recorded(e.Queued(), e.StopRequested(by="x" * 5_000), ended), now=NOW)
    assert [(line.seq, line.name) for line in lines] == [(3, "process ended"), (2, "stop requested"), (1, "queued")]
    assert (lines[0].text, lines[2].text) == ("gate       took 1m01s", "")
    assert len(lines[1].text) == LONGEST


def test_an_event_belongs_to_a_phase_and_to_its_step() -> None:
    gate = e.DispatchStarted(id="d", role=Role.GATE, cycle=1, phase="2")
    ended = e.DispatchEnded(id="d", role=Role.GATE, ending=Ending.EXITED, code=0, seconds=1)
    judged = e.GateJudged(name="tests", answer=GateAnswer.PASSED, line="", tree="t", code=0, time=1)
    chosen = e.PhaseChosen(tip="0", phase="2", title="Two")
    lines = describe_records(recorded(e.Queued(), chosen, gate, ended, judged), now=NOW)
    assert [(line.seq, line.phase, line.step) for line in lines] == [
        *((5, "2", "gate"), (4, "2", "gate"), (3, "2", "gate"), (2, "2", "lease"), (1, "", "")),
    ]
