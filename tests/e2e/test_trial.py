"""A change of files in try.paths is served, and an agent uses it before the change is approved or lands."""

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from runplan.adapters.sandbox import serve
from tests.support.cli import Project, a_plan, a_project, processes_of, run_program, set_up, steps
from tests.support.mounts import obstacle

SERVE = 'python3 -u -m http.server "$RUNPLAN_PORT" --bind 127.0.0.1 --directory web'
TRY = f"[try]\npaths = ['web/**']\nserve = '{SERVE}'\n"
PAGE = 'write = "web/index.html"\ntext = "<h1>Hello</h1>\\n"'
#: Fetches the page as a browser tool would, and saves an image of it.
USE = """run = '''
python3 -c "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read())" http://127.0.0.1:$RUNPLAN_PORT
printf '\\211PNG\\r\\n\\032\\n1' >"${RUNPLAN_RETURN%/*}/home page.png"
echo scratch >web/scratch.html
'''"""
SHOT = '{path = "home page.png", kind = "screenshot", summary = "The greeting"}'
PASSED = f'return = {{status = "done", summary = "Opened it.", findings = [], artifacts = [{SHOT}]}}'


def tried(*played: str, cycle: str = "") -> str:
    return steps(*played, role=f"try{cycle}")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = a_project(tmp_path, "1")
    set_up(found, settings=TRY, plan=a_plan("1").replace("Write 1.txt", "Write web/index.html"))
    return found


def trials(project: Project) -> list[dict[str, Any]]:
    return project.bodies("TrialJudged")


@pytest.mark.promise
def test_a_change_of_try_paths_is_used_and_the_person_who_approves_sees_the_files(project: Project) -> None:
    project.agent(steps(PAGE) + tried(USE, PASSED))
    project.start("1").exits(4, "  trial      passed, 1 file\n")
    assert project.dispatched() == ["implement", "verify", "try"]
    shown = project.runplan("diff", "X").out
    assert "Trial by robot: passed; Opened it.\n  File: trial-01-home-page.png: The greeting\n" in shown
    (trial,) = trials(project)
    view = project.runplan("diff", "X", "--json").json["trial"]
    assert (view["agent"], view["dispatch"], len(view["files"])) == ("robot", trial["dispatch"], 1)
    directory = project.path / ".git/runplan/dispatch" / trial["dispatch"]
    assert (directory / "trial-01-home-page.png").read_bytes() == b"\x89PNG\r\n\x1a\n1"
    assert "<h1>Hello</h1>" in (directory / "out.log").read_text()
    assert '"GET / HTTP/1.1" 200' in (directory / "server.log").read_text()
    assert project.runplan("approve", "X").code == 0
    report = project.show("main:reports/plan-x.md")
    assert "- Trial by robot: passed; Opened it.\n- File: trial-01-home-page.png: The greeting\n" in report
    assert project.repo.git("ls-tree", "--name-only", "main", "web/") == "web/index.html"
    assert processes_of(project.home) == []


@pytest.mark.parametrize(
    ("serve", "why"),
    [
        ("echo no config; exit 3", "ended with code 3; its output ended: no config"),
        ("sleep 60", "accepted no connection on port {port} within 0.1 s; it printed nothing"),
    ],
)
def test_a_server_that_does_not_accept_is_a_finding_with_its_output(project: Project, serve: str, why: str) -> None:
    settings = f"[run]\nmax_fix_cycles = 0\n[try]\npaths = ['web/**']\nserve = '{serve}'\ntimeout = '0.1s'\n"
    set_up(project, settings=settings, agent=steps(PAGE) + tried(PASSED))
    project.start("1", "auto").ends(1, "runplan: failed: verification-failed")
    (failed,) = project.bodies("PhaseFailed")
    assert failed["step"] == "try"
    detail = f"the trial found: try.serve ({serve}) "
    assert failed["detail"].startswith(detail)
    port = failed["detail"].partition("port ")[2].partition(" ")[0]
    assert failed["detail"] == detail + why.format(port=port)
    assert processes_of(project.home) == []


