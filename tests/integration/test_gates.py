"""The results of checks, read from what their processes left."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.domain.run import events as e
from runplan.domain.run.attempt_parts import SetupDoubted, SetupReused
from runplan.domain.run.dispatch import Ending
from runplan.domain.run.kinds import Role
from runplan.domain.run.state import fold
from runplan.domain.settings.schema import Settings
from runplan.engine.steps.gates import judge_baseline
from tests.support.builders import LEASED, started


@pytest.mark.parametrize(("code", "output"), [(1, "all passed\n"), (0, "half\n")], ids=["red", "unfinished"])
def test_a_baseline_that_fails_with_reused_products_runs_again(tmp_path: Path, code: int, output: str) -> None:
    (tmp_path / "dispatch/d").mkdir(parents=True)
    (tmp_path / "dispatch/d/out.log").write_text(output)
    state = fold(
        [
            started(setup="make deps"),
            e.PhaseChosen(tip="c0", phase="1"),
            LEASED,
            SetupReused(tree="t0"),
            e.DispatchStarted(id="d", role=Role.BASELINE, agent="", cycle=1, tree="t0", gates=(e.TESTS,)),
            e.DispatchEnded(id="d", role=Role.BASELINE, ending=Ending.EXITED, code=code),
        ]
    )
    dispatches = SimpleNamespace(directory=lambda id_: tmp_path / "dispatch" / id_)
    settings = Settings(tests=replace(Settings().tests, summary="all passed"))
    proof = SimpleNamespace(path=tmp_path / "proof")
    context: Any = SimpleNamespace(dispatches=dispatches, settings=settings, proof=proof)
    (doubted,) = judge_baseline(state, context)
    assert isinstance(doubted, SetupDoubted)
