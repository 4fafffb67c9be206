"""The output of real agents, through a shim: message, tools, tally, and the files that they leave."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.agents.invocation import Agents
from runplan.run.dispatch import OWN, Ending, Launch, Tally
from runplan.run.events import DispatchStarted
from runplan.run.kinds import Role
from runplan.settings.load import Layer
from tests.support import samples
from tests.support.builders import settle
from tests.support.dispatching import Stage, shared_stage


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Stage]:
    with shared_stage(tmp_path) as made:
        yield made


@pytest.mark.parametrize("cli", samples.FOLDERS)
def test_a_captured_stream_comes_back_as_it_was_read(on: Stage, cli: str) -> None:
    """With what its program left in files."""
    sample = next(name for name in samples.streams(cli) if "/success" in name)
    launch = on.launch("cat", str(samples.SAMPLES / sample), reader=cli)
    if samples.files(sample).is_dir():
        shutil.copytree(samples.files(sample), on.dispatches.directory(launch.id) / OWN, dirs_exist_ok=True)
    on.dispatches.start(launch)
    found = on.outcome(launch.id)

    assert (found.ending, found.code) == (Ending.EXITED, 0)
    assert found.tally == samples.outcome(sample).tally
    assert found.message == samples.outcome(sample).message
    assert samples.ending(cli, found).kind == "success"


def test_a_broken_trajectory_does_not_block_the_dispatch(on: Stage) -> None:
    launch = on.launch("true", reader="mini")
    (on.dispatches.directory(launch.id) / OWN / "trajectory.json").write_bytes(b'{"info": [' * 1000)
    on.dispatches.start(launch)
    found = on.outcome(launch.id)
    assert found.tally == Tally()
    assert samples.ending("mini", found).kind == "no-output"


def test_strange_lines_are_kept_counted_and_ignored(on: Stage) -> None:
    program = (
        "import sys\n"
        "sys.stdout.buffer.write(b'\\xff\\x00 noise\\n' * 3 + b'{\"type\":' + b'[' * 100000 + b'\\n')\n"
        'print(\'{"type":"result","subtype":"success","is_error":false,"result":"Done."}\')\n'
    )
    dispatch = on.python(program, reader="claude")
    found = on.outcome(dispatch)
    assert found.tally.unread == 4
    assert found.message == "Done."
    assert on.out(dispatch).count(b"noise") == 3


FAKE = """\
import json, os, pathlib, sys
assert sys.argv[1] == "-p", sys.argv
prompt = sys.stdin.read()
pathlib.Path("made.txt").write_text(prompt)
seen = sorted(name for name in os.environ if name.endswith("_API_KEY"))
print(json.dumps({"type": "system", "subtype": "init", "session_id": "s1", "model": "m", "claude_code_version": "9.9"}))
print(json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": " ".join(seen)}), flush=True)
"""


def test_an_agent_is_called_supervised_and_judged(on: Stage, tmp_path: Path) -> None:
    """The whole way: settings, argv, environment, prompt on standard input, reading, judgement."""
    (tmp_path / "fake.py").write_text(FAKE, encoding="utf-8")
    table = {"kind": "claude", "argv": [sys.executable, str(tmp_path / "fake.py")]}
    settings = settle([Layer(origin="x", values={"agents": {"deep": table}})]).settings.agents
    caller = {"PATH": os.environ["PATH"], "ANTHROPIC_API_KEY": "a", "OPENAI_API_KEY": "o"}
    agents = Agents(settings, root=tmp_path, plan="plans/x.md", run="r1", caller=caller)
    dispatch = on.launch("unused").id
    directory = on.dispatches.directory(dispatch)
    (directory / "prompt.md").write_text("Do ä.", encoding="utf-8")

    started = DispatchStarted(id=dispatch, role=Role.IMPLEMENT, agent="deep", cycle=1, phase="1")
    argv, env, reader = agents.launch(started, attempt=1, directory=directory, cwd=tmp_path, writable=())
    on.dispatches.start(
        Launch(
            id=dispatch,
            argv=argv,
            cwd=str(tmp_path),
            env=env,
            stdin=str(directory / "prompt.md"),
            reader=reader,
            wall_s=30,
            silence_s=0,
        )
    )
    found = on.outcome(dispatch)

    assert found.message == "ANTHROPIC_API_KEY", found.error
    assert (tmp_path / "made.txt").read_text(encoding="utf-8") == "Do ä."
    assert found.tally.model == "m"
    assert samples.ending("claude", found).kind == "success"
