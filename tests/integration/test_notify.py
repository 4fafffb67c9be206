"""People are told by a command, a webhook or on the desktop, soon and in order; nobody waits for it."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from runplan.daemon.logs import open_log
from runplan.daemon.notify import MOST_AT_ONCE, MOST_WAITING, Notifier
from runplan.report.notices import Notice
from runplan.settings.schema import NotifySettings
from tests.support.cli import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


class Told:
    """A notifier with a real log beside it."""

    def __init__(self, place: Path, settings: NotifySettings, **limits: float) -> None:
        self.path = place / "log" / "daemon.log"
        self.log = open_log(self.path)
        env = {"PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(place), "RUNPLAN_AGENT": "1", "GIT_DIR": "x"}
        self.notifier = Notifier(settings, self.log, env=env, **limits)

    def send(self, *notices: Notice) -> None:
        for notice in notices:
            self.notifier.send(notice)
        assert self.notifier.flush(within_s=30)

    def logged(self) -> list[dict[str, Any]]:
        self.log.close()
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


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


def test_a_command_has_the_facts_in_its_environment_and_as_json_on_its_input(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    command = "pwd > ../where; env | grep -E '^(RUNPLAN|GIT)_' | sort > ../env; cat > ../input"
    notice = replace(FAILED, repository=str(tmp_path / "repo"))
    told = Told(tmp_path, NotifySettings(command=command, on=ALL))
    told.send(notice)
    assert told.logged() == []
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


def test_a_webhook_is_sent_the_same_json(tmp_path: Path) -> None:
    with served() as (address, got):
        told = Told(tmp_path, NotifySettings(webhook=f"{address}/hook?x=1", on=ALL))
        told.send(DONE)
    assert told.logged() == []
    ((where, body),) = got
    assert where == "application/json /hook?x=1"
    assert (body["notice"], body["plan"], body["text"]) == ("done", "plans/x.md", "Landed: 1.")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the other desktop is asked by osascript")
def test_the_desktop_shows_title_text_and_what_to_type(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "notify-send"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nfor word; do echo "[$word]"; done > {tmp_path}/shown\n')
    program.chmod(0o755)
    told = Told(tmp_path, NotifySettings(desktop=True, on=ALL))
    told.send(FAILED)
    assert told.logged() == []
    shown = (tmp_path / "shown").read_text()
    assert shown == (
        f"[-a]\n[runplan]\n[--]\n[{FAILED.title}]\n[3 of 40 tests fail. It's the parser's.\n{FAILED.command}]\n"
    )


def test_nothing_is_sent_that_was_not_asked_for(tmp_path: Path) -> None:
    told = Told(tmp_path, NotifySettings(command=f"touch {tmp_path}/sent", on=("failed",)))
    told.send(DONE)
    assert not (tmp_path / "sent").exists()
    silent = Told(tmp_path, NotifySettings(on=ALL))
    silent.send(FAILED)
    assert not any(thread.name == "runplan-notify" for thread in threading.enumerate())


# --- no harm ------------------------------------------------------------------------------------------


def test_sending_returns_at_once_keeps_the_order_and_the_worker_goes_when_all_is_sent(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    told = Told(
        tmp_path,
        NotifySettings(command=f'[ "$RUNPLAN_PHASE" ] && cat {gate}; echo $RUNPLAN_NOTICE >> {tmp_path}/order', on=ALL),
    )
    told.notifier.send(FAILED)  # the command ends when the gate is opened, and not before
    told.notifier.send(DONE)
    assert not told.notifier.flush(within_s=0.01)
    assert any(thread.name == "runplan-notify" for thread in threading.enumerate())
    gate.write_text("")
    told.send()
    assert (tmp_path / "order").read_text().split() == ["failed", "done"]
    for thread in threading.enumerate():
        if thread.name == "runplan-notify":
            thread.join(30)
    assert not any(thread.name == "runplan-notify" for thread in threading.enumerate())
    told.send(DONE)
    assert (tmp_path / "order").read_text().split() == ["failed", "done", "done"]


def test_failures_in_a_row_are_logged_now_and_then_and_counted(tmp_path: Path) -> None:
    told = Told(tmp_path, NotifySettings(command="exit 3", on=ALL), quiet_s=3600.0)
    told.send(FAILED, DONE, FAILED)
    told.notifier._quiet_s = 0.0  # as when that time has passed
    told.send(DONE, DONE)
    lines = [(line["why"], line["run"], line["unlogged"]) for line in told.logged()]
    assert lines == [("exit code 3", "r1a2b3c4", number) for number in (0, 2, 0)]


def test_a_failure_is_logged_once_until_it_goes_well_again(tmp_path: Path) -> None:
    command = f'echo "no mail for ghp_{"A1b2" * 9}" >&2; test -e {tmp_path}/well'
    told = Told(tmp_path, NotifySettings(command=command, on=ALL))
    told.send(FAILED, DONE)
    (tmp_path / "well").touch()
    told.send(DONE)
    (tmp_path / "well").unlink()
    told.send(DONE)
    lines = told.logged()
    assert [(line["event"], line["way"]) for line in lines] == [("notification_failed", "command")] * 2
    assert lines[0]["why"] == "exit code 1: no mail for [redacted]"
    assert (lines[0]["plan"], lines[0]["run"]) == ("plans/x.md", "r1a2b3c4")


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    told = Told(tmp_path, NotifySettings(command=command, on=ALL), command_s=1.0)
    told.send(FAILED)
    assert [line["why"] for line in told.logged()] == ["took longer than 1 s and was ended"]
    child = int((tmp_path / "child").read_text())
    until(lambda: not _lives(child))


def test_one_that_takes_long_is_overtaken_by_a_few_at_a_time(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    hangs = f'[ "$RUNPLAN_PHASE" = "" ] || until [ -e {gate} ]; do sleep 0.02; done'
    command = f"echo >> {tmp_path}/begun; {hangs}; echo $RUNPLAN_NOTICE >> {tmp_path}/sent"
    told = Told(tmp_path, NotifySettings(command=command, on=ALL), slow_s=0.05)
    told.notifier.send(FAILED)
    assert not told.notifier.flush(within_s=0.2), "it takes long before there is another"
    for notice in (FAILED, DONE, *[FAILED] * MOST_AT_ONCE):
        told.notifier.send(notice)
    until(lambda: _lines(tmp_path / "begun") == 1 + MOST_AT_ONCE)
    assert (tmp_path / "sent").read_text().split() == ["done"]
    assert not told.notifier.flush(within_s=0.2)
    assert _lines(tmp_path / "begun") == 1 + MOST_AT_ONCE, "no more of them at the same time"
    gate.touch()
    told.send()
    assert _lines(tmp_path / "sent") == 3 + MOST_AT_ONCE


def _lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


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
def test_a_webhook_that_cannot_be_reached_is_told_without_its_address(tmp_path: Path, webhook: str, why: str) -> None:
    told = Told(tmp_path, NotifySettings(webhook=webhook, on=ALL))
    told.send(FAILED)
    (line,) = told.logged()
    assert line["why"].startswith(why)
    assert "secret-path" not in json.dumps(line)


def test_a_webhook_that_says_no_or_nothing_is_told_and_the_other_ways_are_gone(tmp_path: Path) -> None:
    with served(status=500) as (address, _):
        told = Told(tmp_path, NotifySettings(webhook=address, desktop=False, command=f"touch {tmp_path}/sent", on=ALL))
        told.send(FAILED)
        assert [line["why"] for line in told.logged()] == ["HTTPError: HTTP Error 500: Internal Server Error"]
        assert (tmp_path / "sent").exists()
    never = threading.Event()
    with served(wait=never) as (address, _):
        slow = Told(tmp_path / "slow", NotifySettings(webhook=address, on=ALL), webhook_s=0.2)
        slow.send(FAILED)
        never.set()
        assert [line["why"] for line in slow.logged()] == ["TimeoutError: timed out"]


def test_more_than_can_wait_is_dropped_with_one_word_in_the_log(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f"[ -e {tmp_path}/open ] || cat {gate}; echo >> {tmp_path}/count; touch {tmp_path}/open"
    told = Told(tmp_path, NotifySettings(command=command, on=ALL))
    told.notifier.send(FAILED)
    with gate.open("w"):  # the first is at work now
        for _ in range(MOST_WAITING + 5):
            told.notifier.send(DONE)
    told.send()
    assert (tmp_path / "count").read_text().count("\n") == 1 + MOST_WAITING
    assert [line["way"] for line in told.logged()] == ["queue"]


def test_what_cannot_be_given_to_a_program_is_a_failure_and_not_an_error(tmp_path: Path) -> None:
    told = Told(tmp_path, NotifySettings(command="true", on=ALL))
    told.send(replace(FAILED, text="a\0b"), replace(FAILED, repository=str(tmp_path / "gone")))
    assert len(told.logged()) == 1
