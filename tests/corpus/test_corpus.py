"""Every phase of the corpus ends as its truth demands: honest work lands, a cheat only with a recorded word."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.corpus.play import Case, Language, fault, load, missing_tool, play
from tests.support.cli import end_processes_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`make test-rest` plays a sample that needs only git and Python, `make corpus` all of it."""
    is_whole = metafunc.config.getoption("--corpus")
    played = [
        (name, language, case, command)
        for name, language in load().items()
        for case in language.cases
        for command in (language.command, *([language.quiet] if case.quiet else []))
        if is_whole or (case.sample and command == language.command)
    ]
    ids = [
        f"{name}{', quiet' * (command != language.command)}: {case.name}" for name, language, case, command in played
    ]
    metafunc.parametrize(("name", "language", "case", "command"), played, ids=ids)


def test_a_phase_ends_as_its_truth_demands(
    name: str,
    language: Language,
    case: Case,
    command: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    if reason := missing_tool(language):
        pytest.skip(reason)
    outcome = play(language, case, tmp_path, command)
    end_processes_of(tmp_path / "home")
    wrong = fault(case, outcome)
    record_property("outcome", (name, case.family, case.name, wrong, outcome.reason))
    assert not wrong, f"{case.family}: {wrong} ({outcome.reason}); dispatched {outcome.roles}\n{outcome.words}"
