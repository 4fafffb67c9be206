"""The outcome of a dispatch: ending, message, logs; also when its runner died."""

import fcntl
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from runplan.adapters import processes
from runplan.adapters.supervise.dispatches import PORTS, Dispatches, claim_ports
from runplan.adapters.supervise.output import LOG_TAIL
from runplan.domain.checks.secrets import LONGEST
from runplan.domain.errors import Unreachable
from runplan.domain.run.dispatch import MESSAGE_TAIL, Ending, NeverStarted, Outcome, Running, Usage
from runplan.engine.steps.gates import own_logs, side_by_side
from tests.support.dispatching import PATIENCE_S, Stage, gone, pid_in, stage, until, with_killed_runner


def test_exit_code_and_message_come_back_and_stderr_is_kept_apart(on: Stage) -> None:
    """Without a prompt standard input is empty."""
    dispatch = on.sh("cat; echo one; echo two >&2; echo three; exit 7")

    outcome = on.outcome(dispatch)

    assert (outcome.ending, outcome.code, outcome.signal) == (Ending.EXITED, 7, None)
    assert outcome.message == "one\nthree\n"
    assert (on.out(dispatch), on.err(dispatch)) == (b"one\nthree\n", b"two\n")
    assert outcome.leftovers == 0


def test_a_process_gets_its_prompt_directory_and_environment(on: Stage) -> None:
    prompt = on.path / "prompt.md"
    prompt.write_text("Do it.\n")
    (on.path / "worktree").mkdir()
    dispatch = on.sh(
        'cat; pwd; echo "$WORD"; echo "$RUNPLAN_DISPATCH"; test -z "$HOME"',
        stdin=str(prompt),
        cwd=str(on.path / "worktree"),
        env={"WORD": "allowed", "PATH": "/usr/bin:/bin"},
    )

    outcome = on.outcome(dispatch)

    assert outcome.message.splitlines() == ["Do it.", str(on.path / "worktree"), "allowed", dispatch]
    assert outcome.code == 0


def test_the_signal_that_ended_a_process_is_named(on: Stage) -> None:
    outcome = on.outcome(on.sh("kill -KILL $$"))

    assert (outcome.ending, outcome.code, outcome.signal) == (Ending.SIGNALLED, None, signal.SIGKILL)


@pytest.mark.parametrize(
    ("argv", "cwd", "named"),
    [
        pytest.param(("no-such-agent", "-p"), "", "no-such-agent", id="no such program"),
        pytest.param((".",), "", "Permission denied", id="not a program"),
        pytest.param(("true",), "nowhere", "nowhere", id="no such directory"),
        pytest.param(("true", "\0"), "", "null byte", id="an argument that cannot be passed"),
    ],
)
def test_a_program_that_does_not_start_is_named(on: Stage, argv: tuple[str, ...], cwd: str, named: str) -> None:
    outcome = on.outcome(on.start(*argv, cwd=str(on.path / cwd)))

    assert outcome.ending is Ending.MISSING
    assert named in outcome.message


@pytest.mark.rest
def test_a_long_log_keeps_its_head_and_its_tail_and_says_what_was_left_out(on: Stage) -> None:
    cap = 1024 * 1024
    dispatch = on.python(
        "import sys\nprint('first')\nfor _ in range(64 * 1024): sys.stdout.write('x' * 1023 + '\\n')\nprint('last')",
        log_cap=cap,
    )

    outcome = on.outcome(dispatch)

    log = on.out(dispatch)
    total = 64 * 1024 * 1024 + len("first\nlast\n")
    assert log.startswith(b"first\n")
    assert log.endswith(b"x\nlast\n")
    assert f"\n[runplan: {total - cap} bytes left out]\n".encode() in log
    assert cap <= len(log) < cap + 100
    assert outcome.message.endswith("x\nlast\n")
    assert len(outcome.message) == MESSAGE_TAIL - LONGEST


