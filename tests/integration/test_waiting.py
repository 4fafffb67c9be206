"""Whoever is spoken to gets all of it, however long it takes, and is not waited for longer than was said."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from runplan.adapters import waiting

if TYPE_CHECKING:
    from collections.abc import Iterator

MUCH = b"0123456789abcdef" * 40_000  #: ten times what a pipe holds


@contextmanager
def program(text: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", text], stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process


#: Reads a little, waits, and then reads on.
SLOW = """
import os, sys, time
first = os.read(0, 10)
time.sleep(0.2)
said = first + sys.stdin.buffer.read()
sys.stdout.buffer.write(said)
sys.stderr.buffer.write(said)
"""


def test_who_takes_long_to_read_still_gets_everything_and_the_end() -> None:
    with program(SLOW) as process:
        out, err = waiting.outputs(process, MUCH, 20)
    assert out == err == MUCH


def test_who_does_not_want_to_hear_it_all_has_still_spoken() -> None:
    with program("import os, sys; os.close(0); print('enough'); sys.exit(3)") as process:
        assert waiting.outputs(process, MUCH, 20) == (b"enough\n", b"")
        assert process.returncode == 3


@pytest.mark.parametrize("said", [b"", b"x", MUCH], ids=["nothing", "little", "much"])
def test_who_never_stops_talking_is_not_listened_to_for_ever(said: bytes) -> None:
    began = time.monotonic()
    with (
        program("import os\nwhile True: os.write(1, b'on and on' * 1000)") as process,
        pytest.raises(subprocess.TimeoutExpired),
    ):
        waiting.outputs(process, said, 0.3)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("said", [b"", MUCH], ids=["nothing", "much"])
def test_waiting_needs_no_processor(said: bytes) -> None:
    with program("import time; time.sleep(0.3)") as process:
        began = time.process_time()
        waiting.outputs(process, said, 20)
        assert time.process_time() - began < 0.1
