"""An agent with a full context is asked to wrap up if it takes messages, then asked to end, and killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from msgspec import to_builtins

from runplan.agents.context import WRAP_UP
from runplan.run.dispatch import Ending, Outcome, Running
from tests.support.dispatching import Stage, gone, pid_in, shared_stage, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: An agent that takes messages as claude does: lines of JSON, read until there are no more.
HEARS = """
import json, signal, sys, time
def line(**reported): print(json.dumps(reported), flush=True)
def heard(): return json.loads(sys.stdin.readline())["message"]["content"][0]["text"]
def fill(tokens, id="m"):
    usage = {"input_tokens": tokens, "output_tokens": 9}
    line(type="assistant", message={"id": id, "model": "m", "usage": usage, "content": []})
def result(words="Done.", **more):
    line(type="result", **{"subtype": "success", "is_error": False, "result": words, **more})
def left(): return sys.stdin.read()
prompt = heard()
"""
#: Notes every signal it gets, and stays.
DEAF = """
import os, signal, time
def note(number, frame):
    with open("signals", "a") as file: file.write(signal.Signals(number).name + "\\n")
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, note)
"""
STAYS = "\nwhile True: time.sleep(0.01)"

WATCHED = {"reader": "claude", "hand_over_at": 60, "window": 200_000}


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with shared_stage(tmp_path) as made:
        (tmp_path / "prompt.md").write_text("Do ä.", encoding="utf-8")
        yield made


def takes_messages(on: Stage, text: str, **changes: object) -> str:
    more = {**WATCHED, "takes_messages": True, "stdin": str(on.path / "prompt.md"), **changes}
    return on.python(HEARS + text, **more)


def signals(on: Stage) -> list[str]:
    return (on.path / "signals").read_text().split()


# --- who can hear ---------------------------------------------------------------------------------------


def test_an_agent_with_a_full_context_is_asked_to_wrap_up_and_ends(on: Stage) -> None:
    reported = "fill(130_000); word = heard(); open('word', 'w').write(word); result('Half of it.' + left())"
    outcome = on.outcome(takes_messages(on, reported))

    assert (outcome.ending, outcome.code, outcome.signal) == (Ending.CONTEXT, 0, None), outcome.error
    assert (on.path / "word").read_text() == WRAP_UP
    assert outcome.message == "Half of it.", "and heard nothing after that"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("result()", 0, id="well"),
        pytest.param("result('429', is_error=True, api_error_status=429)", 1, id="with an error"),
        pytest.param("result(subtype='error_max_turns')", 1, id="at its own limit"),
    ],
)
def test_a_finished_agent_gets_end_of_input_and_ends(on: Stage, end: str, code: int) -> None:
    """A program that is spoken to waits for more when its turn is over: its standard input has to be closed."""
    outcome = on.outcome(takes_messages(on, f"fill(1_000); {end}; assert left() == ''; sys.exit({code})"))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, code), outcome.error


def test_its_prompt_is_the_first_message(on: Stage) -> None:
    assert on.outcome(takes_messages(on, "result(prompt)")).message == "Do ä."


def test_a_prompt_larger_than_a_pipe_reaches_an_agent_that_prints_first(on: Stage) -> None:
    (on.path / "prompt.md").write_text("x" * 3_000_000, encoding="utf-8")
    late = HEARS.replace("prompt = heard()", "print('x' * 3_000_000, flush=True); prompt = heard()")
    dispatch = on.python(
        f"{late}\nresult(str(len(prompt)))", **WATCHED, takes_messages=True, stdin=str(on.path / "prompt.md"), wall_s=20
    )

    assert on.outcome(dispatch).message == "3000000"


@pytest.mark.parametrize("then", ["result()", "sys.stdin.close(); fill(130_000); time.sleep(0.05); result()", "pass"])
def test_an_agent_that_reads_no_input_blocks_nothing(on: Stage, then: str) -> None:
    (on.path / "prompt.md").write_text("x" * 3_000_000, encoding="utf-8")
    deaf = HEARS.replace("prompt = heard()", then)
    outcome = on.outcome(on.python(deaf, **WATCHED, takes_messages=True, stdin=str(on.path / "prompt.md"), wall_s=20))

    assert outcome.ending is not Ending.TIMEOUT
    assert outcome.code == 0, outcome.error


def test_an_agent_is_asked_to_wrap_up_once(on: Stage) -> None:
    more = "fill(130_000); heard(); fill(140_000, 'n'); fill(150_000, 'o'); result('More: ' + left())"

    assert on.outcome(takes_messages(on, more)).message == "More: "


def test_an_agent_that_does_not_wrap_up_is_interrupted_and_killed(on: Stage) -> None:
    dispatch = takes_messages(on, f"{DEAF}fill(130_000); heard(){STAYS}", wrap_up_s=0.1, grace_s=0.2)
    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.signal) == (Ending.CONTEXT, signal.SIGKILL)
    assert signals(on) == ["SIGINT"]


def test_an_agent_that_wraps_up_may_be_silent_also_after_a_compaction(on: Stage) -> None:
    """A model may think for longer than the silence that is allowed; what it is given to wrap up is the limit."""
    orphans = "import os; os.system('(sleep 0.8 &) ; (sleep 1.6 &)')"  # whose ends wake the shim
    thinks = f"fill(130_000); heard(); fill(1_000, 'n'); {orphans}; time.sleep(2.2); result('Noted.')"
    outcome = on.outcome(takes_messages(on, thinks, silence_s=1.0))

    assert (outcome.ending, outcome.code, outcome.message) == (Ending.CONTEXT, 0, "Noted.")


def test_a_budget_bites_also_while_it_wraps_up(on: Stage) -> None:
    dispatch = takes_messages(on, f"fill(130_000); heard(); fill(130_000, 'n'){STAYS}", tokens=200_000)

    assert on.outcome(dispatch).ending is Ending.BUDGET


def test_the_time_to_wrap_up_ends_with_its_wall_limit_and_it_is_handed_over(on: Stage) -> None:
    outcome = on.outcome(takes_messages(on, f"fill(130_000); heard(){STAYS}", wall_s=1.5))

    assert (outcome.ending, outcome.signal) == (Ending.CONTEXT, signal.SIGINT)


def test_a_stop_does_not_wait_until_it_has_wrapped_up(on: Stage) -> None:
    dispatch = takes_messages(on, f"fill(130_000); heard(); open('reported', 'w'){STAYS}", grace_s=5.0)
    until((on.path / "reported").exists)
    began = time.monotonic()
    on.dispatches.end([dispatch], grace_s=10)
    outcome = on.dispatches.standing(dispatch)

    assert isinstance(outcome, Outcome)
    assert outcome.ending is Ending.ENDED
    assert time.monotonic() - began < 5


RUNNER = """
import json, sys, time
from pathlib import Path
from runplan.supervise.dispatches import Dispatches
from runplan.run.dispatch import Launch
reported = json.loads(sys.argv[2])
dispatches = Dispatches(Path(sys.argv[1]))
dispatches.start(Launch(**{**reported, "argv": tuple(reported["argv"]), "files": ()}))
print("started", flush=True)
time.sleep(30)
"""


def test_the_shim_asks_its_agent_to_wrap_up_without_a_runner(on: Stage) -> None:
    waits = "import os\nwhile not os.path.exists('go'): time.sleep(0.005)\n"
    text = f"{HEARS}{waits}fill(130_000); result(heard())"
    launch = on.launch(
        sys.executable, "-I", "-S", "-c", text, **WATCHED, takes_messages=True, stdin=str(on.path / "prompt.md")
    )
    asked = to_builtins(launch)
    root = str(on.dispatches.directory(launch.id).parent)
    with subprocess.Popen([sys.executable, "-c", RUNNER, root, json.dumps(asked)], stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"started\n"
        runner.kill()
    assert on.dispatches.standing(launch.id) == Running()
    (on.path / "go").touch()
    outcome = on.outcome(launch.id)

    assert (outcome.ending, outcome.message) == (Ending.CONTEXT, WRAP_UP)


# --- who cannot -----------------------------------------------------------------------------------------

FULL_CONTEXT = """print('runplan:tell {"context":130000,"window":200000}', flush=True)"""


def test_an_agent_that_takes_no_messages_is_asked_to_end_and_then_killed(on: Stage) -> None:
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
    dispatch = on.python(program, reader="codex")
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
    [("claude", "SIGINT"), ("codex", "SIGINT"), ("gemini", "SIGTERM"), ("opencode", "SIGTERM"), ("", "SIGTERM")],
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
    retry = "line(type='system', subtype='api_retry', error_status=529, error='overloaded')"
    text = f"""
def last(*_):
    result('', is_error=True, subtype='error_during_execution', total_cost_usd=0.5,
           modelUsage={{"m": {{"inputTokens": 100, "outputTokens": 1}}}})
    sys.exit(1)
signal.signal(signal.SIGINT, last)
{retry}{STAYS}
"""
    outcome = on.outcome(takes_messages(on, text, silence_s=1.0))

    assert (outcome.ending, outcome.code) == (Ending.SILENT, 1)
    assert outcome.tally.waiting == "error 529 overloaded"
    assert outcome.tally.usage.usd == 0.5, "what it cost is reported only there"
