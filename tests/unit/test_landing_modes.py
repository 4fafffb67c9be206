"""The differences between landing modes are in one table."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from runplan.adapters.configuration.load import Layer
from runplan.adapters.git.repository import open_repository
from runplan.domain.errors import RefusedEarly
from runplan.domain.plan.model import parse_plan
from runplan.domain.settings.schema import RunSettings, uses_remote
from runplan.engine.landing import modes
from runplan.engine.loop.context import RepositoryContext
from runplan.engine.loop.preflight import require_landable
from tests.support.builders import a_plan, settle
from tests.support.repos import init_repo


def test_no_phase_of_a_pull_request_is_pushed_to_the_target(tmp_path: Path) -> None:
    settings = settle([Layer(origin="runplan.toml", values={"run": {"landing": "pr"}})]).settings
    repo = init_repo(tmp_path / "repo")
    here = open_repository(repo.path, env=repo.env)
    context = RepositoryContext(**asdict(here), cwd=repo.path, env=repo.env, settings=settings)
    plan = parse_plan(a_plan({"1": "⬚"}, {"1": "Execution: direct\n"}), path="plans/X.md")
    with pytest.raises(RefusedEarly, match="the run lands by pr; remove `Execution: direct`"):
        require_landable(context, plan)
    here.git.close()


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


@pytest.mark.parametrize(("mode", "protected"), [("cherry-pick", True), ("direct", False), ("pr", True)])
def test_a_direct_landing_on_a_protected_target_alone_is_refused_before_any_work(mode: str, *, protected: bool) -> None:
    modes.require_allowed(mode, run_settings(main_protected=protected))
    said = "protected: main does not accept pushes (run.main_protected); land by pr"
    with pytest.raises(RefusedEarly, match=re.escape(said)):
        modes.require_allowed("direct", run_settings(main_protected=True))
