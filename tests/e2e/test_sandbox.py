"""Agents and checks under bubblewrap: they do their work, and the user's repository is out of their reach."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project
from tests.support.mounts import obstacle
from tests.support.tools import write_script
from tests.support.webhook import served

SETTINGS = """\
[run]
setup = "sh {home}/setup.sh"
[agents]
implementer = "sh"
verifier = "judge"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
[agents.judge]
kind = "command"
argv = ["sh", "{home}/judge.sh"]
[tests]
command = "sh {home}/check.sh"
"""
#: It replaces its return by a rename, as many programs write files.
JUDGE = (
    """printf '{"status":"done","summary":"s","items":[{"item":"W1","result":"pass","evidence":"1.txt:1"}]}' """
    """>"$RUNPLAN_RETURN.new" && mv "$RUNPLAN_RETURN.new" "$RUNPLAN_RETURN"\n"""
)


class Shut:
    """A project whose agent, verifier, tests and setup are shell scripts."""

    def __init__(self, project: Project) -> None:
        self.project = project
        project.commit_file("runplan.toml", SETTINGS.format(home=project.home))
        self.scripts(setup="true", agent="echo 1 >1.txt", judge="true", check="true")

    def scripts(self, **scripts: str) -> None:
        for name, script in scripts.items():
            script += f"\n{JUDGE}" if name == "judge" else ""
            (self.project.home / f"{name}.sh").write_text(f"{script}\n")

    def said(self) -> str:
        logs = (self.project.path / ".git/runplan/dispatch").glob("*/out.log")
        return "".join(path.read_text() for path in sorted(logs))


@pytest.fixture
def shut(tmp_path: Path) -> Shut:
    """Without the sandbox until a test says so."""
    return Shut(a_project(tmp_path, "1"))


@pytest.fixture
def boxed(shut: Shut) -> Shut:
    if why := obstacle():
        pytest.skip(why)
    shut.project.extra["RUNPLAN_AGENTS_SANDBOX"] = "auto"  # the default
    return shut


#: For each place what earlier processes left there, and a plus sign where this one can write.
LOOK = """
mkdir -p ~/.cache
dispatch={root}/.git/runplan/dispatch/$RUNPLAN_DISPATCH
own=$(ls -d $dispatch/own $dispatch/scratch/beside/own 2>/dev/null | head -n 1)
line="$RUNPLAN_ROLE$(echo $PWD | grep -o -- -proof)"
for place in . "$(git rev-parse --git-common-dir)" ~/.cache /tmp /var/tmp /run /dev/shm "$own"; do
    line="$line,$(cat "$place/seen.ok" 2>/dev/null | tr '\\n' ' ')"
    (echo "$RUNPLAN_ROLE" >>"$place/seen.ok") 2>/dev/null && line="$line+"
done
echo "$line"
"""


def test_each_role_sees_and_writes_what_the_table_of_views_says(boxed: Shut) -> None:
    """The worktree, its repository and its home; then /tmp, /var/tmp, /run, /dev/shm and the folder of the dispatch."""
    project = boxed.project
    project.commit_file(".gitignore", "*.ok\n")
    (project.home / "look.sh").write_text(LOOK.format(root=project.path))
    look = f"sh {project.home}/look.sh"
    boxed.scripts(
        setup=look,
        agent=f'{look}; echo 1 >1.txt; test "$RUNPLAN_ROLE" = implement || echo 1 >fixed.txt',
        check=f"{look}; test ! -e 1.txt || test -e fixed.txt",
        judge=look,
    )
    project.start("1", "auto").exits(0)
    temporary = ",+" * 5
    assert set(boxed.said().splitlines()) == {
        f"setup,+,+,+{temporary}",
        f"setup-proof,+,+,+{temporary}",
        f"implement,setup +,+,setup +{temporary}",
        f"fix,setup implement +,+,setup implement +{temporary}",
        *(f"{check}-proof,setup +,,setup +{temporary}" for check in ("baseline", "gate")),
        f"verify-proof,setup ,,setup +{temporary}",
    }


def test_what_an_agent_installs_in_its_home_is_not_there_for_the_tests(boxed: Shut) -> None:
    boxed.scripts(agent="echo 1 >1.txt; touch ~/package", check="test ! -e 1.txt || cat ~/package")
    boxed.project.start("finish", "auto").exits(
        1, "the checks have a home of their own: only run.setup, and no agent, installs what they find there"
    )


@pytest.fixture
def without(tmp_path: Path) -> dict[str, str]:
    """An environment without bwrap."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("git", "sh", "true", "dirname", "mkdir", "mv", "printf"):
        (tools / name).symlink_to(shutil.which(name) or name)
    return {"PATH": str(tools)}


