"""The daemon's log is JSON lines without secrets, and notifications delay and fail no run."""

import contextlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from runplan.adapters.notify.channels import Channel, deliver, list_channels, list_failures
from runplan.adapters.notify.notices import Notice
from runplan.adapters.notify.notifier import Notifier, open_log
from runplan.domain.settings.schema import NotifySettings, NotifyTarget
from tests.support.dispatching import gone, until
from tests.support.tools import write_script
from tests.support.webhook import served

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

    def __init__(self, log: "Log", settings: NotifySettings, *, limit_s: float = 0.0, **more: str) -> None:
        place, bound = log
        self._path = place / "daemon.log"
        env = {"PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(place), "RUNPLAN_AGENT": "1", "GIT_DIR": "x"}
        env |= {"no_proxy": "*", **more}
        self.slept: list[float] = []
        self.notifier = Notifier(settings, bound, env=env, limit_s=limit_s, sleep=self.slept.append)
        self.env = env

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


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


# --- ways ---------------------------------------------------------------------------------------------


def test_a_command_has_the_facts_in_its_environment_and_as_json_on_its_input(log: Log, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    command = "pwd > ../where; env | grep -E '^(RUNPLAN|GIT)_' | sort > ../env; cat > ../input"
    notice = replace(FAILED, repository=str(tmp_path / "repo"), link="https://pc.example/plan?plan=plans/x.md")
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
        "RUNPLAN_LINK": "https://pc.example/plan?plan=plans/x.md",
    }
    assert json.loads((tmp_path / "input").read_text()) == {
        name.removeprefix("RUNPLAN_").lower(): value for name, value in given.items()
    }


def test_a_webhook_is_sent_the_same_json_of_the_notices_that_were_asked_for(log: Log) -> None:
    with served() as (address, got):
        sender = Sender(log, NotifySettings(webhook=f"{address}/hook?x=1", on=("done",)))
        sender.send(FAILED, DONE)
    assert sender.logged() == []
    ((where, body),) = got
    assert where == "application/json /hook?x=1"
    assert (body["notice"], body["plan"], body["text"]) == ("done", "plans/x.md", "Landed: 1.")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the other desktop is asked by osascript")
def test_the_desktop_shows_title_text_and_what_to_type(log: Log, tmp_path: Path) -> None:
    write_script(tmp_path / "bin" / "notify-send", f'for word; do echo "[$word]"; done > {tmp_path}/shown')
    sender = Sender(log, NotifySettings(desktop=True, on=ALL))
    sender.send(FAILED)
    assert sender.logged() == []
    shown = (tmp_path / "shown").read_text()
    assert shown == (
        f"[-a]\n[runplan]\n[--]\n[{FAILED.title}]\n[3 of 40 tests fail. It's the parser's.\n{FAILED.command}]\n"
    )


# --- services of Apprise ------------------------------------------------------------------------------


def test_a_service_gets_the_notices_of_its_entry_with_the_link_or_the_command(log: Log) -> None:
    with served() as (address, got):
        base = address.replace("http:", "json:")
        own = NotifyTarget(url=f"{base}/own", on=("done",))
        sender = Sender(log, NotifySettings(urls=(f"{base}/t0ken", own), on=ALL))
        sender.send(FAILED, replace(DONE, link="https://pc.example/plan?plan=x"))
    assert sender.logged() == []
    sent = {(path.split()[1], body["type"]): body for path, body in got}
    assert sorted(sent) == [("/own", "success"), ("/t0ken", "failure"), ("/t0ken", "success")]
    assert sent["/t0ken", "failure"]["title"] == FAILED.title
    assert sent["/t0ken", "failure"]["message"] == f"{FAILED.text}\n\nrunplan report plans/x.md"
    assert sent["/t0ken", "success"]["message"] == "Landed: 1.\n\nhttps://pc.example/plan?plan=x"


@pytest.mark.rest
def test_the_address_of_a_service_is_in_no_argument_and_no_variable(log: Log) -> None:
    waits = threading.Event()
    with served(wait=waits) as (address, got):
        url = f"{address.replace('http:', 'json:')}/t0ken"
        sender = Sender(log, NotifySettings(urls=(url,), on=ALL))
        sender.notifier.send(DONE)
        until(lambda: got)
        shown = [_facts_of(pid) for pid in _children(os.getpid())]
        waits.set()
        sender.send()
    (child,) = [text for text in shown if b"apprise_child" in text]
    assert b"t0ken" not in child


def _facts_of(pid: int) -> bytes:
    """The arguments and the environment of a process; b"" for one that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
    return b""


def _children(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for file in files for word in file.read_text().split()]


@pytest.mark.rest
def test_a_service_that_fails_is_named_without_its_address(log: Log) -> None:
    urls = ("json://me:passw0rd@127.0.0.1:1/t0ken?x=s3cret", "tgram://t0ken", "nothing://t0ken")
    sender = Sender(log, NotifySettings(urls=urls, on=ALL))
    sender.send(FAILED)
    failed = {line["channel"]: line["why"] for line in sender.logged()}
    assert failed == {
        "url 1 (json)": "A Connection error occurred sending JSON notification to ….",
        "url 2 (tgram)": "Apprise does not understand this tgram:// address; see its documentation",
        "url 3 (nothing)": "Apprise does not understand this nothing:// address; see its documentation",
    }
    assert sender.slept == [0.5, 2.0, 5.0], "an address that is not understood is not tried again"


def test_without_apprise_the_error_names_the_command_that_installs_it(log: Log, tmp_path: Path) -> None:
    (tmp_path / "apprise.py").write_text("raise ImportError\n")
    sender = Sender(log, NotifySettings(urls=("ntfy://x",), on=ALL), PYTHONPATH=str(tmp_path))
    sender.send(FAILED)
    (line,) = sender.logged()
    assert line["why"] == "Apprise is not installed; install it: pip install 'runplan[notify]'"


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
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "notify"), "the daemon may end"
    gate.write_text("")
    sender.send()
    assert (tmp_path / "order").read_text().split() == ["done", "failed"]


def test_doctor_gets_no_secret_of_an_error(tmp_path: Path) -> None:
    secret = "ghp_" + "A1b2" * 9

    def refuse(_: Notice) -> None:
        raise OSError(f"no route to {secret}")

    channel = Channel(name="webhook", id="1", on=("done",), send=refuse)
    env = {"HOME": str(tmp_path)}
    why = deliver(channel, DONE, env, None)
    (failure,) = list_failures(env, [channel])
    assert why == failure.why
    assert (why.startswith("OSError: no route to "), secret in why) == (True, False)


def test_a_channel_that_fails_is_tried_again_and_remembered_until_it_works(log: Log) -> None:
    with served(500, 503, 204, 404) as (address, got):
        settings = NotifySettings(webhook=f"{address}/t0ken", on=ALL)
        sender = Sender(log, settings)
        channels = list_channels(settings, sender.env)
        sender.send(FAILED)
        assert (len(got), sender.slept, sender.logged()) == (3, [0.5, 2.0], [])
        assert list_failures(sender.env, channels) == []
        sender.send(FAILED)
        (failure,) = list_failures(sender.env, channels)
        assert (failure.channel, failure.why) == ("webhook", "the answer was 404 Not Found")
        assert len(got) == 7
        assert list_failures(sender.env, list_channels(replace(settings, webhook=address), sender.env)) == []
    with served() as (address, _):
        other = replace(settings, webhook=f"{address}/t0ken")
        works = [replace(channels[0], send=list_channels(other, sender.env)[0].send)]
        assert deliver(works[0], DONE, sender.env, None) == ""
    assert list_failures(sender.env, channels) == []


def test_a_link_that_a_command_prints_is_not_shown(log: Log) -> None:
    """Whoever reads it could approve the change, and agents can read the log."""
    link = f"https://pc.example/a/{'WyIwMDAw' * 30}.{'c2lnbmF0' * 5}"
    sender = Sender(log, NotifySettings(command="echo $RUNPLAN_LINK; exit 1", on=ALL))
    sender.send(replace(FAILED, link=link))
    (line,) = sender.logged()
    assert line["why"] == "exit code 1: [redacted]"


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(log: Log, tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    sender = Sender(log, NotifySettings(command=command, on=ALL), limit_s=0.3)
    sender.send(FAILED)
    assert [line["why"] for line in sender.logged()] == ["took longer than 0.3 s and was ended"]
    child = int((tmp_path / "child").read_text())
    until(lambda: gone(child))


@pytest.mark.parametrize(
    ("webhook", "why"),
    [
        ("http://127.0.0.1:1/secret-path", "URLError: <urlopen error [Errno 111] Connection refused>"),
        ("http://no.such.host.invalid/", "URLError: "),
        ("https://me:secret-path@127.0.0.1/", "InvalidURL: nonnumeric port: '…@…'"),
    ],
)
def test_a_webhook_out_of_reach_is_logged_without_its_address(log: Log, tmp_path: Path, webhook: str, why: str) -> None:
    sender = Sender(log, NotifySettings(webhook=webhook, on=ALL))
    sender.send(FAILED)
    (line,) = sender.logged()
    assert line["why"].startswith(why)
    assert "secret-path" not in json.dumps(line)


def test_a_webhook_that_fails_is_logged_and_the_other_channels_are_used(log: Log, tmp_path: Path) -> None:
    with served(500) as (address, _):
        sender = Sender(log, NotifySettings(webhook=address, desktop=False, command=f"touch {tmp_path}/sent", on=ALL))
        sender.send(FAILED)
        assert [line["why"] for line in sender.logged()] == ["the answer was 500 Internal Server Error"]
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
