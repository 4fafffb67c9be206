"""Reading verbs show the same facts to users and scripts, quickly, and change nothing."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runplan.adapters.configuration.places import state_directory
from runplan.adapters.store.sqlite import SqliteStore
from runplan.domain.run.decide import decide
from runplan.domain.run.recorded import from_json
from runplan.domain.run.rows import ScheduleRow
from runplan.domain.run.state import fold
from runplan.domain.times import iso
from runplan.hosts.daemon.state import hold_lock
from tests.support.cli import RUNPLAN, Meanwhile, Project, a_plan, a_project, ended, set_up, until, verify, work, writes
from tests.support.fake_daemon import a_door

pytestmark = pytest.mark.promise

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

#: Modules that a reading verb must not import, because they are slow.
SLOW_TO_IMPORT = [
    *("filelock", "git", "gitdb", "psutil", "structlog", "asyncio", "github", "gitlab", "apscheduler", "logging"),
    "runplan.adapters.agents.clis",
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a parked failed attempt, phase 1 landed, and phase 2 waiting for approval; only read."""
    project = a_project(tmp_path_factory.mktemp("printed"), "1", "2")
    set_up(
        project,
        plan=a_plan("1", "2", "3", depends={"2": "Phase 1.", "3": "Phases 1 and 2."}),
        agent=work('append = "1.txt"\ntext = "more\\n"', 'commit = "More"', "exit = 3"),
        settings='[tests]\ncommand = "true"\n',
    )
    assert project.start("1", "auto").code == 1
    set_up(project, agent=writes("1", "2"))
    assert project.runplan("retry", "X", "1", "--fresh").code == 0
    assert project.start("finish").code == 4
    return project


@pytest.mark.rest
def test_the_id_of_a_run_is_taken_in_place_of_the_plan(recorded: Project) -> None:
    runs = recorded.runplan("logs", "X", "--list", "--json").json
    assert [run["state"] for run in runs] == ["waiting", "done", "failed"]
    waits, landed, failed = (run["id"] for run in runs)
    for run in (waits, landed, failed):
        assert recorded.runplan("explain", run, "--json").json["run"] == run
        assert f"plans/X.md, run {run}, " in recorded.runplan("logs", run).out
        assert recorded.runplan("status", run, "--json").json["plan"] == "plans/X.md"
        assert "== implement by robot, phase" in recorded.runplan("logs", run, "--agent").out
    report = recorded.runplan("report", failed).out
    assert ("## Run Failed" in report, "## Phase — 1" in report) == (True, False), report
    report = recorded.runplan("report", landed).out
    assert ("## Run Failed" in report, "## Phase — 1 Step 1" in report, "| 1 " in report) == (False, True, True), report
    assert recorded.runplan("diff", waits, "--json").json["phase"] == "2"
    seen = recorded.runplan("diff", landed).out
    assert ("phase 1 Step 1: landed\n" in seen, "runplan undo plans/X.md 1" in seen) == (True, True)
    recorded.runplan("diff", failed).ends(
        3, f"runplan: the run {failed} has no change to show; see: runplan logs {failed}"
    )


def test_status_json_has_the_promised_values(recorded: Project) -> None:
    """Its fields are compared with the reference in test_docs."""
    view = recorded.runplan("status", "X", "--json").json
    fields = ["plan", "title", "status", "landing", "phases", "next", "run", "claim", "schedule"]
    assert list(view)[: len(fields)] == fields
    assert [view[name] for name in ("plan", "title", "status", "landing", "next", "schedule")] == [
        *("plans/X.md", "X", "active", "cherry-pick", "2", None)
    ]
    commit = recorded.repo.head("main~1")[:7]
    names = ("id", "title", "status", "commit", "depends", "blocked_by", "failed", "hindrance", "state", "words")
    assert [tuple(phase[name] for name in names) for phase in view["phases"]] == [
        ("1", "Step 1", "done", commit, [], [], None, "", "done", f"done ({commit})"),
        ("2", "Step 2", "in-progress", None, ["1"], [], None, "", "waiting", "waits for approval"),
        ("3", "Step 3", "todo", None, ["1", "2"], ["2"], None, "waits for 2", "todo", "after 2"),
    ]
    run = view["run"]
    assert TIME.fullmatch(run["since"])
    assert re.fullmatch(r"r[0-9a-f]{8}", run["id"])
    named = ("state", "phase", "step", "attempt", "mode", "waiting_for", "outcome", "reason", "wake", "agent")
    assert [run[name] for name in named] == ["waiting", "2", "land", 1, "finish", "approval", None, None, None, None]
    assert run["stuck"]["level"] == "look"
    assert re.fullmatch(r"Needs attention: phase 2, land, waiting \d+s for approval", run["stuck"]["sentence"])
    assert (list(view["claim"]), view["claim"]["alive"]) == (["owner", "alive"], False)


