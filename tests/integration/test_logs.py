"""The daemon's log writes facts as JSON lines, redacts secrets, rotates its files and never fails its caller."""

from __future__ import annotations

import json
import resource
import signal
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runplan.checks.secrets import secret_values
from runplan.daemon.logs import open_log

TOKEN = "ghp_" + "A1b2" * 9


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "daemon.log"


def test_a_fact_is_a_line_with_its_time_level_and_what_was_bound(place: Path) -> None:
    log = open_log(place)
    bound = log.bind(run="r1a2b3c4", phase="2").bind(dispatch="r1a2b3c4.1")
    bound.info("dispatch_ended", ending="exited", took_s=1.5)
    log.warning("daemon_drained")
    log.close()
    first, second = lines(place)
    assert datetime.fromisoformat(first.pop("at")).tzinfo == UTC
    assert list(first.items()) == [
        ("level", "info"),
        ("event", "dispatch_ended"),
        ("run", "r1a2b3c4"),
        ("phase", "2"),
        ("dispatch", "r1a2b3c4.1"),
        ("ending", "exited"),
        ("took_s", 1.5),
    ]
    assert (second["level"], second["event"], "run" in second) == ("warning", "daemon_drained", False)


def test_what_is_less_than_the_level_is_left_out(place: Path) -> None:
    log = open_log(place, level="warning")
    log.info("run_started")
    log.bind(run="r1").error("run_crashed")
    log.close()
    assert [line["event"] for line in lines(place)] == ["run_crashed"]


def test_only_the_user_can_read_it(place: Path) -> None:
    log = open_log(place)
    log.info("daemon_started")
    log.close()
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.parent.stat().st_mode & 0o777 == 0o700


def test_secrets_are_taken_out_by_form_by_value_and_by_name(place: Path) -> None:
    values = secret_values({"DEPLOY_TOKEN": 'open "sesame"', "HOME": "/home/uma"})
    log = open_log(place, secrets=values)
    log.bind(words=f"as {TOKEN}").info("agent_failed", said='try open "sesame" again', tokens=12)
    log.info("environment_taken", env={"API_KEY": "abc", "EMPTY_KEY": "", "LANG": "C"}, password="p", asked=[TOKEN])
    log.close()
    text = place.read_text()
    assert TOKEN not in text
    assert "sesame" not in text
    first, second = lines(place)
    assert (first["words"], first["said"], first["tokens"]) == ("as [redacted]", "try [redacted] again", 12)
    assert second["env"] == {"API_KEY": "[redacted]", "EMPTY_KEY": "", "LANG": "C"}
    assert (second["password"], second["asked"]) == ("[redacted]", ["[redacted]"])


class Spiteful:
    """Something that cannot be written."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (Spiteful(), "<Spiteful>"),
        (ValueError("of", 3), "ValueError: of, 3"),
        (ValueError(Spiteful()), "<ValueError>"),
        (float("nan"), "<float>"),
        (10**5000, "<int>"),
        (b"\xffbytes", "�bytes"),
        ("\udcff and ä", "\udcff and ä"),
        (Path("/a/b"), "/a/b"),
        (datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01T00:00:00+00:00"),
        ({("a", 1): {2}}, {"<tuple>": [2]}),
        ([[[[["deep"]]]]], [[[["<list>"]]]]),
        ("x" * 5000, "x" * 4096 + "…"),
        (range(3), "<range>"),
    ],
    ids=range(13),
)
def test_whatever_it_is_given_it_writes_a_line(place: Path, value: object, told: object) -> None:
    log = open_log(place)
    log.info("told", what=value)
    log.close()
    assert lines(place)[0]["what"] == told


def test_a_list_that_holds_itself_and_names_that_are_taken_do_no_harm(place: Path) -> None:
    endless: list[object] = []
    endless.append(endless)
    log = open_log(place)
    log.info("told", endless=endless, event="mine", at="then", level=3, **{"a b": 1})
    log.close()
    (line,) = lines(place)
    assert (line["event"], line["event_"], line["at_"], line["level_"], line["a b"]) == ("told", "mine", "then", 3, 1)


def test_files_are_turned_over_by_size_and_only_so_many_are_kept(place: Path) -> None:
    log = open_log(place, files=3, file_bytes=2000)
    for number in range(100):
        log.info("counted", number=number, filler="x" * 100)
    log.close()
    kept = sorted(place.parent.iterdir())
    assert [file.name for file in kept] == ["daemon.log", "daemon.log.1", "daemon.log.2"]
    assert all(file.stat().st_size <= 2000 for file in kept)
    numbers = [line["number"] for file in reversed(kept) for line in lines(file)]
    assert numbers == list(range(numbers[0], 100))


def test_a_disk_that_refuses_costs_lines_and_nothing_else(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = open_log(place)
    place.mkdir()
    log.info("lost")
    place.rmdir()
    log.info("written")
    log.close()
    assert [line["event"] for line in lines(place)] == ["written"]
    assert capfd.readouterr() == ("", "")


def test_a_disk_that_is_full_in_the_middle_of_a_line_costs_that_line_and_no_other(place: Path) -> None:
    """A file that may not grow further stands for it."""
    log = open_log(place)
    log.info("before")
    allowed = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (place.stat().st_size + 100, allowed[1]))
        log.info("lost", filler="x" * 1000)
        log.info("lost", **{f"filler{n}": "x" * 3000 for n in range(5)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, allowed)
        signal.signal(signal.SIGXFSZ, ignored)
    log.info("after")
    log.close()
    assert [line["event"] for line in lines(place)] == ["before", "after"]


def test_threads_do_not_mix_their_lines(place: Path) -> None:
    log = open_log(place, file_bytes=20_000)

    def work(run: str) -> None:
        for number in range(50):
            log.bind(run=run).info("step", number=number)

    threads = [threading.Thread(target=work, args=(f"r{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    told = [line for file in place.parent.iterdir() for line in lines(file)]
    assert len(told) == 400
    for n in range(8):
        assert sorted(line["number"] for line in told if line["run"] == f"r{n}") == list(range(50))
