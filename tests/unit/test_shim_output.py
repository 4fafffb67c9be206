"""Output is taken in by lines and in bounded memory."""

from __future__ import annotations

import pytest

from runplan.adapters.agents import command, script
from runplan.adapters.shim_output import LONGEST_LINE, MESSAGE_TAIL, MOST_TOOLS, Harvest, Lines
from runplan.core.dispatch import AgentEvent, Message, Spent, ToolUsed, Usage


def lines_of(*chunks: bytes) -> list[bytes]:
    taken: list[bytes] = []
    lines = Lines(taken.append)
    for chunk in chunks:
        lines.feed(chunk)
    lines.finish()
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
    harvest = Harvest(command.read)
    for number in range(5 * MESSAGE_TAIL // 1000):
        harvest.take(b"%0999d" % number)
    harvest.take(b"last")

    assert len(harvest.message) == MESSAGE_TAIL
    assert harvest.message.endswith(f"{number:0999d}\nlast\n")


def test_tools_are_kept_once_each_up_to_a_bound_and_usage_is_the_last_said() -> None:
    said: list[tuple[AgentEvent, ...]] = [
        (ToolUsed(tool="write", path="a"), ToolUsed(tool="write", path="b")),
        (Spent(usage=Usage(input_tokens=1)),),
        (ToolUsed(tool="write", path="a"), Spent(usage=Usage(input_tokens=5))),
    ]
    harvest = Harvest(lambda line: said[int(line)])
    for number in range(3):
        harvest.take(b"%d" % number)

    assert harvest.events == (
        ToolUsed(tool="write", path="a"),
        ToolUsed(tool="write", path="b"),
        Spent(usage=Usage(input_tokens=5)),
    )
    assert harvest.left_out == 0


def test_tools_beyond_the_bound_are_counted() -> None:
    harvest = Harvest(lambda line: (ToolUsed(tool="write", path=line.decode()),))
    for number in range(MOST_TOOLS + 3):
        harvest.take(b"%d" % number)
    harvest.take(b"0")

    assert len(harvest.events) == MOST_TOOLS
    assert harvest.left_out == 3


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (b'{"runplan":"tool","tool":"write","path":"/w/a b"}', ToolUsed(tool="write", path="/w/a b")),
        (b"plain", Message(text="plain\n")),
        (b'{"runplan":"tool","tool":"write"', Message(text='{"runplan":"tool","tool":"write"\n')),
        (b'{"runplan":"tool"}', Message(text='{"runplan":"tool"}\n')),
        (b"\xff", Message(text="�\n")),
    ],
)
def test_the_script_agents_lines_are_read(line: bytes, event: AgentEvent) -> None:
    assert script.read(line) == (event,)
