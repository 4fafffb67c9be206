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


def test_a_failed_or_refused_run_names_phase_and_reason() -> None:
    failure = e.PhaseFailed(phase="2", reason=Reason.TESTS_FAILED, step=PhaseStep.GATE, detail="3 of 40 tests fail")
    state = replace(ended("failed", "tests-failed", "3 of 40 tests fail"), attempt=replace(PHASE, failure=failure))
    notice = of_ending(state, **WHERE)
    assert notice is not None
    assert (notice.kind, notice.phase, notice.reason) == ("failed", "2", "tests-failed")
    assert notice.title == "plans/x.md: phase 2 failed (tests-failed)"
    assert notice.text.startswith("3 of 40 tests fail. Read the test output")
    refused = of_ending(ended("refused", "blocked", "phase 3 needs 2"), **WHERE)
    assert refused is not None
    assert (refused.kind, refused.title) == ("failed", "plans/x.md: failed (blocked)")


@pytest.mark.parametrize("state", [ended("stopped"), ended("nothing-to-do"), RunState()])
def test_an_ending_that_the_user_caused_sends_no_notice(state: RunState) -> None:
    assert of_ending(state, **WHERE) is None


@pytest.mark.parametrize(
    ("waiting", "about", "command", "text"),
    [
        ("approval", "", "diff plans/x.md 2", "Approve: runplan approve plans/x.md 2; Request changes:"),
        ("question", "which port?", "answer plans/x.md TEXT", "which port?. Answer: runplan answer plans/x.md TEXT."),
        (
            "checkout",
            "a.txt is edited",
            "explain plans/x.md 2",
            "a.txt is edited. Explain: runplan explain plans/x.md 2; Continue: runplan retry plans/x.md.",
        ),
    ],
)
def test_a_run_that_waits_for_a_person_says_what_to_type(waiting: str, about: str, command: str, text: str) -> None:
    decision = Decision(actions=(), why="it waits", waiting=WaitKind(waiting), about=about)
    notice = of_waiting(RunState(attempt=PHASE), decision, **WHERE)
    assert notice is not None
    assert (notice.kind, notice.phase, notice.reason) == ("waiting", "2", waiting)
    assert (notice.title, notice.command) == (f"plans/x.md: phase 2 waits for you ({waiting})", f"runplan {command}")
    assert text in notice.text


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