def test_status_without_a_plan_lists_all_and_without_runs_has_none(recorded: Project, tmp_path: Path) -> None:
    (listed,), alone = recorded.runplan("status", "--json").json, recorded.runplan("status", "X", "--json").json
    assert [one["run"].pop("stuck")["level"] for one in (listed, alone)] == ["look", "look"]  # seconds may have passed
    assert listed | {"words": ""} == alone | {"words": ""}
    fresh = a_project(tmp_path, "1")
    (view,) = fresh.runplan("status", "--json").json
    assert (view["run"], view["claim"], view["next"]) == (None, None, "1")
    fresh.repo.write("plans/broken.md", "nothing\n")
    people = fresh.runplan("status").exits(0)
    assert people.out.endswith("\n\n1 page is no plan: plans/broken.md  (runplan status --all)\n")
    assert "plans/broken.md:1: no phases found" in fresh.runplan("status", "--all").out
    assert not (fresh.path / ".git/runplan").exists()


ANSWERS = "; ".join(
    f"{label}: runplan {verb} plans/X.md 2{text}"
    for label, verb, text in (
        ("Review", "diff", ""),
        ("Approve", "approve", ""),
        ("Request changes", "reject", " -m TEXT"),
        ("Reject", "reject", ""),
    )
)


def test_status_and_logs_follow_a_running_run(project: Project, meanwhile: Meanwhile) -> None:
    set_up(project, agent=work(*meanwhile.pause("implement")))
    running = meanwhile.begin(project, "implement", "start", "X", "auto", "--foreground")
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


def test_every_line_of_the_log_has_its_number_time_run_and_type(recorded: Project) -> None:
    run = recorded.runplan("status", "X", "--json").json["run"]["id"]
    followed = recorded.runplan("logs", "X", "--json", "-f")
    assert followed.code == 0, "it ends when the run waits"
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert [line["type"] for line in lines][:3] == ["RunStarted", "ClaimTaken", "PhaseChosen"]
    assert {line["run"] for line in lines} == {run}
    assert all(list(line)[:4] == ["seq", "at", "run", "type"] and TIME.fullmatch(line["at"]) for line in lines)
    assert [line["seq"] for line in lines] == sorted({line["seq"] for line in lines})
    raw = recorded.runplan("logs", "--events").out.splitlines()
    assert len(raw) == len(lines)
    assert any("  process ended " in line and "  ending=exited" in line for line in raw)


def test_explain_prints_the_reason_of_decide(recorded: Project) -> None:
    lines = [json.loads(line) for line in recorded.runplan("logs", "X", "--json").out.splitlines()]
    events = [from_json(line["type"], json.dumps(line)) for line in lines]
    decision = decide(fold(event for event in events if event is not None))
    view = recorded.runplan("explain", "X", "--json").json
    assert (view["plan"], view["now"]) == ("plans/X.md", decision.why)
    assert len(view["steps"]) == len(lines)
    assert all(list(step) == ["at", "event", "phase", "why"] for step in view["steps"])
    short = recorded.runplan("explain", "X").out.splitlines()
    assert short[2] == f"now: {decision.why}"
    assert len(short) == 4 + 5 + 4
    assert short[-3:] == [ANSWERS, "", f"All {len(lines)} steps: runplan explain {view['run']} --all"]
    lines = recorded.runplan("explain", "X", "2", "--all").out.splitlines()
    assert lines[2] == f"now: {decision.why}"
    assert re.search(r"  worktree ready {6}then: ", "\n".join(lines))
    missing = recorded.runplan("explain", "X", "9")
    assert (missing.code, missing.err) == (3, f"runplan: the run {view['run']} has not reached a phase 9\n")