def test_a_port_that_another_process_serves_is_never_tried() -> None:
    # Below those that the kernel gives to connections.
    ranges = (range(first, first + serve.PORTS) for first in range(12000, 20000, serve.PORTS))
    ports = next(ports for ports in ranges if not any(map(serve.accepts, ports)))
    env = os.environ | {"RUNPLAN_PORT": str(ports[0]), "RUNPLAN_LOGS": os.devnull}
    with contextlib.ExitStack() as stack:
        for port in ports:
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        argv = (sys.executable, serve.__file__, "60", "", "true", "echo", "tried")
        ran = run_program(argv, Path.cwd(), env)
    taken = f"the ports {ports[0]} to {ports[-1]} of the worktree are taken by other processes\n"
    assert (ran.code, ran.out, ran.err) == (1, "", taken)


def test_files_that_are_no_own_image_or_text_are_not_kept(project: Project, tmp_path: Path) -> None:
    (tmp_path / "key.png").write_bytes(b"\x89PNG\r\n\x1a\nkey")
    own = (
        'cd "${RUNPLAN_RETURN%/*}" && ln -s '
        + str(tmp_path)
        + "/key.png link.png && mkfifo pipe && printf '\\377' >raw"
    )
    paths = ("link.png", "pipe", "raw", f"{tmp_path}/key.png", "../prompt.md", "gone")
    listed = ", ".join(f'"{path}"' for path in paths)
    answer = f'return = {{status = "done", findings = [], artifacts = [{listed}]}}'
    project.agent(steps(PAGE) + tried(f"run = '''{own}'''", answer))
    assert project.start("1", "auto").code == 0
    (trial,) = trials(project)
    assert [file["path"] for file in trial["files"]] == [*paths]
    assert all(file["summary"].startswith("not kept: ") for file in trial["files"])


def test_server_and_agent_share_a_network_and_the_server_has_no_agent_s_key(project: Project, tmp_path: Path) -> None:
    if why := obstacle():
        pytest.skip(why)
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": "auto", "RUNPLAN_AGENTS_NETWORK": "none"}
    project.extra |= {"KEY_OF_AGENT": "k1", "FOR_TESTS": "t1"}
    served = TRY.replace("serve = '", "serve = 'env >web/env.txt; ")
    more = "env = ['KEY_OF_AGENT']\n[tests]\nenv = ['FOR_TESTS']\n"
    look = USE.replace("$RUNPLAN_PORT", "$RUNPLAN_PORT/env.txt").replace("'''\n", "'''\necho key $KEY_OF_AGENT\n", 1)
    set_up(project, settings=more + served, agent=steps(PAGE) + tried(look, PASSED))
    project.start("1", "auto").exits(0)
    (trial,) = trials(project)
    printed = (project.path / ".git/runplan/dispatch" / trial["dispatch"] / "out.log").read_text()
    assert "key k1\n" in printed
    assert "FOR_TESTS=" in printed
    assert "KEY_OF_AGENT=" not in printed
    assert "RUNPLAN_RETURN=" not in printed
    assert trial["files"][0]["path"] == "trial-01-home-page.png"


def test_doctor_names_who_tries_and_what_is_missing_which_a_start_refuses(project: Project) -> None:
    seen = project.runplan("doctor").out
    assert f"ok    trial       robot tries changes of web/**; served by: {SERVE}\n" in seen
    set_up(project, settings="[try]\nserve = 'missing-server'\n")
    assert "WARN  trial       try.paths is empty, so nothing is tried\n" in project.runplan("doctor").out
    set_up(project, settings="[try]\nserve = 'missing-server'\npaths = ['web/**']\n")
    ran = project.runplan("doctor")
    assert (ran.code, "FAIL  trial       `missing-server`: missing-server was not found\n" in ran.out) == (2, True)
    refused = project.runplan("start", "X", "1", "auto")
    remedy = "install missing-server, or set try.serve to another command"
    said = f"runplan: try.serve, `missing-server`: missing-server was not found; {remedy}"
    assert (refused.code, refused.last, project.dispatched()) == (2, said, [])