def test_commands_that_run_side_by_side_have_capped_logs_without_secrets(on: Stage) -> None:
    lines = {"lint": "echo first; yes | head -c 5000000; echo last >&2; exit 3", "types": 'echo "it is $MY_TOKEN"'}
    env = {"PATH": os.environ["PATH"], "MY_TOKEN": "hunter2-hunter2-0123456789"}
    dispatch = on.sh(side_by_side(lines), reader="", env=env, logs=tuple(own_logs(tuple(lines)).values()), log_cap=1000)

    assert on.outcome(dispatch).code == 1

    folder = on.dispatches.directory(dispatch)
    lint, types = ((folder / name).read_bytes() for name in own_logs(tuple(lines)).values())
    assert on.out(dispatch) == b"lint 3\ntypes 0\n"
    assert lint.startswith(b"first\ny\n")
    assert lint.endswith(b"y\nlast\n")
    assert len(lint) < 1100
    assert types == b"it is [redacted]\n"


@pytest.mark.rest
def test_64_megabytes_of_output_take_the_shim_less_than_60_megabytes_of_memory(on: Stage) -> None:
    dispatch = on.python(
        "import os, sys, time\n"
        "for _ in range(64): sys.stdout.write(('x' * 1023 + '\\n') * 1024)\n"
        "sys.stdout.write('y' * 10_000_000); sys.stdout.flush()\n"
        "open('written', 'w').close()\n"
        "while not os.path.exists('go'): time.sleep(0.005)"
    )
    until((on.path / "written").exists)

    status = Path(f"/proc/{on.shim(dispatch)}/status").read_text()
    (on.path / "go").touch()

    peak_kb = int(status.partition("VmHWM:")[2].split()[0])
    assert peak_kb < 60 * 1024
    assert on.outcome(dispatch).code == 0


def test_a_log_under_its_cap_is_whole_also_when_it_reaches_into_the_tail(on: Stage) -> None:
    size = 3 * LOG_TAIL - 10
    dispatch = on.python(f"print('x' * {size - 1})", log_cap=3 * LOG_TAIL)

    on.outcome(dispatch)

    assert on.out(dispatch) == b"x" * (size - 1) + b"\n"


def test_bytes_that_are_no_text_come_through(on: Stage) -> None:
    dispatch = on.python("import os; os.write(1, bytes(range(256)) + b'\\n'); os.write(2, b'\\xff\\x00')")

    outcome = on.outcome(dispatch)

    assert on.out(dispatch) == bytes(range(256)) + b"\n"
    assert on.err(dispatch) == b"\xff\x00"
    assert "�" in outcome.message


def test_an_id_is_started_once(on: Stage) -> None:
    running = on.launch("sh", "-c", "while test ! -e go; do sleep 0.01; done")
    on.dispatches.start(running)

    with pytest.raises(Unreachable, match="already been started"):
        on.dispatches.start(running)
    assert on.dispatches.standing(running.id) == Running()

    (on.path / "go").touch()
    assert on.outcome(running.id).code == 0
    with pytest.raises(Unreachable, match="already been started"):
        on.dispatches.start(running)


def test_a_dispatch_never_started_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with stage(tmp_path) as on:
        assert on.dispatches.standing("r0.1.1.implement.1") == NeverStarted()
        on.dispatches.wait(["r0.1.1.implement.1"], timeout_s=None)
        on.dispatches.end(["r0.1.1.implement.1"], grace_s=1)
    assert not (tmp_path / "dispatch" / "r0.1.1.implement.1").exists()


def test_modules_of_the_repository_do_not_hide_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('taken')")
    monkeypatch.chdir(tmp_path)
    with stage(tmp_path) as on:
        assert on.outcome(on.start(sys.executable, "-I", "-S", "-c", "print(1)")).message == "1\n"


def test_the_values_of_secret_variables_are_in_nothing_that_is_written(on: Stage) -> None:
    secret = "hunter2-hunter2"
    dispatch = on.sh(
        'printf "it is hunter2"; sleep 0.02; echo "-hunter2, so"; echo "$API_KEY" >&2; echo "$PLAIN"; exit 3',
        env={"PATH": os.environ["PATH"], "API_KEY": secret, "PLAIN": "plain-words"},
    )

    outcome = on.outcome(dispatch)

    assert outcome.message == "it is [redacted], so\nplain-words\n"
    assert outcome.error == "[redacted]\n"
    directory = on.dispatches.directory(dispatch)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {path.name for path in files if secret.encode() in path.read_bytes()} == set()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of a process")