def test_report_prints_a_summary_and_the_landed_report(recorded: Project) -> None:
    report = recorded.runplan("report", "X").out
    title, _, landed = recorded.show("main:reports/plan-x.md").partition("\n")
    assert report.startswith(f"{title}\n\n## Summary\n\n**Done:** 1 of 3 phases. Time: ")
    assert report.rstrip().endswith(landed)
    commit = recorded.repo.head("main~1")[:7]
    assert f"| 1 Step 1 | done | `{commit}` |" in report
    assert "- Phase 2 Step 2: waits for approval: `runplan diff plans/X.md 2`\n" in report
    assert "- Phase 3 Step 3: it waits for 2\n" in report
    assert report.index("## Phase — 1 Step 1") < report.index("## Run Failed — ")
    assert recorded.runplan("report").out == report, "without PLAN, of the newest run's plan"
    for part in ("**Status:** Completed (verified, landed)", "### Work Items", "### Verification"):
        assert part in report
    tree = recorded.repo.tree("main~1")
    assert f"- Gate: `true` on tree `{tree}`: exit 0" in report
    view = recorded.runplan("report", "X", "--json").json
    assert (view["plan"], view["title"], view["report"]) == ("plans/X.md", "X", report)
    assert [(one["id"], one["state"], one["attempts"]) for one in view["phases"]] == [
        ("1", "done", 2),
        ("2", "waiting", 1),
        ("3", "todo", 0),
    ]


def test_report_since_covers_every_repository_also_of_foreground_runs(recorded: Project, tmp_path: Path) -> None:
    ran = recorded.runplan_in(tmp_path, "report", "--since", "yesterday").exits(0)
    commit = recorded.repo.head("main~1")[:7]
    counts = r"^Phases: 1 waiting for you, 1 landed\. Time: \d+s \(agents \d+s, tests \d+s\)\.$"
    assert re.search(counts, ran.out, re.MULTILINE), ran.out
    name, there = recorded.path.name, f"cd {recorded.path} && runplan"
    needs, _, landed = ran.out.partition("\n## Landed\n")
    assert re.search(rf"- {name}: X, phase 2 Step 2\n  waits for approval, .*\n  `{there} diff plans/X.md 2`\n", needs)
    assert f"- {name}: X, phase 1 Step 1\n  `{commit}`, tests passed, " in landed
    paris = recorded.runplan("report", "--since", "2026-01-01", TZ="Europe/Paris").out
    assert paris.startswith("# Report since 2026-01-01 00:00 CET\n")
    view = recorded.runplan("report", "--since", "2026-01-01", "--json").json
    assert [one["repository"] for one in view["repositories"]] == [str(recorded.path)]
    assert "<h2>" in recorded.runplan("report", "--since", "1h", "--html").out
    assert recorded.runplan("report", "X", "--since", "today").code == 2
    unwritable = recorded.runplan("report", "--since", "today", "-o", "absent/report.md")
    assert (unwritable.code, unwritable.err) == (
        2,
        "runplan: report: cannot write absent/report.md: No such file or directory\n",
    )


READING = [("--version",), ("status", "X", "--json")]

PROGRAM = (
    "import sys; from runplan.interfaces.cli.main import main; code = main(sys.argv[1:]);"
    "print(*sys.modules, file=sys.stderr); sys.exit(code)"
)


def imported(project: Project, *words: str) -> set[str]:
    """The modules that a command imports."""
    ran = project.run_program(sys.executable, "-c", PROGRAM, *words).exits(0)
    assert ran.err.count("\n") == 1
    return set(ran.err.split())


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_reading_imports_nothing_slow(recorded: Project, words: tuple[str, ...]) -> None:
    assert not imported(recorded, *words).intersection(SLOW_TO_IMPORT)


def test_status_parses_an_unchanged_plan_once(project: Project) -> None:
    names = [f"plans/P{number}.md" for number in range(9)]
    with journal(project):
        pass  # without a journal nothing is stored
    for name in names:
        project.repo.write(name, a_plan("1"))
    project.plan("no plan\n", "plans/P0.md")
    project.repo.git("add", "--", *names)
    project.repo.git("commit", "-qm", "Plans")
    first = project.runplan("status", "--json").json
    assert "runplan.domain.plan.model" not in imported(project, "status")
    assert project.runplan("status", "--json").json == first
    project.plan(a_plan("1").replace("title: X", "title: Changed"), "plans/P7.md")
    project.plan(a_plan("1"), "plans/P0.md")
    again = {view["plan"]: view for view in project.runplan("status", "--json").json}
    assert again["plans/P7.md"]["title"] == "Changed"
    assert {view["plan"] for view in first if view != again[view["plan"]]} == {"plans/P0.md", "plans/P7.md"}


