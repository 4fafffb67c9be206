"""The words after PLAN: whole tokens, any case, any order."""

from itertools import permutations

import pytest

from runplan.domain.errors import NotFound, UsageError
from runplan.domain.settings.options import Options, in_plan, parse_words

PHASES = ("1", "4a", "4b", "P1.A")


def parsed(words: str) -> Options:
    return in_plan(parse_words(words.split()), PHASES)


def refusal(*words: str, phases: tuple[str, ...] = PHASES) -> str:
    with pytest.raises((UsageError, NotFound)) as error:
        in_plan(parse_words(words), phases)
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("finish auto pr", Options(finish=True, auto=True, landing="pr"), id="A1"),
        pytest.param("PR auto", Options(auto=True, landing="pr"), id="A2"),
        pytest.param("finish", Options(finish=True), id="A4-A5-A10"),
        pytest.param("FiNiSh AuTo", Options(finish=True, auto=True), id="A11"),
        pytest.param("4b every 4h now", Options(auto=True, every="4h", now=True), id="A13"),
        pytest.param("", Options(), id="nothing"),
        pytest.param("4b", Options(phase="4b"), id="phase"),
        pytest.param("p1.a direct", Options(phase="P1.A", landing="direct"), id="phase-case"),
        pytest.param("Cherry-Pick", Options(landing="cherry-pick"), id="cherry-pick"),
        pytest.param("auto auto pr pr 1 1", Options(phase="1", auto=True, landing="pr"), id="twice"),
        pytest.param("now", Options(now=True), id="now"),
    ],
)
def test_words_are_parsed(words: str, expected: Options) -> None:
    assert parsed(words) == expected


def test_the_order_of_words_does_not_matter() -> None:
    chunks = ("4b", "auto", "pr", "every day at 9am", "now")
    read = {parsed(" ".join(order)) for order in permutations(chunks)}
    assert read == {Options(auto=True, landing="pr", every="day at 9am", now=True)}


@pytest.mark.parametrize(
    ("words", "every"),
    [
        (("every", "4h"), "4h"),
        (("every", "30M"), "30m"),
        (("every", "day", "at", "9am"), "day at 9am"),
        (("every", "day at 9am"), "day at 9am"),
        (("every", "Day", "AT", "9", "AM", "auto"), "day at 9am"),
        (("every weekday at 14:00",), "weekday at 14:00"),
        (("every", "monday", "at", "8", "4b"), "monday at 8am"),
        (("every", "0", "14", "*", "*", "1-5"), "0 14 * * 1-5"),
        (("every", "*/5 * * * MON-FRI", "now"), "*/5 * * * mon-fri"),
    ],
)
def test_every_takes_the_words_of_its_schedule_quoted_or_not(words: tuple[str, ...], every: str) -> None:
    """A schedule implies auto and drops the phase."""
    found = in_plan(parse_words(words), PHASES)
    assert (found.every, found.auto, found.phase, found.mode) == (every, True, "", "next")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param("every", "Missing schedule. Try: 4h, hour, day at 9am", id="no-schedule"),
        pytest.param("every fortnight", 'Unknown schedule "fortnight"', id="F25"),
        pytest.param("every 0m", "Unknown schedule", id="F26a"),
        pytest.param("every day at 25:00", "Unknown schedule", id="F26b"),
        pytest.param("every day auto now", 'Unknown schedule "day auto now"', id="day-without-at"),
        pytest.param("every 4h every 2h", "one schedule", id="two-schedules"),
        pytest.param("finish every 4h", "finish with every", id="A17"),
        pytest.param("every 4h finish", "finish with every", id="A17-turned"),
        pytest.param("pr direct", "pr and direct: a run lands one way", id="pr-direct"),
        pytest.param("cherry-pick pr", "cherry-pick and pr: a run lands one way", id="pick-pr"),
        pytest.param("4a 4b", "4a and 4b: name one phase", id="two-phases"),
        pytest.param("4a finish", "4a with finish", id="phase-finish"),
        pytest.param("9", "9: no such phase; the phases are 1, 4a, 4b, P1.A", id="D37"),
        pytest.param("fnish", "the phases are 1, 4a, 4b, P1.A; did you mean finish?", id="misspelt"),
        pytest.param("all", "all: no such word or phase; the phases are 1,", id="unknown-word"),
        pytest.param("SPRINT", "SPRINT: no such word", id="a word in a word"),
        pytest.param("9 every 4h", "9: no such phase", id="unknown-with-every"),
        pytest.param("Stop", "Stop: a command of its own; say runplan stop", id="A14"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: str, message: str) -> None:
    assert message in refusal(*words.split())


def test_ids_that_differ_only_in_case_must_be_written_exactly() -> None:
    assert in_plan(parse_words(["1A"]), ["1a", "1A"]).phase == "1A"
    assert "no such word or phase" in refusal("ab", phases=("aB", "Ab"))
