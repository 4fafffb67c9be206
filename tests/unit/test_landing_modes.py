"""The differences between landing modes are in one table."""

import re
from pathlib import Path
from typing import Any

import pytest

from runplan.errors import RefusedEarly
from runplan.landing import modes
from runplan.settings.load import Layer
from runplan.settings.schema import RunSettings, uses_remote
from tests.support.builders import settle

PACKAGE = Path(__file__).parents[2] / "runplan"


def run_settings(**run: Any) -> RunSettings:
    return settle([Layer(origin="runplan.toml", values={"run": run})]).settings.run


@pytest.mark.parametrize(
    ("mode", "ref", "is_remote"),
    [
        ("cherry-pick", "refs/heads/trunk", False),
        ("direct", "refs/remotes/up/trunk", True),
        ("pr", "refs/remotes/up/trunk", True),
    ],
)
def test_the_mode_decides_which_ref_shows_the_target(mode: str, ref: str, is_remote: bool) -> None:
    run = run_settings(landing=mode, target="trunk", remote="up")
    assert (run.target_ref, uses_remote(mode)) == (ref, is_remote)


@pytest.mark.parametrize(
    ("mode", "protected", "said"),
    [
        ("cherry-pick", True, ""),
        ("direct", False, ""),
        ("direct", True, "protected: main does not accept pushes (run.main_protected); land by pr"),
        ("pr", True, ""),
    ],
)
def test_an_unusable_landing_mode_is_refused_before_any_work(mode: str, protected: bool, said: str) -> None:
    run = run_settings(main_protected=protected)
    if not said:
        return modes.require_allowed(mode, run)
    with pytest.raises(RefusedEarly, match=re.escape(said)):
        modes.require_allowed(mode, run)
    return None
