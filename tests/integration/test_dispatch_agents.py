"""Agents through a shim: the output of real ones, and every step of the `script` agent."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.agents.adapter import Task
from runplan.adapters.agents.clis import agent_of
from runplan.adapters.agents.clis.script import FAILED, MODIFIERS, STEPS
from runplan.adapters.agents.environment import agent_environment
from runplan.adapters.agents.invocation import Agents
from runplan.domain.errors import SettingsError
from runplan.domain.run.dispatch import OWN, Ending, Outcome, Tally, ToolUsed
from runplan.domain.run.kinds import Role
from runplan.domain.settings.schema import AgentsSettings, AgentTable
from tests.support import samples
from tests.support.dispatching import Stage, shared_stage
from tests.support.repos import isolated_env


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


# --- the script agent -------------------------------------------------------------------------------------


PROMPT = """# Phase 1
- not: an item
diff --git a/a b.py b/a b.py
new file mode 100644

## Items

- W1: make a.txt
- C1: it says hello: twice

## Rules

- none: of these
"""


def task(root: Path, directory: Path, *, script: str = "script.toml", **more: Any) -> Task:
    table = AgentTable(name="played", kind="script", script=script)
    given = {"role": Role.FIX, "phase": "1", "cycle": 1, **more}
    return Task(table=table, caller={}, root=root, directory=directory, **given)


class Theatre:
    """A worktree, a main checkout and the stage to play scripts on."""

    def __init__(self, on: Stage) -> None:
        self.on = on
        self.main = on.path / "main"
        self.worktree = on.path / "worktree"
        self.main.mkdir()
        self.worktree.mkdir()

    def launch(self, text: str, *, role: Role = Role.IMPLEMENT, phase: str = "1", cycle: int = 1, **more: Any) -> str:
        (self.main / "script.toml").write_text(text)
        launch = self.on.launch("unset", cwd=str(self.worktree), reader="script", **more)
        directory = self.on.dispatches.directory(launch.id)
        prompt = directory / "prompt.md"
        prompt.write_text(PROMPT)
        argv = agent_of("script").build_argv(task(self.main, directory, role=role, phase=phase, cycle=cycle))
        env = agent_environment(isolated_env(), keep=("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM"), settings={})
        env |= Agents(AgentsSettings(), self.main, "plans/x.md", "r1", {})._variables(launch.id, role, phase)
        env |= {"RUNPLAN_PROMPT": str(prompt), "RUNPLAN_RETURN": str(directory / "return.json")}
        return self.on.start(*argv, **{**more, "id": launch.id, "cwd": launch.cwd, "reader": "script", "env": env})

    def play(self, *steps: str, **how: Any) -> tuple[str, Outcome]:
        """Play steps written as TOML lines."""
        text = "".join(f'[[phase."1".implement]]\n{step}\n' for step in steps)
        dispatch = self.launch(text, **how)
        return dispatch, self.on.outcome(dispatch)

    def tools(self, dispatch: str) -> list[ToolUsed]:
        events = (event for line in self.on.out(dispatch).splitlines() for event in agent_of("script").read_line(line))
        return [event for event in events if isinstance(event, ToolUsed)]

    def make_repository(self) -> None:
        """Turn the main checkout into a repository and the worktree into one of its worktrees."""
        self.worktree.rmdir()
        self.git("-c", "init.defaultBranch=main", "init", "-q")
        self.git("-c", "user.name=u", "-c", "user.email=u@example.org", "commit", "-q", "--allow-empty", "-m", "base")
        self.git("worktree", "add", "-q", "-b", "work", str(self.worktree))

    def git(self, *arguments: str) -> str:
        return subprocess.check_output(["git", *arguments], cwd=self.main, env=isolated_env(), text=True).strip()


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    with shared_stage(tmp_path) as on:
        yield Theatre(on)


# --- files ------------------------------------------------------------------------------------------------


def test_files_are_written_appended_deleted_and_reported_as_tool_events(theatre: Theatre) -> None:
    texts = ('write = "src/a.txt"\ntext = "one\\n"', 'append = "src/a.txt"\ntext = "two\\n"')
    dispatch, outcome = theatre.play(*texts, 'write = "b.txt"', 'delete = "b.txt"')

    root = theatre.worktree
    assert outcome.code == 0
    assert (root / "src/a.txt").read_text() == "one\ntwo\n"
    assert not (root / "b.txt").exists()
    assert outcome.message == ""
    used = {"src/a.txt": ("write", "append"), "b.txt": ("write", "delete")}
    events = [ToolUsed(tool=tool, path=str(root / name)) for name, tools in used.items() for tool in tools]
    assert theatre.tools(dispatch) == events


# --- git --------------------------------------------------------------------------------------------------


def test_a_commit_takes_what_the_script_touched_under_the_agents_name(theatre: Theatre) -> None:
    theatre.make_repository()
    (theatre.worktree / "stray").touch()

    write = 'write = "a"\ntext = "1"'
    dated = 'commit = "Add a"\ndate = "2026-01-01T00:00:00Z"'
    _, outcome = theatre.play(write, dated, 'commit = "Nothing"', write, 'commit = "Nothing new"', 'say = "end"')

    assert outcome.message == "end\n"
    log = theatre.git("log", "--format=%s|%an|%ce|%at", "main..work")
    assert log == "Add a|runplan agent|agent@runplan.invalid|1767225600"
    assert theatre.git("show", "--name-only", "--format=", "work") == "a"


def test_a_command_runs_in_the_worktree_and_knows_the_main_checkout(theatre: Theatre) -> None:
    theatre.make_repository()
    dispatch, outcome = theatre.play(
        'git = ["update-ref", "refs/heads/moved", "work"]',
        'run = "git config core.editor vi && pwd >where"',
        'run = \'git -C "$main" commit -q --allow-empty -m "on main"\'',
    )

    assert outcome.code == 0, theatre.on.err(theatre.on.ids[0])
    assert (theatre.worktree / "where").read_text() == f"{theatre.worktree}\n"
    assert theatre.git("log", "--format=%s", "main") == "on main\nbase"
    assert theatre.git("rev-parse", "moved") == theatre.git("rev-parse", "work")
    assert theatre.git("config", "core.editor") == "vi"
    assert [event.tool for event in theatre.tools(dispatch)] == ["git", "run", "run"]


def test_a_git_command_that_fails_ends_the_play(theatre: Theatre) -> None:
    theatre.make_repository()
    dispatch, outcome = theatre.play('git = ["switch", "nowhere"]', 'write = "a"')

    assert outcome.code == FAILED
    assert b"script: git = " in theatre.on.err(dispatch)
    assert not (theatre.worktree / "a").exists()


# --- words ------------------------------------------------------------------------------------------------


def test_a_script_reports_the_same_events_as_a_program(theatre: Theatre, tmp_path: Path) -> None:
    reported = [
        'tell = {trouble = "limit", words = "come back later", resets = 1800000000}',
        "tell = {context = 120, window = 200}",
        "tell = {tokens = 7, usd = 0.5}",
        f'say = "once"\nonce = "{tmp_path / "flag"}"',
        f'say = "twice"\nonce = "{tmp_path / "flag"}"',
    ]
    _, outcome = theatre.play(*reported)
    tally = outcome.tally
    assert [(one.kind, one.words, one.resets) for one in tally.troubles] == [("limit", "come back later", 1800000000)]
    assert (tally.context, tally.window, tally.usage.input_tokens, tally.usage.usd) == (120, 200, 7, 0.5)
    assert outcome.message == "once\n"


# --- time and death ---------------------------------------------------------------------------------------


# --- which steps ------------------------------------------------------------------------------------------

ROLES = """
[[phase."1".implement]]
say = "implement"
[[phase."1".fix]]
say = "fix"
[[phase."1".fix2]]
say = "fix in cycle 2"
[[phase."*".implement]]
say = "any phase"
[[phase."1".verify]]
fail = ["W1"]
[[phase."1".verify2]]
pass_all = true
"""


@pytest.mark.parametrize(
    ("role", "phase", "cycle", "step"),
    [
        (Role.IMPLEMENT, "1", 1, {"say": "implement"}),
        (Role.IMPLEMENT, "4a", 1, {"say": "any phase"}),
        (Role.FIX, "1", 1, {"say": "fix"}),
        (Role.FIX, "1", 2, {"say": "fix in cycle 2"}),
        (Role.FIX, "1", 3, {"say": "fix"}),
        (Role.FIX, "2", 1, None),
        (Role.VERIFY, "1", 1, {"fail": ["W1"]}),
        (Role.VERIFY, "1", 2, {"pass_all": True}),
        (Role.VERIFY, "2", 1, {"pass_all": True}),
    ],
)
def test_steps_are_chosen_by_phase_role_and_cycle(
    tmp_path: Path, role: Role, phase: str, cycle: int, step: dict[str, Any] | None
) -> None:
    (tmp_path / "script.toml").write_text(ROLES)
    asked = task(tmp_path, tmp_path, role=role, phase=phase, cycle=cycle)
    _, script = agent_of("script").build_argv(asked)

    steps = [STEPS[name](value, {}, asked) for name, value in (step or {}).items()]
    commands = [line for line in Path(script).read_text().splitlines() if line.startswith("{ ")]
    assert [line.removeprefix("{ ") for line in commands] == [step.partition("\n")[0] for step in steps]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param('[[phase."1".implement]]\nwrte = "a"', "needs exactly one of append,", id="unknown step"),
        pytest.param('[[phase."1".implement]]\nsay = "a"\nexit = 1', "step 1 (say, exit)", id="two steps in one"),
        pytest.param('[[phase."1".implement]]\nsay = "a"\nsize = 1', "step 1 (say, size)", id="unknown modifier"),
        pytest.param('[phase."1".implement]\nsay = "a"', "only [[phase", id="single brackets"),
        pytest.param('[[phases."1".implement]]\nsay = "a"', "only [[phase", id="wrong table"),
        pytest.param("[[", "script.toml: ", id="no TOML"),
        pytest.param('phase = "1"', "only [[phase", id="phase is no table"),
    ],
)
def test_a_script_that_makes_no_sense_is_refused_before_it_is_played(theatre: Theatre, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        theatre.launch(text)

    assert said in str(refused.value)
    assert str(theatre.main / "script.toml") in str(refused.value)


def test_every_step_is_documented() -> None:
    document = (Path(__file__).parents[2] / "docs/agents.md").read_text()
    assert [word for word in (*STEPS, *MODIFIERS) if f"{word} = " not in document] == []
