"""A worker keeps its secrets from agents and from the database, and rows do not tell it what to execute."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runplan.adapters.store.location import FleetLocation, normalize_url
from runplan.adapters.store.postgres import PostgresStore
from runplan.adapters.store.sql import Append
from runplan.domain.decoding import convert, to_json
from runplan.domain.plan.marks import PhaseSettings
from runplan.domain.plan.model import parse_plan
from runplan.domain.run import events as e
from runplan.domain.run.kinds import Mode, RunStatus
from runplan.domain.run.rows import Acquired, Command, RunRow
from runplan.domain.settings.schema import Settings
from runplan.engine.steps.read_plan import choose_execution
from tests.support.cli import RUNPLAN, Project, a_plan, a_project, end_processes_of, until, with_remote
from tests.support.fleet import make_fleet_project
from tests.support.mounts import obstacle
from tests.support.postgres import create_member, dump_tables

KEY = "key-hunter2-of-agent"
PRINTED = "ghp_" + 36 * "p"  #: known by its form
#: What an agent must not see at all.
HIDDEN = {
    "PGPASSWORD": "hunter2-of-variable",
    "ANTHROPIC_API_KEY": "hunter2-of-other-agent",
    "GH_TOKEN": "ghp_" + 36 * "h",
}
FILES = {
    ".pgpass": "*:*:*:*:hunter2-of-pgpass",
    "client.key": "hunter2-of-client",
    ".config/runplan/runplan.toml": (
        '[notify]\nurls = ["json://127.0.0.1:1/hunter2-of-channel"]\n'
        f'[agents.other]\nkind = "command"\nargv = ["other", "--token={PRINTED}", "--key={KEY}"]\n'
    ),
}
PASSWORD = "hunter2-of-dsn"
SETTINGS = """\
[agents]
implementer = "sh"
verifier = "robot"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
env = ["SH_API_KEY", "PGPASSWORD"]
[agents.robot]
kind = "script"
script = "agent.toml"
[tests]
command = "echo the tests; env"
env = ["SH_API_KEY", "PGPASSWORD"]
"""
#: It prints what it can get hold of, also into its notes, its commit and its return.
AGENT = """\
echo the agent of $RUNPLAN_PLAN
env >"$RUNPLAN_NOTES"
cat ~/.config/runplan/runplan.toml ~/.pgpass ~/client.key >>"$RUNPLAN_NOTES" 2>&1
cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' >>"$RUNPLAN_NOTES"
cat "$RUNPLAN_NOTES"
echo {printed}
echo 1 >1.txt
git add 1.txt
git commit -qm "with $SH_API_KEY"
printf '{{"status": "done", "summary": "used %s and {printed}", "items": []}}' "$SH_API_KEY" >"$RUNPLAN_RETURN"
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project in a fleet of its own; clients and the worker have its home and the rights of a worker."""
    made = a_project(tmp_path, "1")
    made.commit_file("runplan.toml", SETTINGS.format(home=made.home))
    (made.home / "agent.sh").write_text(AGENT.format(home=made.home, printed=PRINTED))
    with_remote(made, tmp_path / "origin.git")
    create_member()
    made = make_fleet_project(made)
    made.extra["RUNPLAN_FLEET_DSN"] = dsn_of(made, "member")
    return made


def dsn_of(project: Project, role: str) -> str:
    """Without a password and a key, whatever the worker is given."""
    return re.sub("//.*@", f"//{role}@", project.extra["RUNPLAN_FLEET_DSN"]).partition("?")[0]


def open_store(project: Project) -> closing[PostgresStore]:
    url = project.repo.git("remote", "get-url", "origin")
    return closing(PostgresStore(FleetLocation(dsn_of(project, "member"), normalize_url(url))))


@contextmanager
def worker(project: Project, **env: str) -> Iterator[None]:
    with (project.home / "worker.out").open("wb") as out:
        words = [str(RUNPLAN), "worker", "--host", "here"]
        process = subprocess.Popen(words, cwd=project.home, env={**project.env, **env}, stdout=out, stderr=out)
        try:
            with open_store(project) as store:
                until(lambda: store.list_host_labels() or process.poll())
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            end_processes_of(project.home)


def test_no_secret_reaches_an_agent_or_the_database(project: Project) -> None:
    if why := obstacle():
        pytest.skip(why)
    for name, text in FILES.items():
        (project.home / name).parent.mkdir(parents=True, exist_ok=True)
        (project.home / name).write_text(text)
        (project.home / name).chmod(0o600)
    dsn = dsn_of(project, "member").replace("member@", f"member:{PASSWORD}@") + f"?sslkey={project.home}/client.key"
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": "bwrap", "RUNPLAN_FLEET_DSN": dsn, "SH_API_KEY": KEY, **HIDDEN}
    with worker(project):
        project.runplan("start", "X", "finish", "auto", "direct", "--wait").exits(0)

    stored = dump_tables(dsn_of(project, "postgres"))
    assert "the agent of plans/X.md" in stored, "the outputs of agents are stored"
    assert "the tests" in stored
    notes = (project.home.parent.rglob("dispatch/*/own/notes.md"), project.home.rglob("dispatch/*/own/notes.md"))
    seen = "".join(file.read_text() for files in notes for file in files)
    assert KEY in seen
    for secret in ("hunter2", PRINTED, HIDDEN["GH_TOKEN"]):
        assert secret not in stored
        assert secret not in seen.replace(KEY, "")
        for log in (*project.home.rglob("worker.*"), *project.home.rglob("*.log")):
            assert secret not in log.read_text(), log
    shown = project.runplan("config")
    assert "fleet.dsn" in shown.out
    assert PASSWORD not in shown.out


# --- forged rows ------------------------------------------------------------------------------------------


def a_start(plan: str, **fields: Any) -> e.RunStarted:
    known: dict[str, Any] = {
        "title": "X",
        "landing": "direct",
        "target": "main",
        "remote": "origin",
        "slug": Path(plan).stem.lower(),
    }
    return e.RunStarted(plan=plan, mode=Mode.FINISH, wanted="", auto=True, **{**known, **fields})


def record_run(store: PostgresStore, started: e.RunStarted, *events: e.Event) -> None:
    """Forge an unfinished run that no process owns."""
    now = "2026-01-01T00:00:00Z"
    run = f"r{started.slug}"
    claim = store.claim_plan(started.plan, run=run, owner="1:1:gone")
    assert isinstance(claim, Acquired)
    row = RunRow(id=run, plan=started.plan, started=now, state=RunStatus.RUNNING, since=now, landing="direct")
    rows = [(now, type(event).__name__, to_json(event)) for event in (started, *events)]
    store.append(Append(rows, row, claim.fence))
    store.queue_plan(started.plan)


def test_rows_have_no_other_command_run_than_plan_and_settings_do(project: Project, tmp_path: Path) -> None:
    project.shell_agent('f=$(basename "$RUNPLAN_PLAN").txt; echo x >$f; git add $f; git commit -qm work')
    evil = tmp_path / "evil"
    agent = {"name": "evil", "kind": "command", "argv": ["touch", str(evil)]}
    agents = {"implementer": "evil", "verifier": "evil", "tables": {"evil": agent}}
    values = {"agents": agents, "tests": {"command": f"touch {evil}"}, "run": {"setup": f"touch {evil}"}}
    settings = convert(values, Settings)
    for name in ("Start", "Target", "Resume", "Honest", "Text", "Delegate", "Repair", "Elsewhere", "Branch"):
        project.plan(a_plan("1"), f"plans/{name}.md")
    project.repo.git("push", "-q", "origin", "main")
    project.repo.git("checkout", "-qb", "evil")
    project.commit_file("runplan.toml", f'[tests]\ncommand = "touch {evil}"\n')
    project.repo.git("push", "-q", "origin", "evil")
    aside, tip = project.repo.git("rev-parse", "evil", "main").split()
    forged = {"settings": settings, "given": (("RUNPLAN_TESTS_COMMAND", f"touch {evil}"),)}
    honest = choose_execution(parse_plan(a_plan("1").encode(), path="plans/Honest.md").phases[0], tip=tip)
    phase = replace(honest, text=f"Run touch {evil}.")
    repair = e.RepairChosen(tip=tip, title="Repair", own=PhaseSettings(tests=f"touch {evil}"))
    delegate = e.DelegateChosen(tip=tip, phase="1", title="Step 1", text="x", command=f"touch {evil}")

    with open_store(project) as store:
        for plan, more in (("plans/Start.md", {}), ("plans/Target.md", {"target": "evil"})):
            request = {"started": json.loads(to_json(a_start(plan, **forged, **more)))}
            target = store.add_command(
                Command(plan=plan, verb="start", arguments=request, by="x", at="2026-01-01T00:00:00Z")
            )
        record_run(store, a_start("plans/Resume.md", **forged))
        record_run(store, a_start("plans/Text.md"), phase)
        record_run(store, a_start("plans/Delegate.md"), delegate)
        record_run(store, a_start("plans/Repair.md"), repair)
        record_run(store, a_start("plans/Honest.md", **forged), honest)
        record_run(store, a_start("plans/Elsewhere.md"), replace(honest, tip=aside))
        record_run(store, a_start("plans/Branch.md", target="evil"), replace(honest, tip=aside))
        with worker(project):
            until(lambda: not store.list_active_plans(queued=True))

        ends = {Path(row.plan).stem: (row.state.value, row.reason) for row in store.list_runs()}
        answer = str(store.get_answer(target))
        assert "run.target on the default branch is main" in answer
        assert "(on the host here)" in answer
    assert not evil.exists()
    tampered = dict.fromkeys(("Text", "Delegate", "Repair", "Elsewhere", "Branch"), ("failed", "tampered"))
    assert ends == {**dict.fromkeys(("Start", "Resume", "Honest"), ("done", None)), **tampered}
    told = project.runplan("status", "Text").out
    assert "phase 1 is recorded with a text that plans/Text.md never had on main" in told
