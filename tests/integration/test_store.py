"""The journal is atomic, durable once acknowledged, and of one version."""

import gc
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from runplan.adapters.store.protocol import open_store, store_exists
from runplan.adapters.store.sql import Append
from runplan.adapters.store.sqlite import SqliteStore
from runplan.adapters.store.tables import SCHEMA_VERSION
from runplan.domain.decoding import to_json
from runplan.domain.errors import RefusedEarly, Unreachable
from runplan.domain.run import events as e
from runplan.domain.run.kinds import RunStatus
from runplan.domain.run.rows import RunRow
from runplan.engine.report.summary import list_landed

PLAN = "plans/X.md"
NOW = "2026-03-01T12:00:00Z"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path)
    with store.transaction():
        store.set_claim("plan", PLAN, run="r1", owner="me")
    yield store
    store.close()


def row(run: str = "r1", *, plan: str = PLAN, state: str = "running") -> RunRow:
    return RunRow(id=run, plan=plan, started=NOW, state=RunStatus(state), since=NOW, landing="cherry-pick")


def facts(*kinds: str) -> list[tuple[str, str, str]]:
    return [(NOW, kind, "{}") for kind in kinds]


# --- appending ------------------------------------------------------------------------------------------


def test_facts_that_name_a_hash_are_found(store: SqliteStore) -> None:
    answers = [(NOW, "Answered", to_json(e.Answered(tree=tree, approved=False))) for tree in ("ab12", "cd34", "ef56")]
    store.append(Append(answers, row(), 1))
    found = store.list_facts(e.Answered, naming=("cd34", "ef56"))
    assert [fact.event.tree for fact in found] == ["cd34", "ef56"]


def test_events_are_written_together_or_not_at_all(store: SqliteStore) -> None:
    broken = [*facts("RunStarted"), (NOW, "PhaseChosen", None)]
    with pytest.raises(Unreachable, match="nothing was recorded"):
        store.append(Append(broken, row(), 1))  # type: ignore[arg-type]
    assert (store.list_events("r1"), store.get_newest_run(PLAN)) == ([], None)


def written(store: SqliteStore) -> list[str]:
    """The events that another process sees."""
    with closing(sqlite3.connect(store.path)) as looking:
        return [kind for (kind,) in looking.execute("SELECT type FROM events ORDER BY seq")]


def test_waiting_events_stay_when_a_write_fails(store: SqliteStore) -> None:
    store.append(Append(facts("First"), row(), 1), waits=True)
    with pytest.raises(Unreachable):
        store.append(Append([(NOW, "Second", None)], row(), 1))  # type: ignore[list-item]
    assert written(store) == []
    store.append(Append(facts("Third"), row(), 1))
    assert written(store) == ["First", "Third"]


WRITER = """
import sys
from pathlib import Path
from runplan.adapters.store.sql import Append
from runplan.adapters.store.sqlite import SqliteStore
from tests.integration.test_store import facts, row
store = SqliteStore(Path(sys.argv[1]))
for number in range(100_000):
    store.append(Append(facts("First", "Second", "Third"), row(), 1))
    print(number, flush=True)
"""