@contextlib.contextmanager
def journal(project: Project) -> Iterator[SqliteStore]:
    store = SqliteStore(project.path / ".git/runplan")
    try:
        yield store
    finally:
        store.close()


def plan_every(store: SqliteStore, spec: str, plan: str = "plans/X.md", *, since: datetime, **more: str) -> None:
    recorded = {"zone": "Europe/Berlin", "misfire": "skip", "request": "{}", "anchor": iso(since), "made": iso(since)}
    store.put_schedule(ScheduleRow(plan=plan, spec=spec, **{**recorded, **more}))


PHASES = ("1",)
ABSENT = (
    "No daemon is running, so nobody works on the queue. Start it: runplan daemon restart; "
    "now and at each login: runplan service install"
)


def test_next_prints_local_time_and_time_left(project: Project) -> None:
    now = datetime.now(UTC)
    with journal(project) as store:
        plan_every(store, "4h", since=now - timedelta(minutes=105))
        plan_every(store, "2d", "plans/longer name.md", since=now, paused="phase 2 failed")
    recorded = project.runplan("next").exits(0)
    first, second, empty, daemon = recorded.out.splitlines()
    when = r"(?:\w{3} )?\d\d:\d\d CES?T \(in "
    assert re.fullmatch(rf"plans/X\.md            every 4h, next {when}2h 1[45]m\)", first)
    assert re.fullmatch(rf"plans/longer name\.md  every 2d, paused: phase 2 failed; otherwise next {when}2d\)", second)
    assert (empty, daemon) == ("", ABSENT)
    assert project.runplan("status").out.endswith(f"\n\n{ABSENT}\n")
    one, two = project.runplan("next", "--json").json
    slot = iso((now - timedelta(minutes=105)).replace(microsecond=0) + timedelta(hours=4))
    assert (one["next"], one["paused"], two["paused"]) == (slot, None, "phase 2 failed")
    view = project.runplan("status", "X", "--json").json
    assert view["daemon"] == {"state": "absent", "error": ABSENT}
    assert view["schedule"].items() <= one.items()


def test_metrics_come_from_a_running_daemon_also_outside_of_a_repository(project: Project, tmp_path: Path) -> None:
    state = state_directory(project.env)
    with hold_lock(state, version="1", since=iso(datetime.now(UTC))), a_door(state / "daemon.sock"):
        recorded = project.runplan_in(tmp_path, "metrics")
        with journal(project) as store:
            plan_every(store, "4h", since=datetime.now(UTC))
        attended = project.runplan("next").out + project.runplan("status").out
    assert (recorded.code, recorded.out, recorded.err) == (0, "runplan_daemon_threads 3\n", "")
    assert "No daemon is running" not in attended


def test_logs_agent_waits_and_follows_every_successor(project: Project, meanwhile: Meanwhile, tmp_path: Path) -> None:
    agent = work('say = "begun"', *meanwhile.pause("agent"), 'say = "written"')
    agent += verify('say = "seen"', "pass_all = true")
    wait = f"touch {tmp_path}/setup.here; until test -e {tmp_path}/setup.on; do sleep 0.02; done"
    set_up(project, agent=agent, settings=f"[run]\nsetup = '{wait}'\n")
    assert project.runplan("start", "X", "1", "auto").code == 0
    meanwhile.reached("setup")
    words = [str(RUNPLAN), "logs", "X", "--agent", "-f"]
    follows = subprocess.Popen(words, cwd=project.path, env=project.env, stdout=subprocess.PIPE)
    with follows:
        assert follows.stdout is not None
        until(lambda: "journal.db" in open_files(follows.pid))
        meanwhile.let_on("setup")
        begun = [follows.stdout.readline().decode() for _ in range(2)]
        meanwhile.let_on("agent")
        rest = follows.stdout.read().decode()
    said = [line for line in ("".join(begun) + rest).splitlines() if not line.startswith("> ")]
    names = [line.partition(", phase 1")[0] for line in said]
    assert re.sub(r"\d+s", "0s", "\n".join(names)).splitlines() == [
        *("== implement by robot", "begun", "written", "== implement by robot ended after 0s"),
        *("== verify by robot", "seen", "== verify by robot ended after 0s"),
    ]
    until(lambda: project.landed() == ["1"])


def open_files(pid: int) -> set[str]:
    """The names of the files that the process has open."""
    names = set()
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                names.add(link.readlink().name)
    return names
