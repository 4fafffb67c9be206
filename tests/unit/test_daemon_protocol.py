"""Messages between the daemon and its callers are read as they were written, and invalid ones are refused."""

import pytest

from runplan.daemon.protocol import (
    Environment,
    Ping,
    Reply,
    Request,
    Wake,
    line_of,
    read_reply,
    read_request,
)
from runplan.daemon.state import Known
from runplan.errors import Exit, NotFound, RefusedEarly, RunplanError, Unreachable, UsageError, error_with

REPOSITORY = Known(root="/r", common="/r/.git")


@pytest.mark.parametrize(
    "request_",
    [
        Ping(),
        Environment(repository=REPOSITORY, name="n", env={"ODD": "a\nb\udc80"}),
        Wake(repository=REPOSITORY),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_request_is_one_line_and_read_as_it_was_written(request_: Request) -> None:
    line = line_of(request_)
    assert line.count(b"\n") == 1
    assert read_request(line) == request_


def test_unknown_fields_of_a_request_are_ignored() -> None:
    assert read_request(b'{"verb": "ping", "new": 1}') == Ping()


@pytest.mark.parametrize(
    "line", [b"", b"start", b"[1]", b"\xff\xfe", b"[" * 500_000, b"{}", b'{"verb": "explode"}', b'{"verb": "wake"}']
)
def test_an_invalid_request_is_a_usage_error(line: bytes) -> None:
    with pytest.raises(UsageError, match="invalid request: "):
        read_request(line)


@pytest.mark.parametrize("reply", [Reply(result={"a": 1}), Reply(error="no plan Y", exit=3)])
def test_a_reply_is_read_as_it_was_written(reply: Reply) -> None:
    assert read_reply(line_of(reply)) == reply


@pytest.mark.parametrize("line", [b"", b"hello", b"3", b'{"exit": "x"}', b'{"result": 3}'])
def test_an_invalid_reply_is_an_error_of_the_daemon(line: bytes) -> None:
    assert read_reply(line).exit == Exit.UNREACHABLE


@pytest.mark.parametrize(
    ("code", "kind"), [(2, RefusedEarly), (3, NotFound), (5, Unreachable), (1, RunplanError), (99, RefusedEarly)]
)
def test_an_error_ends_the_command_with_its_own_code(code: int, kind: type[RunplanError]) -> None:
    error = error_with("no", code)
    assert isinstance(error, kind)
    assert (str(error), error.exit) == ("no", code if code != 99 else Exit.USAGE)
