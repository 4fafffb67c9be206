"""Nothing lands unproven: what is checked is the exact tree, by the checks that are asked for, every time."""

from pathlib import Path

import pytest

from tests.support.cli import Meanwhile, Project, a_plan, a_project, fix, set_up, verify, work

PHASES = ("1",)


@pytest.mark.promise
def test_a_fixer_takes_back_what_the_phase_does_not_permit(project: Project) -> None:
    """No commit that lands contains the secret or the edit of the plan."""
    token = "ghp_" + 36 * "a"
    project.agent(
        work('append = "plans/X.md"\ntext = "x"', f'write = "conf.txt"\ntext = "{token}"', 'commit = "Meddle"')
        + fix(
            """run = 'grep -q "conf.txt: seems to contain a GitHub token" $RUNPLAN_PROMPT'""",
            f'run = "! grep -q {token} $RUNPLAN_PROMPT .runplan.diff"',
            'git = ["checkout", "main", "plans/X.md"]',
            'git = ["rm", "-q", "conf.txt"]',
            'commit = "Take it back"',
        )
    )
    before = project.repo.head("main")
    project.start("1", "auto").exits(0)
    assert project.dispatched() == ["implement", "fix", "verify"]
    commits = project.repo.git("rev-list", f"{before}..main").split()
    assert len(commits) == 2, "the net change and the bookkeeping"
    assert token not in project.repo.git("log", "-p", f"{before}..main")
    assert project.repo.git("log", "--format=%s", "--skip=1", f"{before}..main") == "Step 1"
    for finding in ("plans/X.md: belongs to runplan", "conf.txt: seems to contain a GitHub token"):
        assert f"a fixer was told: {finding}" in project.show("main:reports/plan-x.md")


def test_a_phase_reworded_during_its_run_is_not_marked_done(project: Project, meanwhile: Meanwhile) -> None:
    set_up(project, agent=work() + verify(*meanwhile.pause("verify"), "pass_all = true"))
    running = meanwhile.begin(project, "verify", "start", "X", "1", "auto", "--foreground")
    project.plan(a_plan("1").replace("- [ ] Write 1.txt", "- [ ] Write 1.txt and more"))
    meanwhile.finish(running, "verify").exits(4, "phase 1 was reworded on main")
    assert project.runplan("reject", "X").code == 0
    assert project.runplan("status", "X", "--json").json["phases"][0]["status"] == "todo"
    assert project.leftovers() == ["refs/heads/runplan/x/1"]


def test_a_run_whose_landed_phase_was_reset_away_says_how_to_go_on(meanwhile: Meanwhile, tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.plan(a_plan("1", "2", depends={"2": "Phase 1"}))
    project.agent(work() + work(*meanwhile.pause("work"), phase="2"))
    before = project.repo.head()
    running = meanwhile.begin(project, "work", "start", "X", "finish", "auto", "--foreground")
    project.repo.git("reset", "-q", "--hard", before)
    ran = meanwhile.finish(running, "work").exits(4)
    hold = next(line for line in ran.err.splitlines() if "main shows as not done" in line)
    project.runplan(*hold.partition(": runplan ")[2].split()).exits(0)
    project.start("finish", "auto").exits(0)
    assert project.landed() == ["1", "2"]


def test_a_closed_terminal_does_not_end_a_run(project: Project) -> None:
    running = project.popen("start", "X", "1", "auto", "--foreground")
    assert running.stderr is not None
    running.stderr.close()
    assert running.wait(60) == 0
    assert project.landed() == ["1"]


@pytest.mark.promise
def test_output_to_a_full_disk_is_exit_5(project: Project) -> None:
    ran = project.runplan_from('exec "$@" >/dev/full', "status", "X")
    assert (ran.code, ran.err) == (5, "runplan: cannot write the output: No space left on device\n")


# --- gates -----------------------------------------------------------------------------------------------


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


def test_all_tests_run_where_a_narrowed_phase_turns_out_to_be_the_last(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1", "2")
    project.settings('[tests]\ncommand = "test ! -e 1.txt"\n')
    project.plan(a_plan("1", "2").replace("Step 1\n\n", "Step 1\n\nTests: `true`\n\n"))
    assert project.start("1").code == 4
    plan = project.show("main:plans/X.md") + "\n"
    project.plan(plan.replace("| 2 — Step 2 | ⬚ |", "| 2 — Step 2 | ✅ Done |"))
    while (ended := project.runplan("approve", "X")).code == 4:  # the target has moved
        pass
    assert (ended.code, project.landed()) == (1, [])
    gates = [body["argv"][-1] for body in project.bodies("DispatchStarted") if body["role"] == "gate"]
    assert ["test ! -e" in gate for gate in gates[:2]] == [False, True]


def test_a_junit_file_of_an_earlier_run_does_not_count(project: Project) -> None:
    check = "test -e 1.txt || { mkdir -p out; echo '<testsuite><testcase name=\"a\"/></testsuite>' >out/a.xml; }"
    project.repo.commit("A check", **{"check.sh": f"{check}\n", ".gitignore": "out/\n"})
    tests = '[tests]\ncommand = "sh check.sh"\njunit = ["out/**/*.xml"]\n'
    project.settings(f'[run]\nclean = "untracked"\nmax_fix_cycles = 0\n{tests}')
    project.start("1", "auto").ends(1, "runplan: failed: tests-unfinished", "no file matches tests.junit")


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
