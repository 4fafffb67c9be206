"""What one run learns is told to the agents of the next, until a person forgets it."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, fix, steps, work

LEARNED = 'memory = ["Dates are UTC here."], next_steps = ["Tidy up"]'
TAUGHT = f'return = {{status = "done", summary = "did it", {LEARNED}}}'
MADE = f'return = {{status = "done", artifacts = ["1.txt", "../x", "./y"], {LEARNED}}}'


def lessons(project: Project) -> list[tuple[str, str]]:
    return [(lesson["source"], lesson["text"]) for lesson in project.runplan("memory", "--json").json]


def written(phase: str) -> str:
    return f'write = "{phase}.txt"\ntext = "{phase}\\n"'


@pytest.mark.promise
def test_the_second_run_is_told_what_the_first_one_learned(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2", "3")
    project.agent(steps(written("1"), MADE) + fix('append = "1.txt"\ntext = "docs\\n"') + work(phase="2"))
    assert project.start("1").code == 4
    assert "What earlier runs taught" not in project.prompts("implement")[0]
    shown = project.runplan("diff", "X").out
    made = ("Made: 1.txt", "Made: ../x (not in the tree)", "Made: ./y (not in the tree)", "Next: Tidy up")
    assert "\n  ".join(("Remarks of the agent:", *made, "To remember: Dates are UTC here.\n")) in shown
    assert lessons(project) == []  # it has not landed
    assert project.runplan("reject", "X", "-m", "Say it in the docs, too.").code == 4
    assert project.runplan("approve", "X").code == 0
    assert lessons(project) == [
        ("agent", "Dates are UTC here."),
        ("rejection", "a person rejected work: Say it in the docs, too."),
    ]
    report = project.show("main:reports/plan-x.md")
    listed = "\n- ".join(("### Remarks of the Agent\n", *made, "To remember: Dates are UTC here"))
    assert listed in report, "a fixer that has nothing to add leaves them"

    assert project.start("2", "auto").code == 0
    (told,) = project.prompts("implement")[-1:]
    assert "=== begin of lessons ===\n- agent: Dates are UTC here.\n- rejection: a person rejected work: " in told
    (lesson,) = [row["id"] for row in project.runplan("memory", "--json").json if row["source"] == "agent"]
    assert project.runplan("memory", "--forget", "nothing").code == 3
    assert project.runplan("memory", "--forget", lesson).last == "runplan: forgotten: Dates are UTC here."
    project.agent(steps(written("3"), TAUGHT, phase="3"))  # it is learned again, and stays forgotten
    assert project.start("3", "auto", "--no-memory").code == 0
    assert "What earlier runs taught" not in project.prompts("implement")[-1]
    assert [source for source, _ in lessons(project)] == ["rejection"]
    assert project.runplan("memory", "--clear").code == 0
    assert project.runplan("memory").out.startswith("Nothing yet.")
