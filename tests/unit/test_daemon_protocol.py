"""Messages between the daemon and its callers are read as they were written, and invalid ones are refused."""

import pytest

from runplan.domain.errors import Exit, NotFound, RefusedEarly, RunplanError, Unreachable, UsageError, error_with
from runplan.hosts.daemon.protocol import read_reply, read_request


@pytest.mark.parametrize(
    "line", [b"", b"start", b"[1]", b"\xff\xfe", b"[" * 500_000, b"{}", b'{"verb": "explode"}', b'{"verb": "wake"}']
)
def test_an_invalid_request_is_a_usage_error(line: bytes) -> None:
    with pytest.raises(UsageError, match="invalid request: "):
        read_request(line)


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
