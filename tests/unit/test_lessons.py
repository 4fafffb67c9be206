"""Lessons of runs, and the remarks of agents that they come from."""

import json

from runplan.domain.checks.returns import parse_return
from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import StepJudged
from runplan.domain.run.dispatch import Artifact, Remarks, Return
from runplan.domain.run.kinds import PhaseStep, Reason, Role
from runplan.domain.run.recorded import Recorded
from runplan.engine.report.lessons import MOST_BYTES, Lesson, choose_lessons, collect_lessons


def record(*events: e.Event, run: str = "r1") -> list[Recorded[e.Event]]:
    return [Recorded(seq=seq, run=run, at="2026-01-01T00:00:00Z", event=event) for seq, event in enumerate(events)]


def taken(*memory: str) -> e.WorkTaken:
    return e.WorkTaken(head="h", tree="t", commits=1, remarks=Remarks(memory=memory))


def failed(detail: str, *, reason: Reason = Reason.TESTS_FAILED, rejected: str | None = None) -> e.PhaseFailed:
    gate = PhaseStep.GATE
    return e.PhaseFailed(phase="1", reason=reason, step=gate, detail=detail, title="Parser", rejected=rejected)


LANDED = e.Landed(id="l", phase="1", tip="t", code="c")


def texts(*events: e.Event) -> list[str]:
    return [lesson.text for lesson in collect_lessons(record(*events))]


def test_an_agent_teaches_only_by_work_that_landed() -> None:
    assert texts(taken("a"), LANDED) == ["a"]
    assert texts(taken("a")) == []
    assert texts(taken("a"), failed("red"), taken("b"), LANDED) == ["Parser failed at first (tests-failed): red", "b"]


def test_a_failure_teaches_when_it_was_mended_and_was_one_of_the_work() -> None:
    assert texts(failed("red")) == []
    assert texts(failed("no time", reason=Reason.TIMEOUT), LANDED) == []
    assert texts(failed("no", rejected="no"), e.Answered(tree="t", approved=False, why="no"), LANDED) == [
        "a person rejected work: no"
    ]


def test_people_and_critics_teach() -> None:
    verdicts = (("P1", "FAIL: vague"), ("P2", "PASS: ok"))
    judged = StepJudged(role=Role.CRITIQUE, dispatch="d", findings=(("F1", "no test"),), verdicts=verdicts)
    asked = e.QuestionAsked(id="q", text="Which port?")
    assert texts(asked, e.QuestionAnswered(id="q", text="8080"), judged) == [
        "vague", "no test", "asked: Which port? answered: 8080",
    ]  # fmt: skip


def test_what_was_learned_most_often_comes_first() -> None:
    events = (taken("Twice."), LANDED, taken("once"), LANDED, taken("twice"), LANDED)
    lessons = collect_lessons(record(*events))
    assert [(lesson.text, lesson.count) for lesson in lessons] == [("twice", 2), ("once", 1)]


def test_a_prompt_has_at_most_two_kilobytes_of_lessons() -> None:
    lessons = [Lesson(id=str(n), text="ö" * 200, source="agent", last="") for n in range(20)]
    assert 0 < len("\n".join(choose_lessons(lessons)).encode()) <= MOST_BYTES
    assert choose_lessons([]) == []


def test_remarks_of_another_shape_are_left_out() -> None:
    answer = {
        "status": "done",
        "artifacts": ["a.md", {"path": "b.md", "kind": "doc", "summary": "x\ny"}, {"kind": "no path"}, 3],
        "next_steps": "one",
        "errors": {"no": "list"},
        "memory": [1, "", "m" * 999, *map(str, range(20))],
    }
    read = parse_return(json.dumps(answer), "")
    assert isinstance(read, Return)
    made = (Artifact(path="a.md"), Artifact(path="b.md", kind="doc", summary="x y"))
    assert (read.remarks.artifacts, read.remarks.next_steps, read.remarks.errors) == (made, ("one",), ())
    assert (len(read.remarks.memory), len(read.remarks.memory[0])) == (10, 300)
    assert read.remarks.describe()[:3] == ["Made: a.md", "Made: b.md (doc): x y", "Next: one"]
