"""What each engine of a sandbox does with a command and its view."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from runplan.adapters.sandbox.bubblewrap import find_obstacle
from runplan.adapters.sandbox.engines import open_sandbox
from runplan.adapters.sandbox.view import Places, Sandbox, View
from runplan.domain.run.dispatch import TEMPORARY
from runplan.domain.settings.schema import ContainerSettings

ENV = {name: os.environ[name] for name in ("PATH", "TMPDIR", "DOCKER_HOST") if name in os.environ}
NO_BWRAP = pytest.mark.skipif(bool(find_obstacle(ENV)), reason="no bubblewrap")


class Stage:
    """An engine, and a view with a worktree, a place of its own and a home."""

    def __init__(self, place: Path, mode: str, image: str = "", engine: str = "auto") -> None:
        self.mode = mode
        self.env = {**ENV, "HOME": str(place / "home")}
        self.own, self.tree = place / "own", place / "tree"
        for path in (self.own, self.tree, place / "home", *(place / "scratch" / name for name in TEMPORARY.values())):
            path.mkdir(parents=True)
        places = Places(place / "homes", (place,), image=image)
        self.sandbox: Sandbox = open_sandbox(mode, self.env, places, ContainerSettings(engine=engine))
        self.view = View(
            cwd=self.tree,
            dispatch=f"{place.name}.1",
            writable=(self.own,),
            home=place / "homes",
            scratch=place / "scratch",
        )

    def run(self, script: str, view: View) -> tuple[int, str]:
        argv = self.sandbox.wrap(("sh", "-c", script), view)
        ran = subprocess.run(argv, cwd=view.cwd, env=self.env, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture(params=["none", pytest.param("bwrap", marks=[pytest.mark.rest, NO_BWRAP])])
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Stage:
    return Stage(tmp_path, request.param)


def test_a_command_has_its_directory_variables_home_and_own_place_and_its_code_comes_through(stage: Stage) -> None:
    stage.env["ONE"] = "1"
    home = 'echo $ONE; echo kept >~/file; cat "$HOME/file"'
    own = f"echo x >{stage.own}/file; echo y >/tmp/zone.$$ && rm /tmp/zone.$$"
    ran = stage.run(f"pwd; {home}; {own}; echo error >&2; exit 7", stage.view)
    assert ran == (7, f"{stage.tree}\n1\nkept\nerror\n")
    assert (stage.own / "file").read_text() == "x\n"


def test_a_missing_program_is_named_by_whoever_starts_it(stage: Stage) -> None:
    """In a container by its shell."""
    argv = stage.sandbox.wrap(("no-such-program", "-x"), stage.view)
    if stage.mode == "container":
        assert stage.run("exec no-such-program", stage.view)[0] == 127
    else:
        assert argv == ("no-such-program", "-x")


def test_no_process_outlives_a_killed_one(stage: Stage) -> None:
    """Except without an engine, where the shim finds what is left."""
    argv = stage.sandbox.wrap(("sh", "-c", "sleep 300 & echo $!; wait"), stage.view)
    starter = ("sh", "-c", '"$@"; exit', "sh", *argv)  # not exec: the shell stays
    with subprocess.Popen(
        starter, cwd=stage.tree, env=stage.env, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        (os.kill if stage.mode == "bwrap" else os.killpg)(process.pid, 9)  # bubblewrap notices
        process.wait(10)
        if end := stage.sandbox.end(stage.view.dispatch):
            subprocess.run(end, check=False)  # as the shim does
        assert process.stdout.read() == b""  # the pipe is closed by the last process


@pytest.mark.parametrize("is_copy", [False, True])
def test_what_it_changes_on_a_layer_is_dropped(stage: Stage, *, is_copy: bool) -> None:
    if stage.mode == "none":
        return  # a copy of the whole worktree is used instead
    (stage.tree / "old").write_text("old\n")
    first = View(cwd=stage.tree, home=stage.view.home, scratch=stage.view.scratch)
    stage.run("echo set-up >~/file", first)
    view = replace(first, layers=(stage.tree,), drops_home=True, is_copy=is_copy)
    said = stage.run("cat old ~/file; rm old; echo new >new; echo gate >~/file; ls; cat ~/file", view)
    assert said == (0, "old\nset-up\nnew\ngate\n")
    assert [path.name for path in stage.tree.iterdir()] == ["old"]
    assert stage.run("cat ~/file", first) == (0, "set-up\n")
