"""The output of a dispatch is read on any host: live, up to a cap, and by the host that takes the run over."""

import subprocess
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import psycopg
import pytest

from runplan.adapters.store.outputs import Outputs, StoredOutputs
from runplan.adapters.store.postgres import PostgresStore
from runplan.adapters.supervise.dispatches import Dispatches
from runplan.domain.run.dispatch import NOTES, OWN, RETURN, Ending, NeverStarted, Outcome
from tests.integration.test_fleet_worker import Fleet, begin, fleet
from tests.support.cli import RUNPLAN, SETTINGS, until, writes
from tests.support.dispatching import stage
from tests.support.postgres import a_location

pytestmark = pytest.mark.rest

__all__ = ["fleet"]
SECRET = "hunter2hunter2"


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    with closing(PostgresStore(a_location())) as opened:
        yield opened


def write(directory: Path, text: bytes) -> None:
    directory.mkdir(exist_ok=True)
    with (directory / "out.log").open("ab") as file:
        file.write(text)


def disconnect(store: PostgresStore) -> None:
    with psycopg.connect(store.location.dsn) as db:
        db.execute("SELECT pg_terminate_backend(%s, 5000)", (store._db.info.backend_pid,))


def test_output_is_followed_on_another_host_also_after_a_lost_connection(store: PostgresStore, tmp_path: Path) -> None:
    ran = tmp_path / "r1.1"
    write(ran, b"one\n")
    stored = store.outputs
    stored.add_files(ran)
    with closing(PostgresStore(store.location)) as reading:
        other = Outputs(tmp_path / "elsewhere", reading.outputs)
        assert other.read("r1.1", "out.log") == (b"one\n", 4)
        write(ran, b"two\n")
        disconnect(store)
        stored.add_files(ran)
        assert other.read("r1.1", "out.log", 4) == (b"two\n", 8)
        assert other.read("r1.1", "out.log", -4) == (b"two\n", 8)
        store.outputs.add_files(ran)  # a worker that was started again
        assert other.read("r1.1", "out.log") == (b"one\ntwo\n", 8)
        assert store.query("SELECT sum(length(content)) FROM outputs") == [(8,)]


@pytest.mark.parametrize("at_once", [True, False])
def test_beginning_and_end_are_kept_and_the_rest_is_named(store: PostgresStore, tmp_path: Path, at_once: bool) -> None:
    stored = StoredOutputs(store, host="gpu-7", cap=1600)
    ran = tmp_path / "r1.1"
    lines = [b"%08d\n" % number for number in range(1000)]
    followed, end = b"", 0
    for line in lines:
        write(ran, line)
        if not at_once:
            stored.add_files(ran)
            piece, end = stored.read("r1.1", "out.log", end)
            followed += piece
    stored.add_files(ran)
    assert followed == (b"" if at_once else b"".join(lines))  # nothing is left out for a reader who follows
    kept = store.query("SELECT sum(length(content)), count(*) FROM outputs")[0]
    assert kept[0] <= 1600
    text, end = stored.read("r1.1", "out.log")
    assert end == 9_000
    head, words, tail = text.partition(f" bytes are on host gpu-7 in {ran}/out.log]\n".encode())
    begun, said, left_out = head.rpartition(b"\n[runplan: ")
    assert words
    assert said
    assert begun == b"".join(lines)[:800]
    assert b"".join(lines).endswith(tail)
    assert len(tail) >= 600
    assert tail.index(b"\n") == 8, "it begins with a whole line"
    assert int(left_out) == 9_000 - 800 - len(tail)


