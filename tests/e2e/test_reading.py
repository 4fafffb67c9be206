"""What is told of plans and runs: the same facts for people and for scripts, cheaply, and changing nothing."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from runplan.run.decide import decide
from runplan.run.events import from_json
from runplan.run.state import fold
from tests.support.cli import RUNPLAN, Project, a_plan, a_project, copied, ended, writes
from tests.support.imports import imported
from tests.support.scripts import Meanwhile, set_up, work

if TYPE_CHECKING:
    from pathlib import Path

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
#: What costs more to import than a reading verb may take.
SLOW_TO_IMPORT = (
    "filelock",
    "git",
    "gitdb",
    "psutil",
    "structlog",
    "asyncio",
    "github",
    "apscheduler",
    "logging",
    "runplan.agents.clis",
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a failed attempt kept aside, phase 1 landed, and phase 2 waiting for approval; only read."""
    project = a_project(tmp_path_factory.mktemp("told"), "1", "2")
    set_up(
        project,
        plan=a_plan("1", "2", "3", depends={"2": "Phase 1.", "3": "Phases 1 and 2."}),
        agent=work('append = "1.txt"\ntext = "more\\n"', 'commit = "More"', "exit = 3"),
        settings='[tests]\ncommand = "true"\n',
    )
    assert project.start("1", "auto").code == 1
    set_up(project, agent=writes("1", "2"))
    assert project.start("1", "auto").code == 0
    assert project.start("finish").code == 4
    return project


# --- status -------------------------------------------------------------------------------------------


def test_status_json_has_exactly_the_promised_fields(told: Project) -> None:
    view = told.runplan("status", "X", "--json").json
    fields = ["plan", "title", "status", "landing", "phases", "next", "run", "claim", "schedule", "daemon"]
    assert list(view) == fields
    assert {name: view[name] for name in ("plan", "title", "status", "landing", "next", "schedule")} == {
        "plan": "plans/X.md",
        "title": "X",
        "status": "active",
        "landing": "cherry-pick",
        "next": "2",
        "schedule": None,
    }
    commit = told.repo.head("main~1")[:7]
    assert view["phases"] == [
        {"id": "1", "title": "Step 1", "status": "done", "commit": commit, "depends": [], "blocked_by": []},
        {"id": "2", "title": "Step 2", "status": "in-progress", "commit": None, "depends": ["1"], "blocked_by": []},
        {"id": "3", "title": "Step 3", "status": "todo", "commit": None, "depends": ["1", "2"], "blocked_by": ["2"]},
    ]
    run = view["run"]
    assert TIME.fullmatch(run.pop("since"))
    assert re.fullmatch(r"r[0-9a-f]{8}", run.pop("id"))
    stuck = run.pop("stuck")
    assert run == {
        "state": "waiting",
        "phase": "2",
        "step": "land",
        "attempt": 1,
        "outcome": None,
        "reason": None,
        "waiting_for": "approval",
        "about": None,
        "wake": None,
        "asked": None,
        "agent": None,
        "version": None,
        "dispatched": None,
        "output": None,
        "context": None,
        "handover": None,
        "retries": 0,
        "tokens": 0,
        "usd": 0.0,
        "lanes": [],
    }
    assert stuck["level"] == "look"
    assert re.fullmatch(r"Needs attention: phase 2, land, waiting \d+s for approval", stuck["sentence"])
    assert list(view["claim"]) == ["owner", "alive"]
    assert view["claim"]["alive"] is False


def test_status_without_a_plan_lists_all_and_without_runs_has_none(told: Project, tmp_path: Path) -> None:
    (listed,), alone = told.runplan("status", "--json").json, told.runplan("status", "X", "--json").json
    assert [one["run"].pop("stuck")["level"] for one in (listed, alone)] == ["look", "look"]  # seconds may have passed
    assert listed == alone
    fresh = a_project(tmp_path, "1")
    (view,) = fresh.runplan("status", "--json").json
    assert (view["run"], view["claim"], view["next"]) == (None, None, "1")
    fresh.repo.write("plans/broken.md", "nothing\n")
    people = fresh.runplan("status")
    assert people.code == 0
    assert "plans/broken.md:1: no phases found" in people.out
    assert not (fresh.path / ".git/runplan").exists()


