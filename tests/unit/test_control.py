"""The words between the daemon and its callers are read as they were written, and bad ones are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from runplan.daemon import protocol as control
from runplan.daemon.protocol import Granted, Hello, Lines, Refusal, Request, Told, TooLong
from runplan.errors import Exit, NotFound, RefusedEarly, RunplanError, Unreachable, error_with


def test_a_request_is_read_as_it_was_written() -> None:
    line = control.request_line("submit", {"root": "/r", "commands": [4], "odd": "a\nb\udc80"})

    assert line.count(b"\n") == 1
    assert control.read_request(line) == Request(
        verb="submit", fields={"root": "/r", "commands": [4], "odd": "a\nb\udc80"}
    )


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"", "one JSON object"),
        (b"start", "one JSON object"),
        (b"[1]", "one JSON object"),
        (b"\xff\xfe", "one JSON object"),
        (b"[" * 500_000, "one JSON object"),
        (b'{"verb": "ping"}', "names its protocol"),
        (b'{"v": "1", "verb": "ping"}', "names its protocol"),
        (b'{"v": true, "verb": "ping"}', "names its protocol"),
        (b'{"v": 1}', "names its protocol"),
        (b'{"v": 1, "verb": ["ping"]}', "names its protocol"),
        (b'{"v": 1, "verb": "explode"}', "does not know the verb 'explode'; there are: ping, status"),
    ],
)
def test_what_is_no_request_is_refused_with_words(line: bytes, told: str) -> None:
    refused = control.read_request(line)

    assert isinstance(refused, Refusal)
    assert told in refused.error
    assert refused.exit == Exit.USAGE


def test_another_protocol_is_answered_with_the_one_that_is_spoken() -> None:
    refused = control.read_request(b'{"v": 7, "verb": "status"}')

    assert refused == Refusal(error="this daemon speaks protocol 1, not 7", exit=Exit.UNREACHABLE)
    assert json.loads(control.refusal_line(refused))["v"] == 1


@pytest.mark.parametrize("verb", control.LASTING)
def test_a_daemon_of_another_protocol_can_still_be_known_and_sent_away(verb: str) -> None:
    assert control.read_request(f'{{"v": 7, "verb": "{verb}"}}'.encode()) == Request(verb=verb, fields={})


def test_no_verb_is_both_read_and_acted_on() -> None:
    assert not set(control.READING) & set(control.ACTING)
    assert set(control.LASTING) <= {*control.READING, *control.ACTING}


def test_each_reply_is_read_as_it_was_written() -> None:
    refusal = Refusal(error="there is no plan Y", exit=3)

    assert control.read_reply(control.granted_line({"run": "r1"})) == Granted(fields={"run": "r1"})
    assert control.read_reply(control.refusal_line(refusal)) == refusal
    assert control.read_reply(control.told_line({"seq": 4})) == Told(event={"seq": 4})


def test_a_field_cannot_pass_for_the_frame_of_the_line() -> None:
    assert control.read_request(control.request_line("ping", {"verb": "drain", "v": 9})) == Request(
        verb="ping", fields={}
    )
    assert control.read_reply(control.granted_line({"ok": False})) == Granted(fields={})


@pytest.mark.parametrize("line", [b"", b"hello", b"{}", b'{"ok": 1}', b'{"ok": false}', b'{"event": 3}', b"null"])
def test_a_reply_nobody_understands_says_so(line: bytes) -> None:
    told = control.read_reply(line)

    assert isinstance(told, Refusal)
    assert told.exit == Exit.UNREACHABLE


def test_a_daemon_is_known_by_what_it_says_of_itself() -> None:
    hello = Hello(version="1.2", pid=7, since="2026-01-01T00:00:00Z", speaks=(1, 2))

    assert control.read_hello(control.hello_fields(hello)) == hello
    assert control.read_hello({"speaks": "all", "pid": "x"}) == Hello(version="", pid=0, since="", speaks=())


@given(st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b""))), st.integers(1, 50))
def test_lines_come_out_whole_however_they_were_cut(lines: list[bytes], size: int) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    cutter = Lines()

    found = [line for at in range(0, len(stream), size) for line in cutter.take(stream[at : at + size])]

    assert found == lines


def test_a_line_that_never_ends_is_given_up() -> None:
    cutter = Lines()
    assert cutter.take(b"x" * (control.LONGEST - 1)) == []

    with pytest.raises(TooLong):
        cutter.take(b"x")


@pytest.mark.parametrize(
    ("code", "kind"), [(2, RefusedEarly), (3, NotFound), (5, Unreachable), (1, RunplanError), (4, RunplanError)]
)
def test_a_refusal_ends_the_command_with_its_own_code(code: int, kind: type[RunplanError]) -> None:
    error = error_with("no", code)

    assert isinstance(error, kind)
    assert (str(error), error.exit) == ("no", code)


def test_a_code_nobody_knows_is_usage() -> None:
    assert error_with("no", 99).exit == Exit.USAGE


@pytest.mark.parametrize(
    ("one", "other", "older"),
    [
        ("0.1.0", "0.2.0", True),
        ("0.9", "0.10", True),
        ("1.0", "1.0.0", False),
        ("1.0.0", "1.0", False),
        ("1.2.dev3", "1.2", True),
        ("1.2rc1", "1.2", True),
        ("1.2", "1.2rc1", False),
        ("1.2+local", "1.2", False),
        ("1.2", "1.2+local", False),
        ("", "0.1", True),
        ("0.2", "0.1.9", False),
    ],
)
def test_versions_are_compared_by_age(one: str, other: str, older: bool) -> None:
    assert control.is_older(one, other) is older