def test_an_agent_finds_no_secret_in_its_shim_and_spawner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shim and its spawner are of its own user, so it can read what they were started with."""
    for name in ("GH_TOKEN", "LC_GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "GIT_ASKPASS"):
        monkeypatch.setenv(name, "given-to-the-runner")
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    looks = "for who in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do tr '\\0' '\\n' </proc/$who/environ; done"
    with stage(tmp_path) as on:
        seen = on.outcome(on.sh(looks)).message
    assert seen.count("LC_CTYPE=C.UTF-8") == 2
    assert "given-to-the-runner" not in seen


def test_an_ancestor_shows_what_an_agents_process_hides(on: Stage) -> None:
    ask = "import os; from runplan.adapters.processes import agent_above; print(agent_above(os.getpid()) or 'nobody')"
    hidden = f"env -i setsid {sys.executable} -c '{ask}' >said </dev/null 2>&1 &"

    outcome = on.outcome(on.sh(f"({hidden})\nwhile test ! -s said; do sleep 0.01; done; cat said"))

    assert outcome.message.endswith("carries RUNPLAN_AGENT\n")


# --- worktrees side by side ---------------------------------------------------------------------------------


def test_a_worktree_keeps_its_ports_and_no_other_has_them_while_it_is_there(tmp_path: Path) -> None:
    places = [tmp_path / str(number) for number in range(len(PORTS))]
    for place in places:
        place.mkdir()

    ports = [claim_ports(tmp_path / "state", place) for place in places]
    assert sorted(ports) == list(PORTS)
    assert claim_ports(tmp_path / "state", places[7]) == ports[7]

    places[7].rmdir()
    (tmp_path / "next").mkdir()
    assert claim_ports(tmp_path / "state", tmp_path / "next") == ports[7]


# --- the exit record ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", ['{"ending": "exit', '{"ending": "exited"}'], ids=["half", "incomplete"])
def test_without_a_whole_exit_record_the_shim_is_lost(on: Stage, record: str) -> None:
    dispatch = on.sh("echo $$ >agent; sleep 30")
    pid_in(on.path / "agent")
    (on.dispatches.directory(dispatch) / "exit.json").write_text(record)

    os.kill(on.shim(dispatch), signal.SIGKILL)

    assert on.outcome(dispatch).ending is Ending.LOST
    seen = Dispatches(on.dispatches.directory(dispatch).parent).standing(dispatch)  # by another runner
    assert isinstance(seen, Outcome)
    assert seen.ending is Ending.LOST


def test_the_usage_of_a_lost_agent_is_read_from_its_log(on: Stage) -> None:
    reported = json.dumps({"type": "turn.completed", "usage": {"input_tokens": 5000, "output_tokens": 7}})
    dispatch = on.sh(f"echo '{reported}'; sleep 30", reader="codex")
    log = on.dispatches.directory(dispatch) / "out.log"
    until(lambda: log.exists() and b"turn.completed" in log.read_bytes())

    os.kill(on.shim(dispatch), signal.SIGKILL)

    outcome = on.outcome(dispatch)
    assert outcome.ending is Ending.LOST
    assert outcome.tally.usage == Usage(input_tokens=5000, output_tokens=7)
    assert (outcome.tally.finished, outcome.message) == (None, "")


# --- a runner that died -----------------------------------------------------------------------------------


WAITS = "echo $$ >agent; echo before; while test ! -e go; do sleep 0.005; done; echo after; exit 7"


def test_the_agent_of_a_killed_runner_finishes_and_is_adopted(on: Stage) -> None:
    dispatch = with_killed_runner(on, WAITS)
    pid_in(on.path / "agent")
    assert on.dispatches.standing(dispatch) == Running()

    (on.path / "go").touch()

    outcome = on.outcome(dispatch)
    assert (outcome.ending, outcome.code, outcome.message) == (Ending.EXITED, 7, "before\nafter\n")


def test_the_agent_of_a_killed_runner_can_be_ended_by_the_next(on: Stage) -> None:
    dispatch = with_killed_runner(on, WAITS)
    agent = pid_in(on.path / "agent")

    on.dispatches.end([dispatch], grace_s=5)

    assert on.outcome(dispatch).ending is Ending.ENDED
    assert gone(agent)


def test_the_agent_does_not_inherit_the_lock(on: Stage) -> None:
    dispatch = on.sh("ls -l /proc/self/fd; ls -l /proc/$$/fd")

    assert "/lock" not in on.outcome(dispatch).message


def test_a_killed_shim_loses_its_dispatch_whose_end_ends_the_agent(on: Stage) -> None:
    dispatch = on.sh(WAITS)
    agent = pid_in(on.path / "agent")

    os.kill(on.shim(dispatch), signal.SIGKILL)

    assert on.outcome(dispatch) == Outcome(ending=Ending.LOST, code=None, signal=None, message="")
    assert not gone(agent)
    on.dispatches.end([dispatch], grace_s=0)
    assert gone(agent)


def test_a_dead_spawner_is_replaced_at_the_next_start(on: Stage) -> None:
    first = on.sh(WAITS)
    spawner = on.dispatches._spawner
    assert spawner
    spawner.process.kill()
    spawner.process.wait()

    second = on.sh("exit 3")

    assert on.outcome(second).code == 3
    assert on.dispatches.standing(first) == Running()
    (on.path / "go").touch()
    assert on.outcome(first).code == 7


def test_a_lock_without_a_shim_is_running_until_it_is_let_go(on: Stage) -> None:
    """As when the runner died after it sent the lock and before the spawner forked."""
    dispatch = on.launch("true").id
    lock = os.open(on.dispatches.directory(dispatch) / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert on.dispatches.standing(dispatch) == Running()
    on.dispatches.wait([dispatch], timeout_s=0.02)
    assert on.dispatches.standing(dispatch) == Running()

    threading.Timer(0.02, os.close, [lock]).start()
    on.dispatches.wait([dispatch], timeout_s=None)

    assert on.dispatches.standing(dispatch) == NeverStarted()


@pytest.mark.rest
def test_waiting_costs_no_wakeup_and_ends_at_once(on: Stage) -> None:
    dispatch, other = on.sh(WAITS), on.sh("echo $$ >other; sleep 30")
    pid_in(on.path / "agent")
    pid_in(on.path / "other")
    waiter = threading.Thread(target=on.dispatches.wait, args=([other, dispatch],), kwargs={"timeout_s": None})
    waiter.start()
    sleepers = waiter.native_id, on.shim(other)

    def at_rest() -> bool:
        """A process that polls never is."""
        before = sum(map(switches, sleepers))
        time.sleep(0.3)
        return sum(map(switches, sleepers)) == before

    until(at_rest)  # the last steps to bed may take a while
    (on.path / "go").touch()
    waiter.join(timeout=PATIENCE_S)
    assert not waiter.is_alive()
    assert on.dispatches.standing(other) == Running()


def test_waiting_ends_on_a_wakeup_and_on_time(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    with stage(tmp_path, wakeup=readable) as on:
        dispatch = on.sh("sleep 30")
        on.dispatches.wait([dispatch], timeout_s=0.01)
        os.write(writable, b"!")
        on.dispatches.wait([dispatch], timeout_s=None)
        assert on.dispatches.standing(dispatch) == Running()
    os.close(readable)
    os.close(writable)


def test_a_process_that_probes_the_lock_is_not_its_holder(on: Stage) -> None:
    dispatch = on.sh("exit 0")
    over = on.outcome(dispatch)

    with (on.dispatches.directory(dispatch) / "lock").open() as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert on.dispatches.standing(dispatch) == over


@pytest.mark.rest
def test_no_shim_stays_behind_as_a_zombie(on: Stage) -> None:
    dispatch = on.sh("exit 0")
    shim = on.shim(dispatch)
    on.outcome(dispatch)
    on.dispatches.close()

    until(lambda: not Path(f"/proc/{shim}").exists())
    assert not list(processes.family(dispatch))


def switches(thread: int | None) -> int:
    text = Path(f"/proc/{thread}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