def test_status_for_people_says_where_things_are_and_what_helps(told: Project) -> None:
    lines = told.runplan("status", "X").out.splitlines()
    assert lines[0] == "X  (plans/X.md, active, 1 of 3 done)"
    assert [line.split()[:2] for line in lines[1:3]] == [["1", "Done"], ["2", "In"]]
    assert "After 2" in lines[3]
    assert re.fullmatch(r"  Needs attention: phase 2, land, waiting \d+s for approval", lines[4])
    assert lines[6:] == ["  See it: runplan diff plans/X.md. Land it: runplan approve plans/X.md"]


def test_status_of_a_run_at_work_and_a_log_that_is_followed_to_its_end(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    meanwhile = Meanwhile(tmp_path)
    set_up(project, agent=work(*meanwhile.pause("implement")))
    running = project.popen("start", "X", "auto", "--foreground")
    meanwhile.reached("implement")
    view = project.runplan("status", "X", "--json").json
    assert (view["run"]["state"], view["run"]["step"]) == ("running", "implement")
    assert view["claim"]["alive"] is True
    assert (view["run"]["agent"], view["run"]["retries"], view["run"]["stuck"]["level"]) == ("robot", 0, "fine")
    assert TIME.fullmatch(view["run"]["dispatched"])
    lines = project.runplan("status").out.splitlines()
    assert re.fullmatch(r"  Running: phase 1, implement for \d+s, agent running \d+s, .*output.*", lines[2])
    assert lines[3] == f"  Run {view['run']['id']}: robot"
    assert project.runplan("explain", "X").out.splitlines()[2] == "now: robot is running (implement)"
    following = subprocess.Popen(
        [RUNPLAN, "logs", "X", "-f", "--json"], cwd=project.path, env=project.env, stdout=subprocess.PIPE
    )
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["type"] == "RunStarted"
    meanwhile.let_on("implement")
    assert ended(running).code == 0
    rest = following.communicate(timeout=100)[0].splitlines()
    assert following.returncode == 0
    assert json.loads(rest[-1])["type"] == "RunEnded"


# --- logs, explain, report ----------------------------------------------------------------------------


def test_every_line_of_the_log_has_its_number_time_run_and_type(told: Project) -> None:
    run = told.runplan("status", "X", "--json").json["run"]["id"]
    lines = [json.loads(line) for line in told.runplan("logs", "X", "--json").out.splitlines()]
    assert [line["type"] for line in lines][:3] == ["RunStarted", "ClaimTaken", "PlanRead"]
    assert {line["run"] for line in lines} == {run}
    assert all(list(line)[:4] == ["seq", "at", "run", "type"] and TIME.fullmatch(line["at"]) for line in lines)
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    people = told.runplan("logs").out.splitlines()
    assert len(people) == len(lines)
    assert any("DispatchEnded" in line and "  code=0" in line for line in people)


def test_explain_gives_the_reason_of_the_very_function_that_decides(told: Project) -> None:
    lines = [json.loads(line) for line in told.runplan("logs", "X", "--json").out.splitlines()]
    events = [from_json(line["type"], json.dumps(line)) for line in lines]
    decision = decide(fold(event for event in events if event is not None))
    view = told.runplan("explain", "X", "--json").json
    assert (view["plan"], view["now"]) == ("plans/X.md", decision.why)
    assert len(view["steps"]) == len(lines)
    assert all(list(step) == ["at", "event", "phase", "why"] for step in view["steps"])
    assert told.runplan("explain", "X", "2").out.splitlines()[2] == f"now: {decision.why}"
    missing = told.runplan("explain", "X", "9")
    assert (missing.code, missing.err) == (3, f"runplan: the run {view['run']} has not reached a phase 9\n")


def test_the_report_is_the_landed_one(told: Project) -> None:
    report = told.runplan("report", "X")
    assert report.out.rstrip() == told.show("main:reports/plan-x.md")
    assert report.out.index("## Phase — 1 Step 1") < report.out.index("## Run Failed — ")
    assert told.runplan("report", "X", "--json").json == {"plan": "plans/X.md", "report": report.out}
    for part in ("**Status:** Completed (verified, landed)", "### Work Items", "### Verification"):
        assert part in report.out
    tree = told.repo.tree("main~1")
    assert f"- Gate: `true` on tree `{tree}`: exit 0" in report.out


def test_gc_lists_what_is_kept_aside_and_a_dry_run_removes_nothing(told: Project) -> None:
    before = told.repo.refs()
    assert "refs/runplan/parked/x/1/1" in before
    listed = told.runplan("gc", "--dry-run")
    assert "kept  refs/runplan/parked/x/1/1: main does not hold it: " in listed.out
    assert "candidate" not in listed.out  # the waiting run still needs it
    assert told.runplan("gc", "--dry-run", "--json").json[0]["answer"] == "kept"
    assert told.repo.refs() == before


def test_gc_takes_the_logs_of_landed_phases_and_keeps_what_tells_of_the_others(told: Project) -> None:
    logs = sorted((told.path / ".git/runplan/dispatch").glob("*.*/"))
    answers = {one["what"]: one for one in told.runplan("gc", "--dry-run", "--json").json}
    why = {answers[str(log)].get("why", "") for log in logs if log.is_dir()}
    assert "" in why  # phase 1 has landed
    assert any(one.startswith("in use by the run ") for one in why)  # the one that waits
    assert "would remove" in (out := told.runplan("gc", "--dry-run").out)
    assert f"of agents and checks in {told.path / '.git/runplan/dispatch'}: their phases have landed" in out
    assert sorted((told.path / ".git/runplan/dispatch").glob("*.*/")) == logs


# --- check --------------------------------------------------------------------------------------------


def test_check_shows_what_was_understood(told: Project) -> None:
    view = told.runplan("check", "plans/X.md", "--json").json
    assert (view["format"], view["warnings"], len(view["phases"])) == ("tracker", [], 3)
    assert view["phases"][2]["depends"] == ["1", "2"]
    assert view["phases"][1]["items"] == [{"id": "W1", "text": "Write 2.txt"}]
    table = told.runplan("check", "X").out.splitlines()
    assert table[0] == "X  (plans/X.md, statuses in the tracker)"
    assert table[5].split() == ["3", "todo", "1,", "2", "1W", "0C", "Step", "3"]


def test_check_adds_a_tracker_and_calls_warnings_errors_when_told_to(tmp_path: Path) -> None:
    plan = tmp_path / "p.md"
    plan.write_text("# Plan: P\n\n## Phase 1 — One\n\n- [ ] Do it\n\n## Phase 2 — Two\n\n- [ ] Do that\n")

    def check(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [RUNPLAN, "check", "p.md", *options], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    before = plan.read_text()
    bare = check()
    assert (bare.returncode, bare.stderr) == (
        2,
        "runplan: p.md:3: the phases 1, 2 have neither a tracker nor **Status:** lines; "
        "add a tracker with: runplan check p.md --fix\n",
    )
    assert plan.read_text() == before
    assert check("--fix").returncode == 0
    fixed = plan.read_text()
    assert "| 1 — One | ⬚ | | |\n| 2 — Two | ⬚ | | |\n" in fixed
    assert fixed.endswith(before.removeprefix("# Plan: P\n"))
    assert check("--fix", "--strict").returncode == 0
    assert plan.read_text() == fixed
    plan.write_text(fixed.replace("| 1 — One | ⬚ |", "| 1 — One | 🟡 In progress |"))
    assert check().returncode == 0
    strict = check("--strict")
    assert strict.returncode == 2
    assert re.search(r"^p\.md:\d+: warning: ", strict.stdout, re.MULTILINE)


# --- cost and harmlessness ----------------------------------------------------------------------------

READING = [
    ("--version",),
    ("status", "X", "--json"),
    ("logs", "X", "--json"),
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_imports_nothing_slow(told: Project, words: tuple[str, ...]) -> None:
    assert not imported(told, *words).intersection(SLOW_TO_IMPORT)


def test_a_command_does_not_look_for_garbage_among_its_modules() -> None:
    program = (
        "import atexit, gc; from runplan.cli.main import entry;"
        "atexit.register(lambda: print(gc.get_threshold()[0] > 10_000, gc.get_freeze_count() > 1_000)); entry()"
    )
    ran = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[1:] == ["True True"]


def test_a_journal_that_may_only_be_read_is_read(told: Project, tmp_path: Path) -> None:
    project = copied(told, tmp_path)
    journal = project.path / ".git/runplan"
    journal.chmod(0o555)
    try:
        for words in (("status", "X"), ("report", "X"), ("logs", "X")):
            ran = subprocess.run(
                [RUNPLAN, *words],
                cwd=project.path,
                env=project.env,
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=obey_permissions,
            )
            # The last line tells for how long it has been waiting.
            seen, expected = (
                [line for line in text.splitlines() if "Needs attention" not in line]
                for text in (ran.stdout, told.runplan(*words).out)
            )
            assert (ran.returncode, seen, ran.stderr) == (0, expected, "")
    finally:
        journal.chmod(0o755)


def obey_permissions() -> Any:
    """Take from root what lets it write where nobody may (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); else it does nothing."""
    return ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
