"""How dispatches are brought to an end: limits, requests, signals, and what an agent leaves behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from runplan.domain.run.dispatch import Ending, Outcome, Running
from tests.support.dispatching import PATIENCE_S, Stage, gone, pid_in, until

# --- limits -----------------------------------------------------------------------------------------------


def test_the_silence_limit_ends_a_process_that_gives_no_sign_of_life(on: Stage) -> None:
    """Polling is none."""
    polls = "while test ! -e never; do read -r word </etc/hostname; sleep 0.1; done"
    outcome = on.outcome(on.sh(f"echo once; {polls}", silence_s=0.5))

    assert outcome.ending is Ending.SILENT
    assert outcome.message == "once\n"


def test_output_on_standard_error_is_a_sign_of_life(on: Stage) -> None:
    outcome = on.outcome(on.sh("for i in 1 2 3 4 5 6 7 8; do sleep 0.1; echo $i >&2; done", silence_s=0.6))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)


@pytest.mark.rest
def test_silent_work_is_a_sign_of_life_also_in_a_child(on: Stage) -> None:
    busy = "import time\nend = time.monotonic() + 2.0\nwhile time.monotonic() < end: pass"
    dispatch = on.python(
        f"import os, sys; os.waitpid(os.posix_spawn(sys.executable, ['p', '-c', {busy!r}], os.environ), 0)",
        silence_s=1.5,
    )

    assert on.outcome(dispatch).ending is Ending.EXITED


def test_an_agent_whose_processes_take_too_much_memory_is_ended(on: Stage) -> None:
    eat = f"{sys.executable} -I -S -c 'import time; eaten = bytearray(90_000_000); time.sleep(30)'"

    outcome = on.outcome(on.sh(f"{eat} & {eat} & wait", memory=150_000_000))

    assert outcome.ending is Ending.BUDGET
    assert 150_000_000 < outcome.memory < 300_000_000


@pytest.mark.rest
def test_memory_that_processes_share_counts_once(on: Stage) -> None:
    share = "import os, time; eaten = bytearray(90_000_000); os.fork(); os.fork(); time.sleep(2.5)"

    assert on.outcome(on.python(share, memory=200_000_000)).ending is Ending.EXITED


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such score")
def test_a_kernel_without_memory_ends_an_agent_first(on: Stage) -> None:
    own = int(Path("/proc/self/oom_score_adj").read_text())
    shim_is_spared = f"while ! grep -qx -- {own} /proc/$PPID/oom_score_adj; do sleep 0.01; done"

    outcome = on.outcome(on.sh(f"cat /proc/self/oom_score_adj; {shim_is_spared}"))

    assert (outcome.ending, int(outcome.message)) == (Ending.EXITED, max(own, 500))


# --- requests ---------------------------------------------------------------------------------------------


def test_a_dispatch_is_ended_on_request_and_a_second_request_changes_nothing(on: Stage) -> None:
    dispatch = on.sh("sleep 30 & echo $! >child; sleep 30")
    child = pid_in(on.path / "child")

    on.dispatches.end([dispatch], grace_s=10)
    first = on.dispatches.standing(dispatch)
    on.dispatches.end([dispatch], grace_s=10)

    assert isinstance(first, Outcome)
    assert first.ending is Ending.ENDED
    assert on.dispatches.standing(dispatch) == first
    assert gone(child)


def test_a_shutdown_that_ends_agent_and_shim_at_once_is_a_request(on: Stage) -> None:
    dispatch = on.sh("kill -STOP $PPID; kill -TERM $PPID; (sleep 0.2; kill -CONT $PPID) & kill -TERM $$")
    assert on.outcome(dispatch).ending is Ending.ENDED


def test_all_are_asked_to_end_before_one_is_forced(on: Stage) -> None:
    """Each ends by itself only when all were asked."""
    all_asked = "[ -e 1.asked ] && [ -e 2.asked ] && [ -e 3.asked ]"
    deaf = f"until {all_asked}; do sleep 0.01; done; exit 7"
    ids = [on.sh(f"trap 'touch {n}.asked' TERM; echo $$ >{n}; {deaf}", grace_s=60.0) for n in (1, 2, 3)]
    agents = [pid_in(on.path / str(n)) for n in (1, 2, 3)]

    on.dispatches.end(ids, grace_s=PATIENCE_S)

    outcomes = [on.outcome(dispatch) for dispatch in ids]
    assert [(outcome.ending, outcome.code) for outcome in outcomes] == [(Ending.ENDED, 7)] * 3
    assert all(map(gone, agents))


@pytest.mark.rest
def test_dispatches_that_ignore_the_request_are_forced_together(on: Stage) -> None:
    deaf = [on.sh(f"trap '' TERM; echo $$ >{n}; while :; do sleep 0.01; done", grace_s=60.0) for n in (1, 2)]
    other = on.sh("echo $$ >other; sleep 30")
    agents = [pid_in(on.path / str(n)) for n in (1, 2)]

    on.dispatches.end(deaf, grace_s=0.1)

    assert [on.outcome(dispatch).signal for dispatch in deaf] == [signal.SIGKILL] * 2
    assert all(map(gone, agents))
    assert not gone(pid_in(on.path / "other"))
    assert on.dispatches.standing(other) == Running()


def test_a_shim_that_was_stopped_knows_that_its_agent_ran_for_too_long_meanwhile(on: Stage) -> None:
    dispatch = on.sh("echo $$ >agent; sleep 30", wall_s=0.2)
    agent = pid_in(on.path / "agent")
    os.kill(on.shim(dispatch), signal.SIGSTOP)
    time.sleep(0.25)

    on.dispatches.end([dispatch], grace_s=10)

    assert on.outcome(dispatch).ending is Ending.TIMEOUT
    assert gone(agent)


@pytest.mark.rest
def test_a_shim_stopped_repeatedly_is_killed_with_all_it_watched(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runplan.adapters.supervise.dispatches.FORCED_S", 0.1)
    dispatch = on.sh("trap '' TERM; echo $$ >agent; while :; do kill -STOP $PPID; done")
    agent = pid_in(on.path / "agent")

    on.dispatches.end([dispatch], grace_s=0.05)

    assert on.outcome(dispatch).ending in (Ending.LOST, Ending.ENDED)  # it may have had its moment in between
    assert gone(agent)


@pytest.mark.rest
def test_a_dispatch_is_ended_in_the_very_moment_of_its_start(on: Stage) -> None:
    for _ in range(3):
        dispatch = on.sh("sleep 30")
        on.dispatches.end([dispatch], grace_s=PATIENCE_S)
        assert on.outcome(dispatch).ending is Ending.ENDED


# --- leftovers --------------------------------------------------------------------------------------------

LEAVE_BEHIND = {
    "child": "sleep 30 & echo $! >child",
    "child that holds the pipes": "(exec sleep 30) & echo $! >child; echo said",
    "child in another session": "setsid sh -c 'echo $$ >child; exec sleep 30' &",
    "daemon": "(setsid sh -c 'echo $$ >child; exec sleep 30' </dev/null >/dev/null 2>&1 &)",
    "daemon without the mark": "(env -i setsid sh -c 'echo $$ >child; exec sleep 30' </dev/null >/dev/null 2>&1 &)",
    "child that ignores the request": "sh -c 'trap \"\" TERM; echo $$ >child; while :; do sleep 0.01; done' &",
}


@pytest.mark.parametrize("leave", LEAVE_BEHIND.values(), ids=LEAVE_BEHIND.keys())
def test_processes_left_by_an_agent_are_ended_and_counted(on: Stage, leave: str) -> None:
    wait = "while test ! -s child; do sleep 0.005; done; echo end"
    dispatch = on.sh(f"{leave}\n{wait}")

    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)
    assert outcome.message.endswith("end\n")
    assert outcome.leftovers >= 1
    assert gone(pid_in(on.path / "child"))


#: Each process hides, ignores the request, forks once and ends; the last one gives up after a while.
HOPPING = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 20
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
    with open("last", "w") as file:
        file.write(f"{os.getpid()}\\n")
"""


