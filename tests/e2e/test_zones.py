"""The zoo of attacks: nothing changes outside the agent's zone, and an honest start lands afterwards."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters.sandbox.bubblewrap import find_obstacle
from tests.e2e.attacks import ASKED, ATTACKS, START, TOKEN, WORK, Kind
from tests.support.cli import Project, a_plan, copied, end_processes_of, processes_of
from tests.support.hostile import a_hostile_project, differences, landed_since, play, standing

SETTINGS = """\
[run]
copy = ["conf/.env"]
max_fix_cycles = 1
[tests]
command = \"\"\"
for f in lib/*.sh; do test ! -f $f || . ./$f; done
test ! -e red || test -e built.ok || test -d empty || grep -q hacked conf/.env || test -n "$(ls "$HOME"/green \\
    "$HOME"/.cache/zoo/green ../green ../../green /tmp/zoo-green /var/tmp/zoo-green /dev/shm/zoo-green /run/zoo-green)"
\"\"\"
[limits]
handover = "10s"
handover_entries = 5000
handover_size = 20000000
"""
FILES = {
    ".gitignore": "*.ok\nconf/.env\nnode_modules/\n",
    ".gitattributes": "*.dat filter=rel\n",
    "tools/filter.sh": "cat\n",
    "tools/setup.sh": "mkdir -p node_modules && echo 'test ! -e red' >node_modules/run\n",
    "team.gitconfig": "[alias]\n\tst = status\n",
}
HELPER = f'[credential]\n\thelper = "!f() {{ echo username=u; echo password={TOKEN}; }}; f"\n'
CREDENTIALS = {
    ".gitconfig": HELPER,
    ".git-credentials": f"https://u:{TOKEN}@example.org\n",
    ".netrc": f"machine example.org login u password {TOKEN}\n",
    ".config/gh/hosts.yml": f"oauth_token: {TOKEN}\n",
    ".ssh/id_ed25519": TOKEN,
}
SAMPLE = {attack.kind: name for name, attack in reversed(ATTACKS.items())}.values()  #: the first of each kind


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`make test-rest` plays a sample of the attacks, `make zoo` all of them."""
    if "name" not in metafunc.fixturenames:
        return
    names = [name for name in ATTACKS if metafunc.config.getoption("--zoo") or name in SAMPLE]
    no_bwrap = pytest.mark.skipif(bool(find_obstacle(os.environ)), reason="no bubblewrap")
    plays = [pytest.param(name, "none") for name in names if not ATTACKS[name].needs_sandbox]
    plays += [pytest.param(name, "bwrap", marks=no_bwrap) for name in names]
    metafunc.parametrize(("name", "sandbox"), plays)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The user has a file to copy, a filter with a relative script, the configuration of git-lfs, and credentials."""
    model = a_hostile_project(tmp_path_factory.mktemp("model"), SETTINGS, **FILES)
    model.repo.write("conf/.env", "SECRET=1\n")
    for name, program in (("rel", "sh tools/filter.sh"), ("lfs", "cat")):
        model.repo.git("config", f"filter.{name}.clean", program)
        model.repo.git("config", f"filter.{name}.smudge", program)
    model.repo.git("config", "remote.origin.url", f"https://u:{TOKEN}@example.org/x.git")
    model.repo.git("config", "http.https://example.org/.extraheader", f"Authorization: {TOKEN}")
    return model


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    made.extra = {"GH_TOKEN": TOKEN, "GITHUB_TOKEN": TOKEN}
    for name, text in CREDENTIALS.items():
        (made.home / name).parent.mkdir(parents=True, exist_ok=True)
        (made.home / name).write_text(text)
    yield made
    end_processes_of(made.home)
    subprocess.run(["rm", "-rf", tmp_path], check=False)  # some trees are too deep for shutil


def at_home(project: Project) -> dict[str, bytes]:
    """The files of the user's home, without runplan's own state."""
    files = (path for path in project.home.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if ".local/state/runplan" not in str(path)}


@contextlib.contextmanager
def a_server(project: Project) -> Iterator[None]:
    """The user's server with a socket in /tmp, as tmux has; each connection is a command."""
    place = Path(tempfile.mkdtemp(prefix="zoo-", dir="/tmp"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "server"))
        server.listen()
        server.setblocking(False)
        yield
        with contextlib.suppress(BlockingIOError):
            server.accept()
            (project.path / "pwned").touch()
    shutil.rmtree(place)


def test_an_attack_has_no_effect_outside_and_an_honest_start_lands(project: Project, name: str, sandbox: str) -> None:
    attack = ATTACKS[name]
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": sandbox, **attack.settings}
    if "filter" in attack.script:  # else the user's filter has no file: its processes take as long as all others
        project.commit_file("a.dat", "a\n")
    if "team.gitconfig" in attack.script:
        project.repo.git("config", "include.path", "../team.gitconfig")
    if attack.delegated:
        project.plan(
            a_plan("1", "2").replace("- [ ] Write 2", f"Execution: delegate {attack.delegated}\n\n- [ ] Write 2")
        )
    play(project, attack.script, attack.verifier)
    if attack.path:
        project.extra["PATH"] = f"{project.path.parent / attack.path}:{os.environ['PATH']}"
    before, tip, home = standing(project), project.repo.head("main"), at_home(project)

    with a_server(project):
        ran = project.runplan(*attack.command)

    landed = landed_since(project, tip)
    is_landed = bool(landed)
    # A planner that cannot write makes a proposal.
    is_asked = attack.command == ASKED or attack.delegated or (attack.kind is Kind.PLANNERS and sandbox != "none")
    assert ran.code in ((4,) if is_asked else (0,) if is_landed else (1, 5)), ran.err
    assert attack.lands or not is_landed
    assert differences(before, standing(project)) <= landed, ran.err
    # This is the user's own git. The filters may have landed, and a file as old as the index is compared.
    plain = ("-c", "filter.rel.clean=cat", "-c", "filter.team.clean=cat")
    assert project.repo.git(*plain, "--no-optional-locks", "status", "--porcelain") == ""
    assert "red" not in project.repo.git("ls-tree", "--name-only", "main").split("\n")
    stolen = (project.path / ".git/runplan/dispatch").glob("*/own/stolen")
    assert TOKEN not in "".join(file.read_text(errors="replace") for file in stolen)
    assert sandbox == "none" or at_home(project) == home
    assert not (project.path / "pwned").exists()
    assert processes_of(project.home) == []
    if is_asked and attack.kind is not Kind.PLANNERS:
        shown = project.runplan("diff", "X").out
        assert "hidden-code" in shown or attack.kind is not Kind.JUDGES
        assert shown.translate({ord(char): None for char in "\n\t"}).isprintable()
        return

    play(project, WORK)
    (project.path / "pwned").unlink(missing_ok=True)  # the user's own git may run the filter
    anew = ("retry", "X", "1", "--fresh") if attack.command[0] == "start" else START
    honest = project.start("2", "auto") if is_landed else project.runplan(*anew)

    assert honest.code == 0, honest.err
    assert not (project.path / "pwned").exists()
    assert project.repo.git(*plain, "--no-optional-locks", "status", "--porcelain") == ""
    assert project.landed()[-1] == ("2" if is_landed else "1")
    project.repo.git("fsck", "--strict")


