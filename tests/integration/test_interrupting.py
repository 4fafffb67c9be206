"""Signals interrupt a run in the foreground."""

import signal
import subprocess
import sys

import pytest

from runplan.hosts.foreground import Interruption

WAITS = """
import select, signal, threading, time
from runplan.hosts.foreground import Interruption
over = threading.Event()
other = threading.Thread(target=over.wait)
other.start()

def interrupt():
    time.sleep(0.1)  # until the main thread waits
    signal.pthread_kill(other.ident, signal.SIGINT)

with Interruption(30.0) as interruption:
    threading.Thread(target=interrupt).start()
    ready, _, _ = select.select([interruption.wakeup], [], [], 20)
    print(bool(ready), interruption.asked)
    over.set()
"""


@pytest.mark.rest
def test_a_signal_that_another_thread_receives_ends_the_wait() -> None:
    ran = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True True\n"


def test_under_nohup_a_closed_terminal_does_not_interrupt() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interruption(30.0) as interruption:
            signal.raise_signal(signal.SIGHUP)
            assert not interruption.asked
    finally:
        signal.signal(signal.SIGHUP, before)
