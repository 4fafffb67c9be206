"""What callers ask and how many there are does not end the daemon, and locks nobody out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from runplan.daemon.client import Client
from runplan.daemon.protocol import Answers, Submit
from runplan.errors import Unreachable
from tests.support.daemons import (
    answering,
    in_foreground,
    log_of,
    socket_of,
)

if TYPE_CHECKING:
    from tests.support.cli import Project


def test_an_unexpected_error_in_a_request_is_answered_logged_and_survived(project: Project) -> None:
    """No file name has 300 characters: the kernel refuses to look for one."""
    with in_foreground(project) as daemon:
        with Client(socket_of(project)) as client, pytest.raises(Unreachable, match="File name too long"):
            client.call(Submit(root="/", common="/" + 300 * "x"), Answers)
        (logged,) = log_of(project, "request-failed")
        assert "File name too long" in logged["error"]
        assert project.runplan("start", "X", "finish", "auto", "--wait").code == 0
        assert answering(project) == daemon.pid