@pytest.mark.rest
def test_processes_that_fork_and_end_faster_than_they_are_found_are_ended(on: Stage) -> None:
    hop = f"env -i {sys.executable} -I -S -c '{HOPPING}' </dev/null >/dev/null 2>&1 &"

    outcome = on.outcome(on.sh(f"{hop}\nwhile test ! -s last; do sleep 0.005; done"))

    assert (outcome.ending, outcome.survivors) == (Ending.EXITED, ())
    assert [one.pid for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == str(on.path)] == []


def test_a_process_whose_first_thread_has_ended_is_ended(on: Stage) -> None:
    threads = "import ctypes, os, threading, time; threading.Thread(target=time.sleep, args=(30,)).start()"
    leave = f"{threads}; print(os.getpid(), file=open('child', 'w')); ctypes.CDLL(None).pthread_exit(None)"
    dispatch = on.sh(f'{sys.executable} -I -S -c "{leave}" &\nwhile ! grep -q Z /proc/$!/stat; do sleep 0.01; done')

    assert on.outcome(dispatch).ending is Ending.EXITED
    assert not Path(f"/proc/{pid_in(on.path / 'child')}").exists()


def test_a_leftover_that_chatters_without_end_cannot_hold_the_dispatch(on: Stage) -> None:
    dispatch = on.sh("trap '' TERM; yes $(printf %01000d 0) & echo $! >child; sleep 0.05")

    assert on.outcome(dispatch).ending is Ending.EXITED
    assert gone(pid_in(on.path / "child"))


