"""A verifier gets the change as a file in its worktree, and has its own wall limit."""

from pathlib import Path

import pytest

from runplan.adapters.agents.prompts import SMALL_DIFF
from runplan.domain.names import DIFF_FILE
from tests.support.cli import Project, a_plan, steps, verify

PHASES = ("1",)
PLANTED = "total = 0  # planted fault"


@pytest.mark.parametrize("lines", [1, SMALL_DIFF], ids=["small", "large"])
def test_a_verifier_gets_the_change_as_a_file_that_git_does_not_see(
    project: Project, tmp_path: Path, lines: int
) -> None:
    text = "x\\n" * (lines - 1) + PLANTED
    look = f'run = "cp {DIFF_FILE} {tmp_path}/diff && git status --porcelain >{tmp_path}/status"'
    project.agent(steps(f'write = "1.txt"\ntext = "{text}\\n"', 'commit = "Write 1"') + verify(look, "pass_all = true"))
    project.start("1", "auto").exits(0)
    diff = (tmp_path / "diff").read_text()
    assert (diff.startswith("diff --git a/1.txt b/1.txt\n"), f"+{PLANTED}\n" in diff) == (True, True)
    (prompt,) = project.prompts("verify")
    assert f": {DIFF_FILE}\n" in prompt
    assert (PLANTED in prompt) == (lines == 1), "a small diff is in the prompt too"
    assert (tmp_path / "status").read_text() == ""


@pytest.mark.promise
def test_unresolved_evidence_is_asked_for_once_more_without_a_fix_cycle(project: Project, tmp_path: Path) -> None:
    first = f'pass_all = true\nevidence = "see 2.txt:1"\nonce = "{tmp_path}/first"'
    project.agent(steps('write = "1.txt"\ntext = "one\\n"') + verify("pass_all = true") + verify(first))
    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["implement", "verify", "verify"]
    assert "- W1: see 2.txt:1: 2.txt:1 is not a file of the tree\n" in project.prompts()[-1]
    report = project.repo.git("show", "main:reports/plan-x.md")
    assert "Warning: the verifier was asked once more, because its evidence for W1 did not resolve" in report
    assert "| pass | 1.txt |" in report


def test_an_item_does_not_pass_without_a_file_that_it_names_unless_its_absence_is_stated(
    project: Project, tmp_path: Path
) -> None:
    """The other names are of a file that the work removes, one in a folder, and one that the work makes git ignore."""
    item = "Write `docs/z.md`, remove `old.py`, see `deep.txt`, generate `out/list.csv`"
    project.plan(a_plan("1").replace("Write 1.txt", item).replace("— Step 1\n", "— Step 1\n\nSign-off: required\n"))
    project.repo.commit("Begin", **{"old.py": "x\n", "a/deep.txt": "x\n"})
    work = steps('run = "rm old.py; echo /out/ >.gitignore"', 'write = "1.txt"\ntext = "one\\n"')
    absent = 'pass_all = true\nevidence = ["1.txt", {kind = "file", ref = "docs/z.md", absent = true}]'
    project.agent(work + verify(absent) + verify(f'pass_all = true\nonce = "{tmp_path}/first"'))
    project.start("1", "auto").exits(4, "Sign-off: required; W1 passes without docs/z.md, which it names")
    first, second = project.prompts("verify")
    missing = first.partition("## Missing files\n")[2]
    assert [line for line in missing.splitlines() if line.startswith("- ")] == ["- W1: docs/z.md"]
    assert "- W1: docs/z.md, which the item names, is not there\n" in second
    assert project.runplan("approve", "X").code == 0
    assert "| pass | 1.txt; docs/z.md (absent) |" in project.show("main:reports/plan-x.md")


def test_a_verifier_does_not_judge_its_own_work_in_a_phase_with_its_name(project: Project) -> None:
    project.agent(steps('write = "1.txt"'))
    project.plan(a_plan("1").replace("Step 1\n\n", "Step 1\n\nAgent: `other`\n\n"))
    project.settings('[agents.other]\nkind = "script"\nscript = "agent.toml"\n')
    assert project.start("auto", RUNPLAN_AGENTS_VERIFIER="other").code == 0
    started = [(body["role"], body["agent"]) for body in project.bodies("DispatchStarted")]
    assert started == [("implement", "other"), ("verify", "robot")]


def test_a_verifier_sees_the_instructions_of_before_and_gets_the_new_ones_as_a_file(project: Project) -> None:
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