@pytest.mark.rest
def test_a_killed_writer_loses_no_acknowledged_event(store: SqliteStore, tmp_path: Path) -> None:
    acknowledged = 0
    for wanted in (1, 7, 20):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            for _ in range(wanted):
                process.stdout.readline()
            process.kill()
            acknowledged += wanted + len(process.stdout.read().splitlines())
        with closing(sqlite3.connect(store.path)) as looking:
            assert looking.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        kinds = [event.type for event in store.list_events("r1")]
        assert kinds == ["First", "Second", "Third"] * (len(kinds) // 3)
        assert len(kinds) // 3 - acknowledged in (0, 1), "one may have been written and not acknowledged"
        acknowledged = len(kinds) // 3


# --- opening --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, SCHEMA_VERSION + 1])
@pytest.mark.parametrize("writable", [True, False])
def test_a_journal_of_another_version_stays_until_it_is_moved(tmp_path: Path, writable: bool, version: int) -> None:
    SqliteStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute(f"PRAGMA user_version={version}")
    before = (tmp_path / "journal.db").read_bytes()
    with pytest.raises(RefusedEarly, match=r"journal\.db was written by another version of runplan") as refused:
        SqliteStore(tmp_path, writable=writable)
    assert (tmp_path / "journal.db").read_bytes() == before
    subprocess.run(["sh", "-c", str(refused.value).partition("start again: ")[2]], check=True)
    with closing(SqliteStore(tmp_path)) as again:
        assert again.list_runs() == []


def test_a_journal_that_another_process_made_meanwhile_is_kept(tmp_path: Path) -> None:
    class Late(SqliteStore):
        def _create_journal(self) -> None:
            with closing(SqliteStore(tmp_path)) as first:
                first.put_baseline("key", "{}")
            super()._create_journal()

    with closing(Late(tmp_path)) as store:
        assert store.get_baseline("key") == "{}"


def test_reading_makes_no_journal_and_writes_nothing_into_one(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    assert not store_exists(absent)
    with pytest.raises(Unreachable):
        SqliteStore(absent, writable=False)
    with pytest.raises(Unreachable):
        open_store(absent, may_create=False)
    with closing(SqliteStore(absent, writable=False, missing_ok=True)) as empty:
        assert (empty.get_newest_run(PLAN), empty.list_unfinished_runs(), empty.read_plan_facts()) == (None, [], {})
    assert not absent.exists()
    SqliteStore(tmp_path).close()
    before = (tmp_path / "journal.db").read_bytes()
    with closing(SqliteStore(tmp_path, writable=False)) as reading:
        assert reading.list_runs() == []
        with pytest.raises(Unreachable, match="readonly"):
            reading.put_baseline("key", "{}")
    assert (tmp_path / "journal.db").read_bytes() == before


def test_a_journal_whose_maker_died_is_made_again_also_where_the_directory_has_an_odd_name(tmp_path: Path) -> None:
    odd = tmp_path / "a?b#c%20d"
    odd.mkdir()
    (odd / "journal.new").write_text("half a journal")
    assert not store_exists(odd)
    SqliteStore(odd).close()
    assert (odd / "journal.db").exists()
    SqliteStore(odd, writable=False).close()


# --- ten thousand runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    """Ten thousand runs of a hundred plans."""
    store = SqliteStore(tmp_path_factory.mktemp("many"))
    count = range(10_000)
    rows = [row(f"r{number}", plan=f"plans/{number % 100}.md", state="done") for number in count]
    with store.transaction():
        store._db.executemany(
            "INSERT INTO runs (id, row) VALUES (?,?)",
            [(old.id, json.dumps(to_builtins(old))) for old in rows],
        )
        store._db.executemany(
            "INSERT INTO events (run, plan, at, type, body) VALUES (?,?,?,?,'{}')",
            [
                (f"r{number}", f"plans/{number % 100}.md", NOW, kind)
                for number in count
                for kind in ("RunStarted", "Leased", "Queued")
            ],
        )
        store._db.executemany(
            "INSERT INTO commands (plan, verb, arguments, by, at, answer) VALUES ('p','stop','{}','me',?,'{}')",
            [(NOW,) for _ in count],
        )
        store.set_claim("plan", PLAN, run="r1", owner="me")
    yield store
    store.close()


QUERIES: dict[str, Callable[[SqliteStore], object]] = {
    "runs": lambda store: store.list_runs(),
    "runs of a plan": lambda store: store.list_runs("plans/7.md"),
    "newest": lambda store: store.get_newest_run("plans/7.md"),
    "unfinished": lambda store: store.list_unfinished_runs(),
    "events": lambda store: store.list_events("r7"),
    "facts since": lambda store: store.list_facts(e.Queued, since="2030"),
    "facts": lambda store: store.list_facts(e.Queued, plan="plans/7.md"),
    "facts that name a hash": lambda store: store.list_facts(e.Answered, naming=("ab12", "cd34")),
    "leases": lambda store: store.count_leases("plans/7.md", "refs/heads/x"),
    "claim": lambda store: store.get_claim("plan", PLAN),
    "queued commands": lambda store: store.list_queued_commands(),
    "append": lambda store: store.append(Append(facts("PhaseChosen"), row("r-new"), 1)),
}


@pytest.mark.parametrize("name", QUERIES)
def test_every_query_uses_an_index(many: SqliteStore, name: str) -> None:
    asked: list[str] = []
    many._db.set_trace_callback(asked.append)
    QUERIES[name](many)
    many._db.set_trace_callback(None)
    plans = [
        str(step[3])
        for statement in asked
        if statement.startswith(("SELECT", "INSERT", "DELETE"))
        for step in many._db.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    whole = [step for step in plans if step.startswith("SCAN") and " INDEX " not in step and "claims" not in step]
    assert plans
    assert whole == [], "claims are few; everything else goes by an index"


def test_a_forecast_reads_the_newest_runs_alone(store: SqliteStore) -> None:
    leased = e.Leased(phase="1", branch="b", base="c", base_tree="t", worktree="w", attempt=1)
    landed = e.Landed(id="r.1", phase="1", tip="f" * 40, code="a" * 40)
    for number in range(60):
        at = f"2026-03-01T12:{number:02}:00Z"
        events = [(at, type(event).__name__, to_json(event)) for event in (leased, landed)]
        store.append(Append(events, replace(row(f"r{number}", state="done"), started=at), 1))
    [phase] = list_landed(store)
    assert phase.attempts == len(store.list_runs()) == 50


def test_a_store_that_nobody_uses_any_more_keeps_no_descriptor(tmp_path: Path) -> None:
    """The daemon opens the journal for each firing of a schedule."""
    SqliteStore(tmp_path).close()
    gc.disable()
    try:
        before = len([*Path("/dev/fd").iterdir()])
        for _ in range(5):
            assert SqliteStore(tmp_path, writable=False).list_unfinished_runs() == []
        assert len([*Path("/dev/fd").iterdir()]) == before
    finally:
        gc.enable()
