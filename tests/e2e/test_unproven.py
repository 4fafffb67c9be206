"""What lands is what the checks saw: agents that have git show something else do not get it landed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.cli import Project, a_project, copied, end_processes_of
from tests.support.sandboxes import obstacle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SETTINGS = """\
[agents]
implementer = "sh"
verifier = "judge"
sandbox = "{sandbox}"
[agents.sh]
kind = "command"
argv = ["sh", "{home}/agent.sh"]
[agents.judge]
kind = "script"
script = "agent.toml"
[tests]
command = "! grep -q EVIL 1.txt"
allow_red_baseline = true
"""
START = """\
entry=$(git rev-parse --absolute-git-dir)
common=$(cd "$(git rev-parse --git-common-dir)" && pwd)
"""
COMMIT = "echo EVIL >1.txt; git add 1.txt; git commit -qm one\n"
FILTER = '[filter "x"]\\n\\tsmudge = sed s/EVIL/good/\\n\\tclean = sed s/good/EVIL/\\n'
WITH_FILTER = "echo '*.txt filter=x' >.gitattributes; echo EVIL >1.txt; git add .; git commit -qm one\n"

#: What hides the content from the checks, where git obeys or believes it.
BELIEVED = {
    "flags": COMMIT
    + 'git update-index --skip-worktree 1.txt; echo good >1.txt; cp -p "$entry/index" "$entry/runplan-index"',
    "a split index": COMMIT + "git update-index --split-index --skip-worktree 1.txt; echo good >1.txt\n"
    'cp -p "$entry/index" "$entry/runplan-index"',
    "a link": COMMIT + 'rm 1.txt; mkdir "$entry/else"; echo good >"$entry/else/1.txt"; ln -s "$entry/else/1.txt" 1.txt'
    "; git update-index --assume-unchanged 1.txt",
}
#: A file that git cannot store as long as it obeys what the agent says of its encoding.
UNSTORABLE = (
    "echo .gitattributes >.gitignore; git add .gitignore\n"
    + COMMIT
    + "echo '1.txt working-tree-encoding=UTF-16LE' >.gitattributes\n"
    + "git update-index --skip-worktree 1.txt; echo good >1.txt"
)
#: What somebody wrote by hand, with what a person is told.
OBEYED = {
    "a replacement": (
        COMMIT + "bad=$(git rev-parse HEAD:1.txt); good=$(echo good | git hash-object -w --stdin)\n"
        'mkdir -p "$common/refs/replace"; echo "$good" >"$common/refs/replace/$bad"',
        "git replace -d ",
    ),
    "the repository's configuration": (
        f"printf '{FILTER}' >>\"$common/config\"\n" + WITH_FILTER,
        "git config --local --unset-all filter.x.smudge",
    ),
    "the user's configuration": (
        f"printf '{FILTER}' >>\"$HOME/.gitconfig\"\n" + WITH_FILTER,
        "/.gitconfig --unset-all filter.x.smudge",
    ),
    "attributes of the repository": (
        COMMIT + "echo '*.txt working-tree-encoding=UTF-16LE' >\"$common/info/attributes\"",
        "info/attributes: git obeys a line of it now",
    ),
    "another store": (COMMIT + 'echo /nowhere >"$common/objects/info/alternates"', "objects/info/alternates"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return a_project(tmp_path_factory.mktemp("model"), "1")


@pytest.fixture
def project(model: Project, tmp_path: Path) -> Iterator[Project]:
    made = copied(model, tmp_path)
    made.extra["GIT_CONFIG_GLOBAL"] = str(made.home / ".gitconfig")
    (made.home / ".gitconfig").write_text("[user]\n\tname = Uma\n")
    yield made
    end_processes_of(made.home)


def played(project: Project, script: str, *, sandbox: str = "none") -> tuple[int, str]:
    if sandbox == "bwrap" and (why := obstacle()):
        pytest.skip(why)
    project.commit_file("runplan.toml", SETTINGS.format(home=project.home, sandbox=sandbox))
    (project.home / "agent.sh").write_text(START + script + "\n")
    ran = project.start("1", "auto")
    return ran.code, ran.err


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
@pytest.mark.parametrize("way", BELIEVED)
def test_the_checks_see_what_would_land(project: Project, way: str, sandbox: str) -> None:
    """What the agent had hidden is committed too; so the checks pass, and on what they have seen."""
    code, told = played(project, BELIEVED[way], sandbox=sandbox)
    assert code == 0, told
    assert "work       2 commits" in told
    assert "EVIL" not in project.show("main:1.txt")


def test_a_file_that_git_cannot_store_ends_the_attempt_by_name(project: Project) -> None:
    code, told = played(project, UNSTORABLE)
    assert code == 1, told
    assert "1.txt cannot be committed: failed to encode '1.txt' from UTF-16LE to UTF-8" in told
    assert told.endswith("runplan: failed: tampered\n")
    assert project.landed() == []


@pytest.mark.parametrize("way", OBEYED)
def test_nothing_lands_on_what_git_obeys_since_somebody_wrote_it(project: Project, way: str) -> None:
    script, says = OBEYED[way]
    code, told = played(project, script)
    assert code == 1, told
    assert "failed: guard-violated" in told
    assert "while the agent ran, somebody changed" in told
    assert says in told
    assert project.landed() == []


def test_a_filter_that_git_itself_says_the_agent_set_is_taken_out(project: Project) -> None:
    config = (project.path / ".git/config").read_text()
    code, told = played(project, "git config filter.x.smudge 'sed s/EVIL/good/'\n" + WITH_FILTER)
    assert (code, project.landed()) == (1, [])
    assert "the agent changed the config config (filter.x.smudge)" in told
    assert (project.path / ".git/config").read_text() == config


def test_a_filter_of_the_users_from_before_is_theirs(project: Project) -> None:
    """As with files that are kept elsewhere: what the checkout shows is what the user wants it to show."""
    (project.home / ".gitconfig").write_text('[filter "x"]\n\tsmudge = sed s/EVIL/good/\n\tclean = sed s/good/EVIL/\n')
    code, told = played(project, WITH_FILTER)
    assert code == 0, told
    assert project.landed() == ["1"]


def test_settings_that_run_nothing_do_not_stop_a_landing(project: Project) -> None:
    script = 'echo "[color]\n\tui = never" >>"$HOME/.gitconfig"; echo "# x" >>"$common/config"; echo 1 >1.txt'
    code, told = played(project, script)
    assert code == 0, told
    assert "somebody changed the config config" in told
    assert project.landed() == ["1"]


@pytest.mark.parametrize("whose", ["checkout", "worktree"])
def test_a_head_led_to_the_runs_branch_is_put_back(project: Project, tmp_path: Path, whose: str) -> None:
    project.repo.git("worktree", "add", "-q", "-b", "mine", str(tmp_path / "mine"))
    name = "HEAD" if whose == "checkout" else "worktrees/mine/HEAD"
    head = project.path / ".git" / name
    said = head.read_text()
    code, told = played(project, f'echo "ref: refs/heads/runplan/x/1" >"$common/{name}"; echo 1 >1.txt')
    assert code == 1, told
    assert f"the head {name}: it was put back as it was" in told
    assert head.read_text() == said
    assert project.repo.git("status", "--porcelain") == ""
    assert project.repo.at(tmp_path / "mine").git("status", "--porcelain") == ""