def test_a_host_that_takes_over_reads_the_files_of_a_dispatch(store: PostgresStore, tmp_path: Path) -> None:
    other = Dispatches(tmp_path / "other" / "dispatch")
    (tmp_path / "other").mkdir()
    other.stored = store.outputs
    with stage(tmp_path) as here:
        here.dispatches.stored = store.outputs
        dispatch = here.sh("echo hello")
        assert here.outcome(dispatch).code == 0
        here.dispatches.write(dispatch, RETURN, f"say {SECRET}")
        (here.dispatches.directory(dispatch) / NOTES).symlink_to("/etc/passwd")
        (here.dispatches.directory(dispatch) / OWN / "TESTS-a.xml").write_text("<testsuite/>")
        names = (RETURN, NOTES, f"{OWN}/TESTS-*.xml")
        store.outputs.add_end(here.dispatches.directory(dispatch), names, lambda text: text.replace(SECRET, "***"))
        used = """echo 'runplan:tell {"tokens": 1234}'"""
        lost = here.sh(f"{used}; sleep 60", reader="script")
        until(lambda: Outputs(tmp_path / "dispatch", None).read(lost, "out.log")[0])
        disconnect(store)
        for _ in range(2):  # a database that is away does not disturb the first time
            here.dispatches.wait([lost], timeout_s=0)
    standing = other.standing(dispatch)
    assert isinstance(standing, Outcome)
    assert (standing.ending, standing.code) == (Ending.EXITED, 0)
    assert other.read(dispatch, "out.log") == "hello\n"
    assert other.read(dispatch, RETURN) == "say ***"
    assert other.read(dispatch, NOTES) is None
    assert other.read(dispatch, f"{OWN}/TESTS-a.xml") == "<testsuite/>"
    ended = other.standing(lost)
    assert isinstance(ended, Outcome)
    assert (ended.ending, ended.tally.usage.input_tokens) == (Ending.LOST, 1234)
    assert other.standing("r9.9") == NeverStarted()
    small = StoredOutputs(store, host="here", cap=8)
    small.add("r2.1", "exit.json", BytesIO(b"{}" * 1000), tmp_path)
    assert small.read_all("r2.1") == {"exit.json": b"{}" * 1000}, "a record is whole"
    rows = store.query("SELECT count(*) FROM outputs WHERE position(?::bytea IN content) > 0", SECRET.encode())
    assert rows == [(0,)]


def test_another_machine_follows_an_agent_and_is_told_where_the_rest_is(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "wait").touch()
    (tmp_path / "agent.sh").write_text(
        f"""\
echo begun
while test -e {tmp_path}/wait; do sleep 0.02; done
seq -f 'line %g' 2000
echo done > 1.txt
"""
    )
    begin(fleet, "1", agent=writes("1"))
    settings = SETTINGS.replace('implementer = "robot"', 'implementer = "sh"')
    argv = f'[agents.sh]\nkind = "command"\nargv = ["sh", "{tmp_path}/agent.sh"]\n'
    fleet.push(**{"runplan.toml": settings + argv})
    config = fleet.add_host("gpu-7").home / ".config/runplan/runplan.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[fleet]\noutput = 4000\n")
    fleet.start_worker("gpu-7")
    assert fleet.runplan("start", "1", "auto", "direct").code == 0
    words = [str(RUNPLAN), "logs", "1", "--agent", "-f"]
    until(lambda: fleet.rows("SELECT 1 FROM outputs"))
    with subprocess.Popen(words, cwd=fleet.desk.path, env=fleet.desk.env, stdout=subprocess.PIPE, text=True) as logs:
        assert logs.stdout is not None
        lines = iter(logs.stdout.readline, "")
        assert "begun\n" in lines, "shown while the agent waits"
        run = fleet.runplan("status", "1", "--json").json["run"]
        assert (run["agent"], bool(run["output"])) == ("sh", True)
        (tmp_path / "wait").unlink()
        shown = list(lines)
    (place,) = (line for line in shown if line.startswith("[runplan: "))
    assert f" bytes are on host gpu-7 in {tmp_path}/gpu-7/" in place
    assert (shown[0], shown[shown.index(place) + 1][:5]) == ("line 1\n", "line ")
    assert shown[shown.index("line 2000\n") + 1].startswith("== implement by sh ended")
    assert fleet.rows("SELECT sum(length(content)) FROM outputs WHERE name='out.log'") == [(4000,)]
    assert "of agents and checks in the database: their phases have landed" in fleet.runplan("gc").out
    assert fleet.rows("SELECT 1 FROM outputs") == []
    fleet.workers["gpu-7"].terminate()
    assert fleet.workers["gpu-7"].wait(30) == 0
