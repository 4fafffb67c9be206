"""`runplan.open`: the Python interface does what its page shows."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import runplan
from runplan.app.operations.model import Accepted, Declined
from runplan.domain.errors import RefusedEarly, UsageError
from tests.support.cli import Project, set_up, work

pytestmark = pytest.mark.promise

PAGE = Path(__file__).parents[2] / "docs/python.md"


def test_the_code_of_the_page_runs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    set_up(project, agent=work())
    code = "\n".join(re.findall(r"(?s)```python\n(.*?)```", PAGE.read_text(encoding="utf-8")))
    shown: dict[str, Any] = {}
    exec(code.replace('open(".")', "open(place, env=env)"), {"place": project.path, "env": project.env}, shown)
    answer = shown["answer"]
    assert isinstance(answer, Accepted)
    assert answer.is_ended
    assert project.landed() == ["1"]
    assert capsys.readouterr().out.splitlines() == re.findall(r"print\(.*\)  # (.*)", code)
    (answered,) = project.bodies("Answered")
    assert answered["by"] == "Uma User (api)"


def test_threads_may_share_a_repository(project: Project) -> None:
    set_up(project, agent=work())
    repository = runplan.open(project.path, env=project.env)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: repository.stop(), range(8)))
    assert answers == [Declined(notices=("Nothing to stop here",))] * 8


def test_an_agent_and_a_null_character_are_refused(project: Project) -> None:
    set_up(project, agent=work())
    with pytest.raises(RefusedEarly, match=r"stop does not run inside an agent"):
        runplan.open(project.path, env={**project.env, "RUNPLAN_AGENT": "1"}).stop()
    with pytest.raises(UsageError, match="null character"):
        runplan.open(project.path, env=project.env).stop("a\0b")
    assert project.events() == []
