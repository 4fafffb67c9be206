"""The outcome of a dispatch: ending, message, logs."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.checks.secrets import LONGEST
from runplan.errors import Unreachable
from runplan.run.dispatch import MESSAGE_TAIL, Ending, NeverStarted, Outcome, Running, Usage
from runplan.steps.gates import own_logs, side_by_side
from runplan.supervise.dispatches import Dispatches
from runplan.supervise.output import LOG_TAIL
from tests.support.dispatching import Stage, pid_in, stage, until


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as made:
        yield made


def test_exit_code_and_message_come_back_and_stderr_is_kept_apart(on: Stage) -> None:
    dispatch = on.sh("echo one; echo two >&2; echo three; exit 7")

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


def test_without_a_prompt_standard_input_is_empty(on: Stage) -> None:
    assert on.outcome(on.sh("cat; echo end")).message == "end\n"


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
def test_a_program_that_cannot_be_started_is_missing_and_named(
    on: Stage, argv: tuple[str, ...], cwd: str, named: str
) -> None:
    outcome = on.outcome(on.start(*argv, cwd=str(on.path / cwd)))

    assert outcome.ending is Ending.MISSING
    assert named in outcome.message


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


def test_a_line_of_12_megabytes_is_logged_whole_and_what_follows_is_read(on: Stage) -> None:
    dispatch = on.python("print('x' * 12_000_000); print('after', end='')")

    outcome = on.outcome(dispatch)

    assert len(on.out(dispatch)) == 12_000_006
    assert outcome.message.endswith("xxx\nafter\n")


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


def test_a_dispatch_never_started_says_so_and_leaves_nothing(on: Stage) -> None:
    assert on.dispatches.standing("r0.1.1.implement.1") == NeverStarted()
    on.dispatches.wait(["r0.1.1.implement.1"], timeout_s=None)
    on.dispatches.end(["r0.1.1.implement.1"], grace_s=1)
    assert not (on.path / "dispatch" / "r0.1.1.implement.1").exists()


def test_modules_of_the_repository_are_not_taken_for_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


# --- the exit record ----------------------------------------------------------------------------------------


def elsewhere(on: Stage, dispatch: str) -> object:
    """The outcome, read by a runner that did not start the dispatch."""
    return Dispatches(on.path / "dispatch").standing(dispatch)


def test_an_exit_is_read_alike_by_every_runner(on: Stage) -> None:
    dispatch = on.sh("echo said; exit 4")

    outcome = on.outcome(dispatch)

    assert outcome == elsewhere(on, dispatch)
    assert (outcome.ending, outcome.code) == (Ending.EXITED, 4)


@pytest.mark.parametrize(
    "record", [None, "", '{"ending": "exit', '{"ending": "exited"}'], ids=["absent", "empty", "half", "incomplete"]
)
def test_without_a_whole_exit_record_the_shim_is_lost(on: Stage, record: str | None) -> None:
    dispatch = on.sh("echo $$ >agent; sleep 30")
    pid_in(on.path / "agent")
    if record is not None:
        (on.dispatches.directory(dispatch) / "exit.json").write_text(record)

    os.kill(on.shim(dispatch), signal.SIGKILL)

    assert on.outcome(dispatch).ending is Ending.LOST
    seen = elsewhere(on, dispatch)
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
