"""Notices of endings and waits that need the user."""

import pytest
from msgspec.structs import replace

from runplan.adapters.configuration.load import Layer
from runplan.adapters.notify.notices import Notice, of_ending, of_lost_keys, of_waiting
from runplan.domain.errors import SettingsError
from runplan.domain.run import events as e
from runplan.domain.run.actions import Decision
from runplan.domain.run.attempts import WorkAttempt
from runplan.domain.run.kinds import PhaseStep, Reason, RunOutcome, WaitKind
from runplan.domain.run.rows import wait_of
from runplan.domain.run.state import RunState
from tests.support.builders import settle

WHERE = {"repository": "/home/uma/app", "plan": "plans/x.md", "run": "r1"}
PHASE = WorkAttempt(chosen=e.PhaseChosen(tip="0", phase="2", title="Two"))


def ended(outcome: str, reason: str = "", detail: str = "") -> RunState:
    return RunState(ended=e.RunEnded(outcome=RunOutcome(outcome), reason=reason, detail=detail))


def test_a_run_that_is_done_says_what_has_landed() -> None:
    landed = tuple(e.Landed(id=f"l{phase}", phase=phase, tip="0", code="0") for phase in ("1", "2", ""))
    notice = of_ending(replace(ended("done"), landed=landed), **WHERE)
    assert notice == Notice(
        kind="done", title="plans/x.md: done", text="Landed: 1, 2.", command="runplan report plans/x.md", **WHERE
    )


def test_a_failed_run_names_phase_reason_and_command() -> None:
    failure = e.PhaseFailed(phase="2", reason=Reason.TESTS_FAILED, step=PhaseStep.GATE, detail="3 of 40 tests fail")
    state = replace(ended("failed", "tests-failed", "3 of 40 tests fail"), attempt=replace(PHASE, failure=failure))
    notice = of_ending(state, **WHERE)
    assert notice is not None
    assert (notice.kind, notice.phase, notice.reason) == ("failed", "2", "tests-failed")
    assert notice.title == "plans/x.md: phase 2 failed (tests-failed)"
    assert notice.text.startswith("3 of 40 tests fail. Read the test output")


def test_a_run_that_was_refused_is_a_failure_too() -> None:
    notice = of_ending(ended("refused", "blocked", "phase 3 needs 2"), **WHERE)
    assert notice is not None
    assert (notice.kind, notice.title) == ("failed", "plans/x.md: failed (blocked)")


@pytest.mark.parametrize("outcome", ["stopped", "nothing-to-do"])
def test_an_ending_that_the_user_caused_sends_no_notice(outcome: str) -> None:
    assert of_ending(ended(outcome), **WHERE) is None
    assert of_ending(RunState(), **WHERE) is None


def test_a_run_that_waits_for_a_person_says_what_to_type() -> None:
    decision = Decision(actions=(), why="the candidate is proven and waits for a person", waiting=WaitKind.APPROVAL)
    notice = of_waiting(RunState(attempt=PHASE), decision, **WHERE)
    assert notice is not None
    assert (notice.kind, notice.phase, notice.reason) == ("waiting", "2", "approval")
    assert notice.title == "plans/x.md: phase 2 waits for you (approval)"
    assert notice.command == "runplan diff plans/x.md 2"
    assert "runplan approve plans/x.md 2" in notice.text
    assert "runplan reject plans/x.md 2" in notice.text


def test_a_question_is_quoted_with_the_command_that_answers_it() -> None:
    decision = Decision(actions=(), why="phase 2 asks", waiting=WaitKind.QUESTION, about="which port? (r1.2)")
    notice = of_waiting(RunState(attempt=PHASE), decision, **WHERE)
    assert notice is not None
    assert (notice.title, notice.command) == (
        "plans/x.md: phase 2 waits for you (question)",
        "runplan answer plans/x.md TEXT",
    )
    assert notice.text == "which port? (r1.2). Answer: runplan answer plans/x.md TEXT."


def test_a_run_that_waits_for_the_checkout_is_not_reduced_to_one_phase_by_the_command() -> None:
    decision = Decision(actions=(), why="the landing waits", waiting=WaitKind.CHECKOUT, about="a.txt is edited")
    notice = of_waiting(RunState(attempt=PHASE), decision, **WHERE)
    assert notice is not None
    see = "Explain: runplan explain plans/x.md 2"
    assert notice.text == f"a.txt is edited. {see}; Continue: runplan retry plans/x.md."


def test_a_run_that_lost_its_keys_names_them_and_says_what_to_type() -> None:
    notice = of_lost_keys(("A_KEY", "B_KEY"), **WHERE)
    assert (notice.kind, notice.reason, notice.command) == ("waiting", "key", "runplan resume plans/x.md")
    assert notice.title == "plans/x.md: waits for A_KEY, B_KEY"
    assert notice.text.startswith("the daemon restarted and lost $A_KEY, $B_KEY")


@pytest.mark.parametrize("waiting", ["limit", "overloaded", "slot", "paused", "unreachable"])
def test_a_wait_that_ends_by_itself_sends_no_notice(waiting: str) -> None:
    assert of_waiting(RunState(attempt=PHASE), Decision(actions=(), why="", waiting=WaitKind(waiting)), **WHERE) is None


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"webhook": "example.org/x"}, "[notify] webhook: must be an http or https address"),
        ({"webhook": "file:///etc/passwd"}, "[notify] webhook: must be"),
        ({"on": ["done", "faild"]}, "[notify] on: must be one of done, failed, waiting, limit, morning, not 'faild'"),
        ({"desktop": "yes"}, "[notify] desktop: "),
        ({"morning": "8am"}, "[notify] morning: must be a time like 08:00"),
    ],
)
def test_notification_settings_without_effect_are_refused(table: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsError) as error:
        settle([Layer(origin="runplan.toml", values={"notify": table})])
    assert f"runplan.toml: {why}" in str(error.value)


def test_settings_choose_channels_and_events() -> None:
    table: dict[str, object] = {"command": "mail me", "webhook": "https://example.org/x?y", "desktop": True, "on": []}
    notify = settle([Layer(origin="runplan.toml", values={"notify": table})]).settings.notify
    assert (notify.command, notify.webhook, notify.desktop, notify.on) == (*list(table.values())[:3], ())
    assert settle([]).settings.notify.on == ("done", "failed", "waiting", "limit", "morning")


def test_a_person_is_told_of_each_wait_for_a_person_that_none_has_asked_for() -> None:
    """A lost key is told of by a notice of its own."""
    waits = {kind: wait_of(kind) for kind in WaitKind if kind is not WaitKind.KEY}
    told = {kind for kind, wait in waits.items() if wait.is_notified}
    assert told == {kind for kind, wait in waits.items() if wait.is_for_person and not wait.is_asked}
    assert WaitKind.CRASHED in told