def forbid(env: dict[str, str]) -> None:
    """Add a bwrap that is not allowed to make a sandbox."""
    write_script(Path(env["PATH"]) / "bwrap", "echo 'bwrap: No permissions to create new namespace' >&2\nexit 1")


@pytest.mark.promise
def test_a_missing_sandbox_is_said_once_at_each_start(project: Project, without: dict[str, str]) -> None:
    warning = "runplan: warning: no sandbox: an agent can do what you can; see: runplan doctor"
    assert len(warning) <= 80, "one line of a terminal"
    env = without | {"RUNPLAN_AGENTS_SANDBOX": "auto"}
    first = project.start("1", "auto", **env)
    second = project.runplan("start", "X", "2", "auto", "--wait", **env)

    assert project.landed() == ["1", "2"]
    assert [ran.err.splitlines().count(warning) for ran in (first, second)] == [1, 1]


@pytest.mark.promise
def test_sandbox_bwrap_is_refused_where_bwrap_does_not_work(shut: Shut, without: dict[str, str]) -> None:
    project = shut.project
    absent = project.start("1", "auto", RUNPLAN_AGENTS_SANDBOX="bwrap", **without)
    forbid(without)
    forbidden = project.start("1", "auto", RUNPLAN_AGENTS_SANDBOX="bwrap", **without)

    assert (absent.code, forbidden.code) == (2, 2)
    assert 'agents.sandbox = "bwrap" does not work here: bwrap is not on PATH; ' in absent.last
    assert "No permissions to create new namespace; allow user namespaces, e.g. sudo" in forbidden.last
    assert not (project.path / ".git/runplan/journal.db").exists()


@pytest.mark.parametrize("file", ["test.o", "test.sh", "other.up"])
def test_a_filter_script_that_an_agent_edited_changes_no_other_file_of_the_tests(boxed: Shut, file: str) -> None:
    """Neither what set-up made, nor a tracked file, nor one that another filter converts."""
    project = boxed.project
    for name, program in (("up", "cat"), ("own", "sh convert.sh")):
        for direction in ("clean", "smudge"):
            project.repo.git("config", f"filter.{name}.{direction}", program)
    attributes = {".gitattributes": "*.txt filter=own\n*.up filter=up\n", ".gitignore": "*.o\n"}
    tests = dict.fromkeys(("test.sh", "other.up"), "test ! -e red\n")
    project.repo.commit("Begin", **attributes, **tests, **{"convert.sh": "cat\n", "z.txt": "0\n"})
    made = project.path / ".git/runplan/seen/*/made/*/files"
    harm = f"cat; case $PWD in *-proof) for f in {file} {made}/{file}; do test ! -e $f || echo true >$f; done; esac"
    boxed.scripts(
        setup="cp test.sh test.o",
        check=f"sh {file}",
        agent=f"echo '{harm}' >convert.sh; echo 1 >z.txt; echo 1 >1.txt; echo '# new' >>other.up; >red",
    )
    ran = project.start("1", "auto")
    assert (ran.code, "gate       failed" in ran.err, project.landed()) == (1, True, []), ran.err


