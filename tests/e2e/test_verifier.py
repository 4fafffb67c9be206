"""A verifier gets the change as a file in its worktree, and has its own wall limit."""

import json
from pathlib import Path

import pytest

from runplan.adapters.agents.prompts import SMALL_DIFF
from runplan.domain.names import DIFF_FILE
from tests.support.cli import SETTINGS, Project, a_plan, a_project, steps, verify

PLANTED = "total = 0  # planted fault"

#: A verifier without a shell: it reads its prompt and one file, and notes what it got.
READER = """\
import json, os, pathlib, subprocess, sys

prompt, diff = sys.stdin.read(), pathlib.Path("{file}").read_text()
status = subprocess.run(["git", "status", "--porcelain"], capture_output=True).stdout.decode()
pathlib.Path("{notes}").write_text(json.dumps({{"prompt": prompt, "diff": diff, "status": status}}))
result = "fail" if "+{planted}" in diff else "pass"
items = [{{"item": "W1", "result": result, "evidence": "1.txt:1 of the diff"}}]
pathlib.Path(os.environ["RUNPLAN_RETURN"]).write_text(
    json.dumps({{"status": "done", "summary": "Read the diff.", "items": items}})
)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = a_project(tmp_path, "1")
    reader = READER.format(file=DIFF_FILE, notes=tmp_path / "notes.json", planted=PLANTED)
    (found.home / "reader.py").write_text(reader)
    agent = f'[agents.reader]\nkind = "command"\nargv = ["python3", "{found.home / "reader.py"}"]\n'
    text = SETTINGS.replace('verifier = "robot"', 'verifier = "reader"') + agent
    found.commit_file("runplan.toml", f"{text}[run]\nmax_fix_cycles = 0\n")
    return found


@pytest.mark.parametrize("lines", [1, SMALL_DIFF], ids=["small", "large"])
def test_a_verifier_without_a_shell_finds_the_fault_in_the_diff(project: Project, tmp_path: Path, lines: int) -> None:
    text = "x\\n" * (lines - 1) + PLANTED
    project.agent(steps(f'write = "1.txt"\ntext = "{text}\\n"', 'commit = "Write 1"'))
    project.start("1", "auto").ends(1, "runplan: failed: verification-failed")
    notes = json.loads((tmp_path / "notes.json").read_text())
    assert f"+{PLANTED}\n" in notes["diff"]
    assert notes["diff"].startswith("diff --git a/1.txt b/1.txt\n")
    assert f": {DIFF_FILE}\n" in notes["prompt"]
    assert (PLANTED in notes["prompt"]) == (lines == 1), "a small diff is in the prompt too"
    assert notes["status"] == "", "git does not see the file"


@pytest.mark.promise
def test_unresolved_evidence_is_asked_for_once_more_without_a_fix_cycle(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    first = f'pass_all = true\nevidence = "see 2.txt:1"\nonce = "{tmp_path}/first"'
    project.agent(steps('write = "1.txt"\ntext = "one\\n"') + verify("pass_all = true") + verify(first))
    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["implement", "verify", "verify"]
    assert "- W1: see 2.txt:1: 2.txt:1 is not a file of the tree\n" in project.prompts()[-1]
    report = project.repo.git("show", "main:reports/plan-x.md")
    assert "Warning: the verifier was asked once more, because its evidence for W1 did not resolve" in report
    assert "| pass | 1.txt |" in report


def test_a_verifier_sees_the_instructions_of_before_and_gets_the_new_ones_as_a_file(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.commit_file("CLAUDE.md", "Be strict.\n")
    allows = "\n\nAllows: CLAUDE.md, .claude/\n\n### Work Items"
    project.commit_file("plans/X.md", a_plan("1").replace("\n\n### Work Items", allows))
    project.settings("[tests]\ncommand = 'test ! -e 1.txt || grep kind CLAUDE.md'\n")
    changes = ('append = "CLAUDE.md"\ntext = "Be kind.\\n"', 'write = ".claude/settings.json"\ntext = "{}"')
    look = (
        'cat CLAUDE.md "${RUNPLAN_RETURN%/*}/instructions-2.txt"; ls .claude; grep "^- CLAUDE.md: /" "$RUNPLAN_PROMPT"'
    )
    cited = 'pass_all = true\nevidence = "CLAUDE.md:2"'
    project.agent(steps('write = "1.txt"\ntext = "one\\n"', *changes) + verify(f"run = '''{look}'''", cited))
    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["baseline", "implement", "gate", "verify"]
    logs = sorted(project.repo.path.glob(".git/runplan/dispatch/*/out.log"))
    assert "\nBe strict.\nBe strict.\nBe kind.\n- CLAUDE.md: " in logs[-1].read_text()
    assert project.show("main:CLAUDE.md") == "Be strict.\nBe kind."


def test_a_verifier_has_its_own_wall_limit(project: Project) -> None:
    project.settings('[limits]\nverify_wall = "1s"\n')
    project.agent(steps('write = "1.txt"\ntext = "1\\n"', "sleep = 1.2") + verify("sleep = 30"))
    project.start("1", "auto").ends(1, "runplan: failed: timeout")
    assert project.dispatched() == ["implement", "verify"]