def test_processes_of_strangers_are_not_touched(on: Stage) -> None:
    strangers = [
        subprocess.Popen(["sleep", "30"], env={"PATH": os.environ["PATH"], "RUNPLAN_DISPATCH": mark})
        for mark in ("r0.1.1.implement.1", "")
    ]
    dispatch = on.sh("sleep 30 & exit 0", id="r0.1.1.implement.11-not-a-prefix-match")
    try:
        assert on.outcome(dispatch).leftovers == 1
        on.dispatches.end([dispatch], grace_s=0)
        assert [stranger.poll() for stranger in strangers] == [None, None]
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def test_orphans_of_a_long_run_do_not_pile_up_as_zombies(on: Stage) -> None:
    dispatch = on.sh("for i in 1 2 3 4 5; do (true &); done; touch ready; while test ! -e go; do sleep 0.01; done")
    shim = on.shim(dispatch)

    def children() -> list[str]:
        with open(f"/proc/{shim}/task/{shim}/children") as file:
            return file.read().split()

    until((on.path / "ready").exists)
    until(lambda: len(children()) == 1)
    (on.path / "go").touch()
    assert on.outcome(dispatch).leftovers == 0


# --- limits after a good end ------------------------------------------------------------------------------


def result(**more: object) -> str:
    reported = {"type": "result", "subtype": "success", "is_error": False, "result": "All done.", **more}
    return f"echo '{json.dumps(reported)}'\n"


def said(number: int, **more: object) -> str:
    usage = {"input_tokens": 600, "output_tokens": 5}
    content = [{"type": "text", "text": "More."}]
    message = {"id": f"m{number}", "usage": usage, "content": content, **more}
    return f"echo '{json.dumps({'type': 'assistant', 'message': message})}'\n"


def test_an_aider_with_a_full_context_applies_its_answer(on: Stage) -> None:
    """It says after each answer that it is whole, and never that it was the last."""
    says = "echo 'Answer.'\necho\necho 'Tokens: 130k sent, 1k received. Cost: $1.00 message, $1.00 session.'\n"
    outcome = on.outcome(on.sh(f"{says}sleep 0.05; echo x >made.txt", reader="aider", hand_over_at=60))
    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)
    assert (on.path / "made.txt").exists()


@pytest.mark.parametrize("limit", [{"tokens": 1_000}, {"usd": 1.0, "usd_in": 1_000.0}], ids=["tokens", "usd"])
def test_what_its_sub_agents_use_after_a_good_end_counts(on: Stage, limit: dict[str, Any]) -> None:
    """Sub-agents may run on for a moment; a tool event does not name its agent."""
    tool = said(2, content=[{"type": "tool_use", "name": "Bash", "input": {}}]).replace(
        '"type": "assistant"', '"type": "assistant", "parent_tool_use_id": "t1"'
    )
    script = f"{said(1)}{result()}{tool}sleep 30"
    assert on.outcome(on.sh(script, reader="claude", grace_s=0.05, **limit)).ending is Ending.BUDGET


DONE = {
    "codex": ['{"type":"turn.completed","usage":{"input_tokens":5000,"output_tokens":5}}'],
    "claude": [
        '{"type":"assistant","message":{"id":"m1","usage":{"input_tokens":100000,"output_tokens":5},"content":[]}}',
        '{"type":"result","subtype":"success","is_error":false,"result":"All done.","total_cost_usd":0.5,'
        '"modelUsage":{"m":{"inputTokens":100000,"outputTokens":5,"contextWindow":150000}}}',
    ],
}


