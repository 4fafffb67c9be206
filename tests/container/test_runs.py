"""Runs whose processes are in containers."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from runplan.adapters import processes
from runplan.adapters.clock import until
from tests.container.image import NAME, list_containers
from tests.e2e.test_sandbox import ASK, Shut, port as port
from tests.support.cli import a_project
from tests.support.documents import ROOT


@pytest.fixture
def boxed(tmp_path: Path, engine: str) -> Shut:
    shut = Shut(a_project(tmp_path, "1"))
    scripts = "agent.sh,judge.sh,setup.sh,check.sh"
    shut.project.extra |= {
        "RUNPLAN_AGENTS_SANDBOX": "container",
        "RUNPLAN_AGENTS_CONTAINER_IMAGE": NAME,
        "RUNPLAN_AGENTS_CONTAINER_ENGINE": engine,
        "RUNPLAN_AGENTS_HOME": scripts,
        "RUNPLAN_TESTS_HOME": scripts,
    }
    return shut


def test_a_phase_is_worked_on_in_containers_and_none_is_left(boxed: Shut, engine: str) -> None:
    project = boxed.project
    where = "test -e /etc/runplan-image && echo IN A CONTAINER"
    boxed.scripts(
        setup=f"{where}; echo set-up >~/made",
        agent=f"{where}; echo 1 >1.txt; git add 1.txt; git commit -qm one; echo 2 >2.txt; echo agent >~/made",
        check=f"{where}; cat ~/made; echo gate >~/made; echo gate >>1.txt",
        judge=f"{where}; cat 1.txt; (echo x >new) || echo READ ONLY",
    )

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    said = boxed.said()
    assert said.count("IN A CONTAINER") >= 4, said
    assert "set-up" in said
    assert "READ ONLY" in said
    assert (project.show("main:1.txt"), project.show("main:2.txt")) == ("1", "2")
    assert list_containers(engine, boxed.project.path / ".git/runplan/homes") == ""


def test_a_list_of_hosts_holds_in_a_container(boxed: Shut, port: int) -> None:
    project = boxed.project
    line = f"python3 ~/ask.py {port} http://127.0.0.1:{port}/one http://refused.example/two"
    (project.home / "ask.py").write_text(ASK)
    boxed.scripts(setup="true", agent=f"{line}; echo 1 >1.txt", judge="true", check=f"{line}; true")
    for section in ("AGENTS", "TESTS"):
        project.extra[f"RUNPLAN_{section}_NETWORK"] = f"127.0.0.1:{port}"
        project.extra[f"RUNPLAN_{section}_HOME"] += ",ask.py"

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    assert f"GOT /one for 127.0.0.1:{port}" in boxed.said()
    assert "FAILED http://refused.example/two HTTP Error 403" in boxed.said()
    assert "PLAIN SOCKET" not in boxed.said()
    assert "asked for refused.example:80, refused" in project.runplan("logs", "X").out


def test_gates_side_by_side_have_logs_of_their_own(boxed: Shut) -> None:
    text = (boxed.project.path / "runplan.toml").read_text()
    gates = (f'[gates.{name}]\ncommand = "echo {name} speaks"\nparallel = true\n' for name in ("one", "two"))
    boxed.project.commit_file("runplan.toml", text + "".join(gates))

    assert boxed.project.start("1", "auto").code == 0

    for name in ("one", "two"):
        logs = (boxed.project.path / ".git/runplan/dispatch").glob(f"*/gate-{name}.log")
        assert {path.read_text() for path in logs} == {f"{name} speaks\n"}


def test_the_work_is_served_to_an_agent_that_tries_it(boxed: Shut) -> None:
    text = (boxed.project.path / "runplan.toml").read_text()
    serve = "exec python3 -u -m http.server $RUNPLAN_PORT --bind 127.0.0.1"
    boxed.project.commit_file("runplan.toml", f'{text}[try]\npaths = ["*.txt"]\nserve = "{serve}"\n')
    ask = "import sys, urllib.request; print('SERVED', urllib.request.urlopen(sys.argv[1]).read())"
    tries = f"""
        python3 -c "{ask}" http://127.0.0.1:$RUNPLAN_PORT/1.txt
        echo '{{"status": "done", "summary": "Used it.", "findings": []}}' >"$RUNPLAN_RETURN"
        exit
    """
    boxed.scripts(judge=f'if [ "$RUNPLAN_ROLE" = try ]; then {tries} fi')

    ran = boxed.project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    assert "SERVED b'1\\n'" in boxed.said()
    (log,) = (boxed.project.path / ".git/runplan/dispatch").glob("*/server.log")
    assert '"GET /1.txt HTTP/1.1" 200' in log.read_text()


def test_an_agent_that_is_stopped_leaves_no_container(boxed: Shut, engine: str) -> None:
    boxed.project.extra["RUNPLAN_LIMITS_WALL"] = "3s"
    boxed.scripts(agent="trap '' TERM; (trap '' TERM; setsid sleep 1000) & sleep 1000")

    boxed.project.start("1", "auto").exits(1)
    assert list_containers(engine, boxed.project.path / ".git/runplan/homes") == ""


def test_the_next_start_removes_a_container_whose_run_was_killed(boxed: Shut, engine: str) -> None:
    project = boxed.project
    left = [engine, "run", "-d", f"--label=runplan={project.path}/.git/runplan/homes", "--network=none"]
    names = ("runplan-0123.4--main", "runplan-99999999_1_boot--0011223344556677")
    for name in names:
        limits = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096")
        subprocess.run([*left, *limits, f"--name={name}", NAME, "sleep", "1000"], check=True, capture_output=True)
    try:
        assert project.start("1", "auto").code == 0
        assert list_containers(engine, boxed.project.path / ".git/runplan/homes") == ""
    finally:
        subprocess.run([engine, "rm", "-f", *names], check=False, capture_output=True)


def build_from(boxed: Shut, dockerfile: str) -> None:
    boxed.project.commit_file("box/Dockerfile", dockerfile)
    (boxed.project.path / "link").symlink_to("/etc/hosts")
    boxed.project.repo.commit("Add a note", **{"box/note.txt": "from the target\n"})
    del boxed.project.extra["RUNPLAN_AGENTS_CONTAINER_IMAGE"]
    folder = {"RUNPLAN_AGENTS_CONTAINER_BUILD": "box/Dockerfile", "RUNPLAN_AGENTS_CONTAINER_CONTEXT": "box"}
    boxed.project.extra |= folder


def test_an_image_is_built_from_the_target_and_its_dockerfile_is_guarded(boxed: Shut) -> None:
    project = boxed.project
    build_from(boxed, f"FROM {NAME}\nCOPY note.txt /etc/note\n")
    boxed.scripts(agent="cat /etc/note; echo 1 >1.txt; echo RUN true >>box/Dockerfile", check="true", judge="true")

    ran = project.start("1", "auto")

    assert "from the target" in boxed.said(), ran.err
    assert ran.code == 1
    assert "the file of agents.container.build was changed, and the phase does not name it" in ran.err


def test_gc_keeps_the_newest_image_that_was_built_and_uninstall_none(boxed: Shut, engine: str) -> None:
    project = boxed.project
    build_from(boxed, f"FROM {NAME}\nRUN touch /first\n")
    boxed.scripts(agent="echo 1 >1.txt", check="true", judge="true")
    assert project.start("1", "auto").code == 0
    project.commit_file("box/Dockerfile", f"FROM {NAME}\nRUN touch /second\n")
    assert project.runplan("doctor", "--run").code == 0
    first, second = reversed(list_images(engine, project.path))

    shown = project.runplan("gc", "--dry-run")
    assert (f"the image {first}" in shown.out, f"the image {second}" in shown.out) == (True, False), shown.out
    assert list_images(engine, project.path) == [second, first]
    assert project.runplan("gc").code == 0
    assert list_images(engine, project.path) == [second]
    assert project.runplan("uninstall", "--delete-work").code == 0
    assert list_images(engine, project.path) == []


def test_set_up_runs_again_when_a_run_goes_on_in_another_image(boxed: Shut) -> None:
    project = boxed.project
    build_from(boxed, f"FROM {NAME}\nRUN touch /first\n")
    assert project.start("1").code == 4
    project.commit_file("box/Dockerfile", f"FROM {NAME}\nRUN touch /second\n")

    project.runplan("approve", "X")

    reasons = [event["why"] for event in project.bodies("DispatchStarted") if event["role"] == "setup"]
    assert reasons == ["first use of the worktree", "the image changed"]


def list_images(engine: str, root: Path) -> list[str]:
    words = (engine, "image", "ls", "--filter", f"label=runplan.build={root}/.git", "--format={{.Repository}}:{{.Tag}}")
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def test_doctor_starts_the_image_and_names_what_it_lacks(boxed: Shut) -> None:
    boxed.project.extra["RUNPLAN_TESTS_COMMAND"] = "cargo test"
    boxed.scripts()
    (line,) = [
        line for line in boxed.project.runplan("doctor").out.splitlines() if f"The image {NAME} starts in" in line
    ]
    assert line.strip().endswith(" s and lacks cargo")


REFUSED = [
    (
        {"RUNPLAN_AGENTS_CONTAINER_IMAGE": "no.example/none"},
        "the image no.example/none is not on this machine; get it: ",
    ),
    ({"RUNPLAN_AGENTS_CONTAINER_IMAGE": "--help"}, "the image --help is not on this machine"),
    ({"RUNPLAN_AGENTS_CONTAINER_MOUNTS": "/no/such"}, "agents.container: no container starts: "),
    ({"RUNPLAN_AGENTS_CONTAINER_BUILD": "Dockerfile"}, "agents.container: image and build exclude each other"),
    ({"RUNPLAN_AGENTS_CONTAINER_IMAGE": ""}, "agents.container: neither image nor build is set"),
    (
        {"RUNPLAN_AGENTS_CONTAINER_IMAGE": "", "RUNPLAN_AGENTS_CONTAINER_BUILD": "/etc/hosts"},
        "agents.container.build: the target has no /etc/hosts",
    ),
]


@pytest.mark.parametrize(("extra", "why"), REFUSED)
def test_an_image_that_cannot_be_used_is_refused_before_any_work(boxed: Shut, extra: dict[str, str], why: str) -> None:
    boxed.project.extra |= extra
    boxed.project.start("1", "auto").exits(2, why)
    assert not boxed.project.worktrees.exists()


def test_the_dockerfile_of_the_documentation_can_be_built(boxed: Shut) -> None:
    text = (ROOT / "docs/sandbox.md").read_text()
    recipe = text.partition("```dockerfile\n")[2].partition("```")[0]
    boxed.project.commit_file("Dockerfile", recipe.replace("debian:bookworm", NAME))  # the same Debian
    del boxed.project.extra["RUNPLAN_AGENTS_CONTAINER_IMAGE"]
    boxed.project.extra["RUNPLAN_AGENTS_CONTAINER_BUILD"] = "Dockerfile"
    assert "The image built from Dockerfile starts in" in boxed.project.runplan("doctor").out


def test_a_run_that_is_killed_with_its_shim_goes_on_and_leaves_no_container(boxed: Shut, engine: str) -> None:
    project = boxed.project
    homes = project.path / ".git/runplan/homes"
    boxed.scripts(agent="test -e ~/again || { touch ~/again; sleep 1000; }; echo 1 >1.txt")

    with project.running("start", "X", "1", "auto", "--foreground") as process:
        assert until(lambda: list(homes.glob("*/home/again")), within_s=60)
        process.kill()
        process.wait()
    for record in (project.path / ".git/runplan/dispatch").glob("*/shim.json"):
        if shim := processes.living(json.loads(record.read_text())["identity"]):
            processes.send(shim, signal.SIGKILL)

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    assert project.landed() == ["1"]
    assert list_containers(engine, homes) == ""
