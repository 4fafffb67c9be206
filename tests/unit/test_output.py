"""Output is taken in by lines and in bounded memory."""

import os
from pathlib import Path

import pytest

from runplan.adapters.agents.clis import agent_of
from runplan.adapters.supervise.output import (
    ERROR_TAIL,
    LOG_TAIL,
    LONGEST_LINE,
    CappedLog,
    DispatchFiles,
    EventCollector,
)
from runplan.domain.checks.secrets import LONGEST
from runplan.domain.run.dispatch import (
    MESSAGE_TAIL,
    AgentEvent,
    EndingKind,
    Finished,
    Message,
    Retrying,
    ToolUsed,
    Trouble,
)


def lines_of(*chunks: bytes) -> list[bytes]:
    taken: list[bytes] = []

    def read(line: bytes) -> tuple[AgentEvent, ...]:
        taken.append(line)
        return ()

    events = EventCollector(read)
    for chunk in chunks:
        events.feed(chunk)
    events.finish()
    return taken


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        pytest.param((), [], id="nothing"),
        pytest.param((b"a\nb\n",), [b"a", b"b"], id="whole lines"),
        pytest.param((b"a\nb",), [b"a", b"b"], id="no newline at the end"),
        pytest.param((b"a", b"b", b"\nc", b"\n"), [b"ab", b"c"], id="cut anywhere"),
        pytest.param((b"\n\na\n\n",), [b"", b"", b"a", b""], id="empty lines"),
        pytest.param((b"a", b"\n", b"\n"), [b"a", b""], id="an empty line in a chunk of its own"),
        pytest.param((b"a\r\n\xff\0\n",), [b"a\r", b"\xff\0"], id="any bytes"),
    ],
)
def test_chunks_are_cut_into_lines(chunks: tuple[bytes, ...], lines: list[bytes]) -> None:
    assert lines_of(*chunks) == lines


def test_a_line_of_10_megabytes_is_whole_and_a_longer_one_is_cut() -> None:
    chunk = b"x" * (LONGEST_LINE // 10)
    assert lines_of(*[chunk] * 10, b"\nafter") == [chunk * 10, b"after"]
    assert lines_of(*[chunk] * 12, b"\nafter\n") == [chunk * 10, b"after"]


def test_the_end_of_the_message_is_kept() -> None:
    events = EventCollector(agent_of("command").read_line)
    for number in range(5 * MESSAGE_TAIL // 1000):
        events.read_line(b"%0999d" % number)
    events.read_line(b"last")
    assert len(events.message) == MESSAGE_TAIL - LONGEST
    assert events.message.endswith(f"{number:0999d}\nlast\n")


@pytest.mark.parametrize("error", [KeyError, TypeError, RecursionError, OverflowError, UnicodeError, AssertionError])
def test_a_line_that_fails_in_its_reader_counts_as_unread(error: type[Exception]) -> None:
    def read(line: bytes) -> tuple[AgentEvent, ...]:
        if line == b"bad":
            raise error("bad")
        return (Message(text=line.decode()),)

    events = EventCollector(read)
    for line in (b"a", b"bad", b"b"):
        events.read_line(line)
    assert (events.message, events.tally.unread) == ("ab", 1)


def test_the_end_of_standard_error_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "err.log").write_bytes(b"x" * 3 * ERROR_TAIL + "the end ä".encode())
    error = DispatchFiles(tmp_path).error()
    assert error.endswith("xthe end ä")
    assert len(error) <= ERROR_TAIL


def test_a_full_log_still_updates_the_time_of_the_last_output(tmp_path: Path) -> None:
    file = tmp_path / "out.log"
    log = CappedLog(file, cap=100)
    log.write(b"x\n" * 100)
    os.utime(file, (0, 0))
    log.write(b"more")
    assert (file.stat().st_size, file.stat().st_mtime > 0) == (50, True)
    log.close()


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b"runplan:tool write /w/a b", ToolUsed(tool="write", path="/w/a b")),
        (b"plain", Message(text="plain\n")),
        (b'runplan:tell {"tokens":', Message(text='runplan:tell {"tokens":\n')),
        (b"\xff", Message(text="�\n")),
    ],
)
def test_the_script_agents_lines_are_read(line: bytes, event: AgentEvent) -> None:
    assert agent_of("script").read_line(line) == (event,)


# --- secrets ----------------------------------------------------------------------------------------------

SECRET = "hunter2-hunter2-0123456789"


@pytest.mark.parametrize("cap", [64, 1000, 40_000, LOG_TAIL * 3])
@pytest.mark.parametrize("size", [1, 7, 4096])
def test_no_log_holds_a_secret_or_a_part_of_one(tmp_path: Path, cap: int, size: int) -> None:
    said = f"a line and {SECRET} in it\n".encode() * (1 + 60_000 // (40 if size > 1 else 400))
    log = CappedLog(tmp_path / "log", cap=cap, secrets=(SECRET,))
    for at in range(0, len(said), size):
        log.write(said[at : at + size])
    log.close()
    kept = (tmp_path / "log").read_text()
    assert not any(half in kept for half in (SECRET[:12], SECRET[-12:]))
    assert "[redacted] in it\n" in kept or cap < 1000
    assert len(kept) <= cap + 100


def test_a_secret_across_the_end_of_the_head_is_in_neither_part(tmp_path: Path) -> None:
    for before in range(470, 530, 3):
        log = CappedLog(tmp_path / "log", cap=1000, secrets=(SECRET,))
        log.write(b"." * before + SECRET.encode() + b"." * 20_000)
        log.close()
        kept = (tmp_path / "log").read_text()
        assert not any(SECRET[at : at + 6] in kept for at in range(len(SECRET) - 6)), before


def test_recorded_events_are_redacted() -> None:
    reported: list[AgentEvent] = [
        Message(text=f"it is {SECRET[:9]}"),
        Message(text=f"{SECRET[9:]}, you know"),
        ToolUsed(tool=SECRET, denied=True),
        Trouble(kind=EndingKind.AUTH, words=f"bad key {SECRET}", resets=3.0),
        Finished(ok=False, words=f"bad key {SECRET}"),
        Retrying(words=f"with {SECRET}"),
    ]
    events = EventCollector(lambda _: tuple(reported), secrets=(SECRET,))
    events.read_line(b"x")
    assert events.message == "it is [redacted], you know"
    assert SECRET[-9:] not in repr(events.tally)
    assert events.tally.troubles == (Trouble(kind=EndingKind.AUTH, words="bad key [redacted]", resets=3.0),)


def test_a_message_that_was_cut_does_not_begin_with_half_a_secret() -> None:
    events = EventCollector(agent_of("command").read_line, secrets=(SECRET,))
    events.read_line(SECRET.encode() + b"." * (MESSAGE_TAIL - 10))
    assert SECRET[-9:] not in events.message