@pytest.mark.parametrize(
    ("reader", "limit"),
    [("codex", {"tokens": 1000}), ("claude", {"usd": 0.1}), ("claude", {})],
    ids=["tokens reported at the end", "usd", "context"],
)
def test_finished_work_is_not_cut_off_for_what_it_cost(on: Stage, reader: str, limit: dict[str, object]) -> None:
    """An agent reports its usage at its end and exits later."""
    lines = "\n".join(DONE[reader])

    outcome = on.outcome(on.sh(f"echo '{lines}'; sleep 0.1; echo; sleep 0.1; exit 0", reader=reader, **limit))

    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)


def test_wall_time_is_kept_after_a_good_end_and_by_a_process_that_prints_for_ever(on: Stage) -> None:
    outcome = on.outcome(on.sh(f"echo '{DONE['codex'][0]}'; exec yes $(printf %01000d 0)", reader="codex", wall_s=0.3))

    assert outcome.ending is Ending.TIMEOUT


# --- signals ----------------------------------------------------------------------------------------------


#: Notes every signal it gets, and stays.
DEAF = """
import os, signal, time
def note(number, frame):
    with open("signals", "a") as file: file.write(signal.Signals(number).name + "\\n")
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, note)
"""
STAYS = "\nwhile True: time.sleep(0.01)"
FULL_CONTEXT = """print('runplan:tell {"context":130000,"window":200000}', flush=True)"""


def signals(on: Stage) -> list[str]:
    return (on.path / "signals").read_text().split()


HALF = """print('runplan:tell {"context":104000,"window":200000}', flush=True)\n"""
LISTENS = "import json, sys, time\nprompt = json.loads(sys.stdin.readline())\n"


def test_an_agent_that_talks_is_warned_once_and_then_hears_what_it_is_told(on: Stage) -> None:
    """S8: at 52 per cent it writes its notes and goes on."""
    (on.path / "prompt").write_text("Do it.")
    hears = "print(json.loads(sys.stdin.readline()), flush=True)\n"
    talks: dict[str, Any] = {"talks": True, "stdin": str(on.path / "prompt"), "reader": "script"}
    program = f"{LISTENS}print(prompt)\n{HALF}{HALF}{hears}open('warned', 'w')\n{hears}"
    dispatch = on.python(program, **talks, warn_at=50, warning="Write your notes.", hand_over_at=60)
    until((on.path / "warned").exists)
    assert on.dispatches.tell(dispatch, "Use tabs.")
    outcome = on.outcome(dispatch)
    assert (outcome.ending, outcome.code) == (Ending.EXITED, 0)
    assert outcome.message == "Do it.\nWrite your notes.\nUse tabs.\n"
    assert (on.dispatches.directory(dispatch) / "progress.log").read_text() == "52 0\n"
    assert not on.dispatches.tell(dispatch, "Too late.")


@pytest.mark.parametrize(("warn_at", "signal_"), [(0, None), (50, signal.SIGKILL)], ids=["not warned", "warned"])
def test_a_full_context_leaves_time_to_save_unless_it_was_warned(on: Stage, warn_at: int, signal_: int | None) -> None:
    saves = "import signal, sys, time\ndef save(*_):\n    time.sleep(0.5)\n    sys.exit(3)\nsignal.signal(15, save)\n"
    (on.path / "prompt").write_text("")
    limits: dict[str, Any] = {"hand_over_at": 60, "warn_at": warn_at, "save_s": PATIENCE_S, "grace_s": 0.1}
    program = f"{saves}{FULL_CONTEXT}{STAYS}"
    outcome = on.outcome(on.python(program, reader="script", talks=True, stdin=str(on.path / "prompt"), **limits))
    assert (outcome.ending, outcome.signal) == (Ending.CONTEXT, signal_)


@pytest.mark.rest
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


@pytest.mark.parametrize(("reader", "asked"), [("claude", "SIGINT"), ("gemini", "SIGTERM")])
def test_a_stop_uses_the_signal_for_a_clean_end(on: Stage, reader: str, asked: str) -> None:
    # It ends only after it has noted a signal: a fixed grace would be too short on a busy machine.
    ends = "\nwhile not os.path.exists('signals'): time.sleep(0.01)\ntime.sleep(0.1)"
    dispatch = on.python(f"{DEAF}print(os.getpid(), file=open('agent', 'w')){ends}", reader=reader, grace_s=60)
    pid_in(on.path / "agent")
    on.dispatches.end([dispatch], grace_s=PATIENCE_S)

    assert signals(on) == [asked]


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
