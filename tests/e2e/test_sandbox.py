"""Agents and checks under bubblewrap: they do their work, and the user's repository is out of their reach."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.support.cli import Project, a_project
from tests.support.daemons import none_left
from tests.support.mounts import obstacle
from tests.support.tools import write_script

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


def test_a_sandboxed_agent_can_write_its_worktree_and_caches(boxed: Shut) -> None:
    project = boxed.project
    boxed.scripts(
        setup=f"set -e; mkdir -p {project.home}/.npm; git config core.hooksPath .husky",
        agent=f"set -e\necho 0 >1.txt; git add 1.txt; git commit -qm zero\n"
        f"echo 1 >1.txt; git commit -qa --amend -m one\n"
        f"echo 2 >2.txt; git stash -qu; git checkout -qb mine; git checkout -q -; git gc -q --prune=now\n"
        f"mkdir -p {project.home}/.npm; touch {project.home}/.npm/agent\n"
        "test -w /dev/null; touch /tmp/runplan-$$ && rm /tmp/runplan-$$",
        check=f"set -e; echo x >build; touch {project.home}/.npm/check; test ! -e {project.home}/.npm/agent",
    )

    ran = project.start("1", "auto")

    assert ran.code == 0, ran.err + boxed.said()
    assert project.show("main:1.txt") == "1"
    assert not (project.home / ".npm").exists()


def test_the_script_of_an_agent_below_tmp_is_readable_there_and_nothing_else_is(boxed: Shut) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        script = Path(place) / "agent.sh"
        script.write_text('ls "$(dirname "$0")" >1.txt; (echo >>"$0") 2>/dev/null && echo written >>1.txt; true\n')
        script.with_name("other").touch()
        settings = SETTINGS.replace("{home}/agent.sh", place + "/agent.sh").format(home=boxed.project.home)
        boxed.project.commit_file("runplan.toml", settings)

        ran = boxed.project.start("1", "auto")

        assert ran.code == 0, ran.err + boxed.said()
        assert boxed.project.show("main:1.txt") == "agent.sh"


def test_what_an_agent_installs_in_its_home_is_not_there_for_the_tests(boxed: Shut) -> None:
    boxed.scripts(agent="echo 1 >1.txt; touch ~/package", check="test ! -e 1.txt || cat ~/package")
    boxed.project.start("finish", "auto").exits(
        1, "the checks have a home of their own: only run.setup, and no agent, installs what they find there"
    )


def test_checks_that_fail_for_a_hidden_place_name_the_setting_that_shows_it(boxed: Shut) -> None:
    hidden = boxed.project.home / ".cache/models/one"
    hidden.parent.mkdir(parents=True)
    hidden.write_text("x")
    boxed.scripts(check="cat ~/.cache/models/one")
    ran = boxed.project.start("finish", "auto")
    assert 'if the checks need them, set tests.home = [".cache/models"]' in ran.err
    boxed.project.commit_file(
        "runplan.toml", (boxed.project.path / "runplan.toml").read_text() + 'home = [".cache/models"]\n'
    )
    assert boxed.project.start("finish", "auto").code == 0


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
def test_a_missing_sandbox_is_said_once_at_each_start(tmp_path: Path, without: dict[str, str]) -> None:
    warning = "runplan: warning: no sandbox: an agent can do what you can; see: runplan doctor"
    assert len(warning) <= 80, "one line of a terminal"
    env = without | {"RUNPLAN_AGENTS_SANDBOX": "auto"}
    with none_left(tmp_path / "home"):
        project = a_project(tmp_path, "1", "2")
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


def test_what_an_earlier_set_up_left_in_the_home_is_gone_before_the_next(boxed: Shut) -> None:
    project = boxed.project
    project.repo.commit("Begin", **{"package-lock.json": "1\n"})
    look = 'echo "home: $(ls ~/left 2>/dev/null)"; mkdir -p ~/left; touch ~/left/$(cat package-lock.json)'
    boxed.scripts(setup=look, agent="echo 2 >package-lock.json; echo 1 >1.txt")
    project.start("1", "auto").exits(0)
    assert boxed.said().count("home: \n") == 3  # both worktrees at first, then that of the checks
    assert "home: 1" not in boxed.said()
