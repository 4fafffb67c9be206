"""Agents, checks and filters get none of the user's credentials."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from runplan.adapters.sandbox.bubblewrap import find_obstacle
from tests.support.cli import Project, set_up, steps, verify

PHASES = ("1",)
SECRET = "hunter2"
#: Fails where the secret is seen.
LOOK = """
seen=$(mktemp); trap 'rm "$seen"' EXIT
cat /dev/null {places} >$seen 2>/dev/null
printf 'protocol=https\\nhost=example.org\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill >>$seen 2>/dev/null
{{ env; git config --list; cat /proc/self/environ; }} >>$seen
if grep -qa {secret} $seen; then echo "the secret is seen" >&2; exit 1; fi
"""
FILES = (
    *(".git-credentials", ".netrc", ".config/gh/hosts.yml", ".config/git/credentials", ".ssh/id_ed25519"),
    *(".mozilla/firefox/default/cookies.sqlite", ".config/chromium/Default/Cookies"),
    *(".gnupg/private.key", ".config/glab-cli/config.yml", ".python-gitlab.cfg"),
)
MODES = [
    "none",
    pytest.param("bwrap", marks=pytest.mark.skipif(bool(find_obstacle(os.environ)), reason="no bubblewrap")),
]


@pytest.mark.parametrize("sandbox", MODES)
def test_nobody_but_runplan_sees_a_credential(project: Project, tmp_path: Path, sandbox: str) -> None:
    for name in FILES:
        (project.home / name).parent.mkdir(parents=True, exist_ok=True)
        (project.home / name).write_text(f"{SECRET}\n")
    configuration = tmp_path / "gitconfig"
    configuration.write_text(
        "[user]\nname = Uma\nemail = uma@example.org\n[init]\ndefaultBranch = trunk\n"
        f'[credential]\nhelper = "!echo username=uma; echo password={SECRET}; true"\n'
        f'[url "https://{SECRET}@example.org/"]\ninsteadOf = https://example.org/\n'
        f'[http]\nextraHeader = "Authorization: {SECRET}"\n'
        '[filter "look"]\nclean = sh look.sh && cat\nsmudge = cat\nrequired = true\n'
    )
    # Without a sandbox every file of the user's can be read.
    read = " ".join(["/proc/[0-9]*/environ", *(str(project.home / name) for name in FILES)])
    look = LOOK.format(places=read if sandbox == "bwrap" else "", secret=SECRET)
    for name, text in (("look.sh", look), (".gitattributes", "1.txt filter=look\n")):
        project.repo.write(name, text)
    sees = "run = 'sh look.sh && test \"$(git config --global init.defaultBranch)\" = trunk'"
    agent = steps(sees, 'write = "1.txt"\ntext = "1\\n"') + verify(sees, "pass_all = true")
    command = "env = ['GH_TOKEN']\n[run]\nsetup = 'sh look.sh'\n[tests]\ncommand = 'sh look.sh'\nenv = ['GH_TOKEN']\n"
    set_up(project, settings=command, agent=agent)
    project.extra |= {"GIT_CONFIG_GLOBAL": str(configuration), "GH_TOKEN": SECRET, "RUNPLAN_AGENTS_SANDBOX": sandbox}

    project.start("1", "auto").exits(0)
    assert project.show("main:1.txt") == "1"
    # Git chooses the modes in a repository, which others cannot enter.
    assert [*open_to_others(project.path / ".git/runplan")] == []


def open_to_others(directory: Path) -> Iterator[Path]:
    """The files and directories that other users can reach."""
    for path in (directory, *directory.iterdir()):
        if path.lstat().st_mode & 0o077 and path.name != "progress.log":  # of the scripted agent
            yield path
        elif path.is_dir() and path != directory and not (path / "objects").is_dir():
            yield from open_to_others(path)