def test_a_script_on_an_agents_files_has_an_empty_home_and_no_network(boxed: Shut) -> None:
    """A filter of the user's runs in such scripts, and writes what it sees into the file."""
    project = boxed.project
    look = (
        "cat >/dev/null; mkdir -p ~/.cache\n"
        'echo "home: $(ls ~/.cache) interfaces: $(grep -c : /proc/net/dev) token: ${GH_TOKEN:-none}"\n'
        f"touch ~/.cache/seen; (echo x >{project.path}/new.txt) 2>/dev/null && echo written\ntrue\n"
    )
    (project.home / "look.sh").write_text(look)
    project.repo.git("config", "filter.look.clean", f"sh {project.home}/look.sh")
    project.repo.git("config", "filter.look.smudge", "cat")
    project.repo.commit("Begin", **{".gitattributes": "*.dat filter=look\n"})
    boxed.scripts(agent="echo 1 >1.txt; echo 1 >a.dat; mkdir -p ~/.cache; touch ~/.cache/agent")
    ran = project.start("1", "auto", GH_TOKEN="secret")
    assert ran.code == 0, ran.err
    assert project.show("main:a.dat") == "home:  interfaces: 1 token: none"


# --- a list of hosts -------------------------------------------------------------------------------------


#: Prints what it gets from each address, by the proxy that the environment names, and by a plain socket.
ASK = """
import socket, sys, urllib.request
for url in sys.argv[2:]:
    try:
        print("GOT", urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as error:
        print("FAILED", url, error)
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=20)
    print("PLAIN SOCKET")
except OSError as error:
    print("NO SOCKET", error)
"""


@pytest.fixture
def port() -> Iterator[int]:
    with served() as (address, _):
        yield int(address.rpartition(":")[2])


@pytest.fixture
def asking(boxed: Shut, port: int) -> Shut:
    """Each process asks the hosts."""
    ask = boxed.project.home / "ask.py"
    ask.write_text(ASK)
    line = f"python3 {ask} {port} http://127.0.0.1:{port}/one http://refused.example/two"
    set_up = f"python3 {ask} {port} http://127.0.0.1:{port}/set-up"
    boxed.scripts(setup=set_up, agent=f"{line} {line[-26:]}; echo 1 >1.txt", judge="true", check=f"{line}; true")
    return boxed


def test_a_process_reaches_the_named_hosts_alone_and_the_report_names_the_others(asking: Shut, port: int) -> None:
    project = asking.project
    for section in ("AGENTS", "TESTS"):
        project.extra[f"RUNPLAN_{section}_NETWORK"] = f"127.0.0.1:{port},*.example.com"

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + asking.said()
    said = asking.said()
    assert f"GOT /one for 127.0.0.1:{port}" in said
    assert said.count(f"GOT /set-up for 127.0.0.1:{port}") == 2  # in both worktrees
    assert "FAILED http://refused.example/two HTTP Error 403" in said
    assert "NO SOCKET" in said
    assert "PLAIN SOCKET" not in said
    for text in (project.runplan("report", "X").out.replace("\\", ""), project.runplan("logs", "X").out):
        assert text.count("sh asked for refused.example:80, refused: it is not in agents.network") == 1
        assert "the gate command asked for refused.example:80, refused: it is not in tests.network" in text


def test_a_process_without_a_network_reaches_nothing(asking: Shut) -> None:
    asking.project.extra |= {"RUNPLAN_AGENTS_NETWORK": "none", "RUNPLAN_TESTS_NETWORK": "none"}

    ran = asking.project.start("1", "auto")

    assert ran.code == 0, ran.err + asking.said()
    assert "NO SOCKET" in asking.said()
    assert "GOT" not in asking.said()


def test_a_list_of_hosts_is_refused_where_no_sandbox_can_keep_it(tmp_path: Path) -> None:
    project = a_project(tmp_path, "1")
    project.extra |= {"RUNPLAN_AGENTS_SANDBOX": "none", "RUNPLAN_TESTS_NETWORK": "example.com"}

    project.start("1", "auto").exits(2, 'tests.network needs a sandbox: agents.sandbox = "none"')
