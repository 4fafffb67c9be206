"""A secret of an agent is in no log, no journal, no report and no prompt of another agent."""

from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, verify

pytestmark = pytest.mark.promise

SECRET = "hunter2-hunter2"
TOKEN = "ghp_" + 36 * "a"


def leaks(project: Project, *, but: tuple[str, ...]) -> list[str]:
    """Every file under the state and the reports that holds one of them."""
    places = [*(project.path / ".git/runplan").rglob("*"), *(project.path / "reports").rglob("*")]
    words = (SECRET.encode(), TOKEN.encode())
    files = [path for path in places if path.is_file() and path.name not in but]
    return [str(path) for path in files if any(word in path.read_bytes() for word in words)]


def test_evidence_is_redacted_in_journal_report_and_prompts(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", SH_API_KEY=SECRET)
    project.shell_agent(
        'echo "$SH_API_KEY"; cat "$RUNPLAN_PROMPT"; echo x >>1.txt; git add 1.txt; git commit -qm "with $SH_API_KEY"\n',
        'env = ["SH_API_KEY"]\n[tests]\ncommand = "echo $SH_API_KEY"\n',
    )
    project.agent(verify(f'fail = ["W1"]\nevidence = "1.txt holds {SECRET} and {TOKEN}"\nsummary = "with {TOKEN}"'))

    ran = project.start("1", "auto").exits(1)
    assert "fix" in project.dispatched()
    verdicts = project.bodies("VerdictGiven")
    assert verdicts[0]["items"][0][2] == "1.txt holds [redacted] and [redacted]"
    assert leaks(project, but=("return.json", "git.trace", "steps.sh")) == []
    report = project.runplan("report", "X")
    assert "1.txt holds [redacted]" in report.out
    assert not any(word in ran.err + report.out for word in (SECRET, TOKEN))


def test_the_password_of_a_proxy_is_redacted(tmp_path: Path) -> None:
    """The tests have the variables that tests.env names, and what they print goes to the fixer."""
    project = a_project(tmp_path, "1", HTTPS_PROXY=f"http://uma:{SECRET}@proxy.invalid:3128")
    fails = "test ! -e 1.txt || { echo through $HTTPS_PROXY; exit 1; }"
    project.settings(f'[tests]\ncommand = "{fails}"\nenv = ["HTTPS_PROXY"]\n')

    ran = project.start("1", "auto").exits(1)
    assert leaks(project, but=()) == []
    assert SECRET not in ran.err
    assert any("through http://uma:[redacted]@proxy.invalid:3128" in prompt for prompt in project.prompts("fix"))
