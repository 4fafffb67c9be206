"""Gates: every one of them passes on the exact tree, its run is on record, and nothing known runs twice."""

import hashlib
import re
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project, fix, verify, work

COUNTED = "echo $RUNPLAN_ROLE >>{place}/ran; test ! -e bad.txt"
TWO = """\
[tests]
command = "true"
[gates.lint]
command = "touch {place}/lint; for i in $(seq 200); do test -e {place}/types && break; sleep 0.05; done; {lint}"
parallel = true
[gates.types]
command = "touch {place}/types; for i in $(seq 200); do test -e {place}/lint && exit 0; sleep 0.05; done; exit 9"
parallel = true
"""
PHASES = ("1",)


def test_a_gate_is_recorded_with_argv_environment_time_code_output_and_tree(project: Project) -> None:
    project.settings('[tests]\ncommand = "echo three; exit 0"\n')
    assert project.start("1", "auto").code == 0
    (gate,) = project.bodies("GateJudged")
    ran = gate["ran"]
    begun, ended = [body for _, body in project.events() if body.get("id") == ran["dispatch"]]
    assert begun["argv"][-1].endswith("echo three; exit 0")
    assert begun["environment"] != ""
    assert (gate["code"], gate["tree"], ended["seconds"] > 0) == (0, begun["tree"], True)
    output = (project.path / ".git/runplan" / ran["file"]).read_bytes()
    assert output == b"three\n"
    assert ran["sha256"] == hashlib.sha256(output).hexdigest()


def test_gates_that_say_so_run_at_the_same_time_and_all_have_to_pass(project: Project, tmp_path: Path) -> None:
    """Each of them waits for the other, on the base and on the candidate."""
    lint = "grep -q 1 1.txt 2>/dev/null && test ! -e good.txt && echo untidy && exit 1; exit 0"
    project.settings(TWO.format(place=tmp_path, lint=lint))
    project.agent(work() + fix('write = "good.txt"\ntext = "x\\n"'))
    ran = project.start("1", "auto").exits(0)
    assert project.repo.git("log", "--format=%s", "-3").splitlines()[1] == "Step 1 (fix 1)"
    assert "  gate       lint, types …" in ran.err
    assert "  gate       lint failed: exit code 1" in ran.err
    answers = [(gate["name"], gate["answer"]) for gate in project.bodies("GateJudged")]
    assert answers[:3] == [("tests", "passed"), ("lint", "failed"), ("types", "passed")]
    assert answers[-2:] == [("lint", "passed"), ("types", "passed")]
    (fixer,) = [body for body in project.bodies("DispatchStarted") if body["role"] == "fix"]
    assert "lint: the checks failed" in fixer["complaint"]
    assert "Gate lint: " in project.show("main:reports/plan-x.md")


