"""An agent is asked to end by the signal on which its kind ends cleanly, and killed after the grace."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.run.dispatch import Ending, Outcome
from tests.support.dispatching import Stage, gone, pid_in, shared_stage

#: Notes every signal it gets, and stays.
DEAF = """
import os, signal, time
def note(number, frame):
    with open("signals", "a") as file: file.write(signal.Signals(number).name + "\\n")
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, note)
"""
STAYS = "\nwhile True: time.sleep(0.01)"
FULL_CONTEXT = """print('runplan:tell {"context":130000,"window":200000}', flush=True)"""


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with shared_stage(tmp_path) as made:
        yield made


def signals(on: Stage) -> list[str]:
    return (on.path / "signals").read_text().split()


def test_an_agent_with_a_full_context_is_asked_to_end_and_then_killed(on: Stage) -> None:
    outcome = on.outcome(on.python(f"{DEAF}{FULL_CONTEXT}{STAYS}", reader="script", hand_over_at=60, grace_s=0.2))

    assert (outcome.ending, outcome.signal) == (Ending.CONTEXT, signal.SIGKILL)
    assert signals(on) == ["SIGTERM"]


def test_an_interrupt_reaches_the_agents_own_session_and_the_rest_is_ended_after_it(on: Stage) -> None:
    """A process that an agent starts in a session of its own is ended by the agent, as at a terminal."""
    child = "import os, time; os.setsid()\n" + DEAF + "open('ready', 'w')" + STAYS
    program = f"""
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", {child!r}])
while not os.path.exists("ready"): time.sleep(0.005)
try:
    print(child.pid, file=open("child", "w"))
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(7)
"""
    dispatch = on.python(program, reader="codex", grace_s=5.0)
    pid_in(on.path / "child")
    on.dispatches.end([dispatch], grace_s=10)
    outcome = on.dispatches.standing(dispatch)

    assert isinstance(outcome, Outcome)
    assert (outcome.ending, outcome.code, outcome.leftovers) == (Ending.ENDED, 7, 1)
    assert signals(on) == ["SIGTERM"]
    assert gone(pid_in(on.path / "child"))


# --- limits and requests --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "asked"),
    [("claude", "SIGINT"), ("codex", "SIGINT"), ("gemini", "SIGTERM")],
)
def test_a_stop_uses_the_signal_for_a_clean_end(on: Stage, reader: str, asked: str) -> None:
    dispatch = on.python(f"{DEAF}print(os.getpid(), file=open('agent', 'w')){STAYS}", reader=reader, grace_s=60)
    pid_in(on.path / "agent")
    on.dispatches.end([dispatch], grace_s=0.2)

    assert signals(on) == [asked]


def test_a_limit_asks_the_same_way(on: Stage) -> None:
    outcome = on.outcome(on.python(f"{DEAF}{STAYS}", reader="claude", wall_s=1.5))

    assert (outcome.ending, outcome.signal) == (Ending.TIMEOUT, signal.SIGKILL)
    assert signals(on) == ["SIGINT"]


def test_the_wait_at_the_time_of_the_request_decides_the_ending(on: Stage) -> None:
    """The provider is to blame for its silence; the end event that an interrupt brings says nothing of that."""
    text = f"""
import json, signal, sys, time
def line(**reported): print(json.dumps(reported), flush=True)
def last(*_):
    line(type='result', is_error=True, subtype='error_during_execution', total_cost_usd=0.5,
         modelUsage={{"m": {{"inputTokens": 100, "outputTokens": 1}}}})
    sys.exit(1)
signal.signal(signal.SIGINT, last)
line(type='system', subtype='api_retry', error_status=529, error='overloaded'){STAYS}
"""
    outcome = on.outcome(on.python(text, reader="claude", silence_s=1.0))

    assert (outcome.ending, outcome.code) == (Ending.SILENT, 1)
    assert outcome.tally.waiting == "error 529 overloaded"
    assert outcome.tally.usage.usd == 0.5, "what it cost is reported only there"
