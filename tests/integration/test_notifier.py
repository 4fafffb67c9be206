"""The daemon's log is JSON lines without secrets, and notifications delay and fail no run."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan.daemon.notifier import Notifier, open_log
from runplan.report.notices import Notice
from runplan.settings.schema import NotifySettings
from tests.support.cli import until

ALL = ("done", "failed", "waiting")
FAILED = Notice(
    kind="failed",
    plan="plans/x.md",
    run="r1a2b3c4",
    phase="2",
    reason="tests-failed",
    title="plans/x.md: phase 2 failed (tests-failed)",
    text="3 of 40 tests fail. It's the parser's.",
    command="runplan report plans/x.md",
)
DONE = Notice(kind="done", plan="plans/x.md", run="r1a2b3c4", title="plans/x.md: done", text="Landed: 1.")


class Sender:
    """A notifier with a real log."""

    def __init__(self, log: "Log", settings: NotifySettings, **limits: float) -> None:
        place, bound = log
        self._path = place / "daemon.log"
        env = {"PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(place), "RUNPLAN_AGENT": "1", "GIT_DIR": "x"}
        self.notifier = Notifier(settings, bound, env=env, **limits)

    def send(self, *notices: Notice) -> None:
        for notice in notices:
            self.notifier.send(notice)
        assert self.notifier.flush(within_s=30)

    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []


Log = tuple["Path", "FilteringBoundLogger"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "daemon.log") as bound:
        yield tmp_path, bound


@contextmanager
def served(*, status: int = 204, wait: threading.Event | None = None) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A web server on this machine, and what it was sent."""
    got: list[tuple[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((f"{self.headers['Content-Type']} {self.path}", json.loads(body)))
            if wait is not None:
                wait.wait(10)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


# --- ways ---------------------------------------------------------------------------------------------


def test_a_command_has_the_facts_in_its_environment_and_as_json_on_its_input(log: Log, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    command = "pwd > ../where; env | grep -E '^(RUNPLAN|GIT)_' | sort > ../env; cat > ../input"
    notice = replace(FAILED, repository=str(tmp_path / "repo"))
    sender = Sender(log, NotifySettings(command=command, on=ALL))
    sender.send(notice)
    assert sender.logged() == []
    assert (tmp_path / "where").read_text().strip() == str((tmp_path / "repo").resolve())
    given = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert given == {
        "RUNPLAN_NOTICE": "failed",
        "RUNPLAN_REPOSITORY": str(tmp_path / "repo"),
        "RUNPLAN_PLAN": "plans/x.md",
        "RUNPLAN_RUN": "r1a2b3c4",
        "RUNPLAN_PHASE": "2",
        "RUNPLAN_REASON": "tests-failed",
        "RUNPLAN_TITLE": "plans/x.md: phase 2 failed (tests-failed)",
        "RUNPLAN_TEXT": "3 of 40 tests fail. It's the parser's.",
        "RUNPLAN_COMMAND": "runplan report plans/x.md",
    }
    assert json.loads((tmp_path / "input").read_text()) == {
        name.removeprefix("RUNPLAN_").lower(): value for name, value in given.items()
    }


def test_a_webhook_is_sent_the_same_json(log: Log, tmp_path: Path) -> None:
    with served() as (address, got):
        sender = Sender(log, NotifySettings(webhook=f"{address}/hook?x=1", on=ALL))
        sender.send(DONE)
    assert sender.logged() == []
    ((where, body),) = got
    assert where == "application/json /hook?x=1"
    assert (body["notice"], body["plan"], body["text"]) == ("done", "plans/x.md", "Landed: 1.")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the other desktop is asked by osascript")
def test_the_desktop_shows_title_text_and_what_to_type(log: Log, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor word; do echo "[$word]"; done > {tmp_path}/shown\n')
    program.chmod(0o755)
    sender = Sender(log, NotifySettings(desktop=True, on=ALL))
    sender.send(FAILED)
    assert sender.logged() == []
    shown = (tmp_path / "shown").read_text()
    assert shown == (
        f"[-a]\n[runplan]\n[--]\n[{FAILED.title}]\n[3 of 40 tests fail. It's the parser's.\n{FAILED.command}]\n"
    )


def test_nothing_is_sent_that_was_not_asked_for(log: Log, tmp_path: Path) -> None:
    sender = Sender(log, NotifySettings(command=f"touch {tmp_path}/sent", on=("failed",)))
    sender.send(DONE)
    assert not (tmp_path / "sent").exists()
    silent = Sender(log, NotifySettings(on=ALL))
    silent.send(FAILED)
    assert not any(thread.name == "notify" for thread in threading.enumerate())


# --- no harm ------------------------------------------------------------------------------------------


def test_sending_returns_at_once_and_a_slow_notice_delays_no_other(log: Log, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f'[ "$RUNPLAN_PHASE" ] && cat {gate}; echo $RUNPLAN_NOTICE >> {tmp_path}/order'
    sender = Sender(log, NotifySettings(command=command, on=ALL))
    sender.notifier.send(FAILED)  # the command ends when the gate is opened, and not before
    sender.notifier.send(DONE)
    until((tmp_path / "order").exists)
    assert not sender.notifier.flush(within_s=0.01)
    gate.write_text("")
    sender.send()
    assert (tmp_path / "order").read_text().split() == ["done", "failed"]


def test_a_failure_is_logged_without_secrets(log: Log, tmp_path: Path) -> None:
    sender = Sender(log, NotifySettings(command=f'echo "no mail for ghp_{"A1b2" * 9}" >&2; exit 1', on=ALL))
    sender.send(FAILED)
    (line,) = sender.logged()
    assert (line["event"], line["channel"], line["plan"]) == ("notification_failed", "command", "plans/x.md")
    assert line["why"] == "exit code 1: no mail for [redacted]"


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(log: Log, tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    sender = Sender(log, NotifySettings(command=command, on=ALL), limit_s=1.0)
    sender.send(FAILED)
    assert [line["why"] for line in sender.logged()] == ["took longer than 1 s and was ended"]
    child = int((tmp_path / "child").read_text())
    until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("webhook", "why"),
    [
        ("http://127.0.0.1:1/secret-path", "URLError: <urlopen error [Errno 111] Connection refused>"),
        ("http://no.such.host.invalid/", "URLError: "),
    ],
)
def test_a_webhook_that_cannot_be_reached_is_logged_without_its_address(
    log: Log, tmp_path: Path, webhook: str, why: str
) -> None:
    sender = Sender(log, NotifySettings(webhook=webhook, on=ALL))
    sender.send(FAILED)
    (line,) = sender.logged()
    assert line["why"].startswith(why)
    assert "secret-path" not in json.dumps(line)


def test_a_webhook_that_fails_is_logged_and_the_other_channels_are_used(log: Log, tmp_path: Path) -> None:
    with served(status=500) as (address, _):
        sender = Sender(log, NotifySettings(webhook=address, desktop=False, command=f"touch {tmp_path}/sent", on=ALL))
        sender.send(FAILED)
        assert [line["why"] for line in sender.logged()] == ["HTTPError: HTTP Error 500: Internal Server Error"]
        assert (tmp_path / "sent").exists()
    never = threading.Event()
    with served(wait=never) as (address, _):
        slow = Sender(log, NotifySettings(webhook=address, on=ALL), limit_s=0.2)
        slow.send(FAILED)
        never.set()
        assert slow.logged()[-1]["why"] == "TimeoutError: timed out"


def test_facts_that_a_program_cannot_take_are_a_logged_failure(log: Log, tmp_path: Path) -> None:
    sender = Sender(log, NotifySettings(command="true", on=ALL))
    sender.send(replace(FAILED, text="a\0b"), replace(FAILED, repository=str(tmp_path / "gone")))
    assert len(sender.logged()) == 2


# --- the log ------------------------------------------------------------------------------------------


def test_an_event_is_a_json_line_with_its_first_fields_in_order_and_without_secrets(tmp_path: Path) -> None:
    with open_log(tmp_path / "daemon.log") as log:
        log.info("ended", outcome="done", run="r1", error=ValueError("of ghp_" + "A1b2" * 9), path="\udcff")
    line = json.loads((tmp_path / "daemon.log").read_text())
    assert list(line)[:4] == ["at", "level", "event", "run"]
    assert (line["level"], line["event"], line["error"], line["path"]) == ("info", "ended", "of [redacted]", "\udcff")


def test_log_files_are_rotated_by_size(tmp_path: Path) -> None:
    with open_log(tmp_path / "daemon.log", files=3, file_bytes=2000) as log:
        for number in range(100):
            log.info("counted", number=number, filler="x" * 100)
    kept = sorted(tmp_path.iterdir())
    assert [file.name for file in kept] == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    numbers = [json.loads(line)["number"] for file in reversed(kept) for line in file.read_text().splitlines()]
    assert numbers == list(range(numbers[0], 100))


def test_a_line_that_the_disk_refuses_is_dropped(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "daemon.log").mkdir()
    with open_log(tmp_path / "daemon.log") as log:
        log.info("lost")
        (tmp_path / "daemon.log").rmdir()
        log.info("written")
    assert json.loads((tmp_path / "daemon.log").read_text())["event"] == "written"
    assert capfd.readouterr() == ("", "")