def test_a_check_does_not_run_again_on_the_same_tree_with_the_same_command_and_environment(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.settings(f'[tests]\ncommand = "{COUNTED.format(place=tmp_path)}"\nenv = ["FLAVOUR"]\n')
    project.agent(work() + verify("fail = ['W1']", "exit = 0") + fix("exit = 1") + work(phase="2"))
    count = tmp_path / "ran"
    assert project.start("1", "auto", FLAVOUR="a").last == "runplan: failed: agent-failed"
    assert count.read_text() == "baseline\ngate\n"
    assert project.start("1", "auto", FLAVOUR="a").code == 1, "the same work again"
    assert count.read_text() == "baseline\ngate\n"
    project.start("1", "auto", FLAVOUR="b")
    assert count.read_text() == "baseline\ngate\nbaseline\ngate\n"


def test_a_check_sees_no_key_of_its_caller(project: Project, tmp_path: Path) -> None:
    keys = {"GH_TOKEN": "ghp_x", "ANTHROPIC_API_KEY": "sk-x", "OPENAI_API_KEY": "sk-y", "DATABASE_URL": "mine"}
    project.settings(
        f'[tests]\ncommand = "env >{tmp_path}/seen"\nenv = ["GH_TOKEN", "DATABASE_URL"]\n'
        f'[gates.one]\ncommand = "env >{tmp_path}/one"\nparallel = true\n'
        f'[gates.two]\ncommand = "env >{tmp_path}/two"\nparallel = true\n'
    )
    assert project.start("1", "auto", **keys).code == 0
    for name in ("seen", "one", "two"):
        seen = (tmp_path / name).read_text()
        assert "DATABASE_URL=mine" in seen
        assert not [key for key in keys if key != "DATABASE_URL" and f"{key}=" in seen]


FLAKY = """\
if test -e 1.txt && ! test -e {place}/once; then touch {place}/once
    echo "=== short test summary info ==="; echo "FAILED t.py::test_a - x"; echo "=== 1 failed, 1 passed in 0.01s ==="
    exit 1
fi
echo "=== 2 passed in 0.01s ==="
"""


@pytest.mark.promise
def test_only_the_failed_tests_run_again_with_the_command_for_it(project: Project, tmp_path: Path) -> None:
    project.repo.commit("A check", **{"check.sh": FLAKY.format(place=tmp_path)})
    rerun = f"echo {{tests}} >>{tmp_path}/again; echo '=== 1 passed in 0.01s ==='"
    project.settings(f'[tests]\ncommand = "sh check.sh"\nrerun = "{rerun}"\n')
    project.start("1", "auto").exits(0)
    assert [gate["answer"] for gate in project.bodies("GateJudged")] == ["failed", "passed"]
    assert "flaky, passed when run again: t.py::test_a" in project.show("main:reports/plan-x.md")
    assert (tmp_path / "again").read_text() == "t.py::test_a\n"


JUNIT = """\
mkdir -p out; tests='<testcase classname="t" name="one"/>'
test -e 1.txt || tests="$tests<testcase classname=\\"t\\" name=\\"two\\"/>"
for n in $(seq 501 1100); do echo "<testsuite><testcase name=\\"n$n\\"/></testsuite>" >out/$n.xml; done
echo "<testsuite>$tests</testsuite>" >out/z.xml; echo 'Everything is fine.'
"""


def test_a_test_that_is_missing_in_the_junit_file_fails_by_name(project: Project) -> None:
    """The exit code is 0, the output says nothing, and the file is the last of 601."""
    project.repo.commit("A check", **{"check.sh": JUNIT, ".gitignore": "out/\n"})
    project.settings('[run]\nmax_fix_cycles = 0\n[tests]\ncommand = "sh check.sh"\njunit = ["out/*.xml"]\n')
    ran = project.start("1", "auto")
    assert ran.last == "runplan: failed: tests-failed", ran.err
    assert "1 test does not run any more: t" in ran.err
    assert project.bodies("GateJudged")[-1]["differences"][0][:2] == ["missing", 1]


def test_a_junit_file_of_an_earlier_run_does_not_count(project: Project) -> None:
    check = "test -e 1.txt || { mkdir -p out; echo '<testsuite><testcase name=\"a\"/></testsuite>' >out/a.xml; }"
    project.repo.commit("A check", **{"check.sh": f"{check}\n", ".gitignore": "out/\n"})
    project.settings(
        '[run]\nclean = "untracked"\nmax_fix_cycles = 0\n[tests]\ncommand = "sh check.sh"\njunit = ["out/**/*.xml"]\n'
    )
    ran = project.start("1", "auto")
    assert ran.last == "runplan: failed: tests-unfinished", ran.err
    assert "no file matches tests.junit" in ran.err


def test_a_gate_whose_worktree_was_removed_runs_again_and_the_removal_is_told(project: Project, tmp_path: Path) -> None:
    project.settings(
        f"""[tests]\ncommand = 'test ! -e 1.txt || ! mkdir {tmp_path}/once || {{ rm -r "$PWD"; exit 1; }}'"""
    )
    ran = project.start("1", "auto").exits(0)
    assert [gate["answer"] for gate in project.bodies("GateJudged")] == ["passed"]
    assert re.search(r"gate       left no result: the worktree \S+-proof was removed meanwhile\n", ran.err)