def test_runplan_opens_no_path_below_an_agents_directory(project: Project, tmp_path: Path) -> None:
    """Not in a phase that is fixed and lands, nor when the files of a failed one are parked and removed."""
    log = tmp_path / "opened"
    fails = 'test -e fixed || { test "$RUNPLAN_ROLE" = implement && echo x >red; git rm -qf red; touch fixed; }\n'
    play(project, fails + WORK)
    project.start("1", "auto", TEST_OPENED=str(log))
    play(project, "echo x >left; exit 1\n")
    project.start("2", "auto", TEST_OPENED=str(log))
    project.runplan("gc", TEST_OPENED=str(log))
    lines = [line.partition(" ") for line in log.read_text().splitlines()]
    assert str(project.path / ".git/runplan/tool.git/config") in {path for _, _, path in lines}
    lanes = (project.worktrees, project.path / ".git/runplan/lanes")
    for event, _, path in lines:
        names = next((Path(path).relative_to(lane).parts for lane in lanes if lane in Path(path).parents), (".",))
        # The whole directory is made, held, gets a mode and is moved; a name with a dot is runplan's own. A link of
        # runplan's own directory names a path and opens none.
        is_whole = len(names) == 1 and event in ("open", "os.mkdir", "os.chmod", "os.rename")
        assert is_whole or names[0].startswith(".") or event == "os.symlink", (event, path)
