"""Honest work of every kind lands as plain git would commit it, wherever the agent left it."""

from pathlib import Path

import pytest

from tests.support.cli import Project
from tests.support.repos import Repo

PHASES = ("1",)
#: The files before the work; `run.sh` is not executable.
FILES = {
    ".gitattributes": "*.up filter=up\n*.crlf text eol=crlf\n*.wide working-tree-encoding=UTF-16LE\n",
    ".gitignore": "*.o\n",
    "edited": "a\n",
    "deleted": "a\n",
    "renamed": "one\ntwo\nthree\nfour\n",
    "run.sh": "#!/bin/sh\n",
    "file-to-folder": "a\n",
    "folder-to-file/inside": "a\n",
    "Case": "a\n",
    "x.up": "upper\n",
    "x.crlf": "a\n",
}
WORK = r"""
set -e
echo 1 >1.txt; echo b >>edited; rm deleted; mv renamed elsewhere; echo five >>elsewhere; chmod +x run.sh; : >empty
rm file-to-folder; mkdir file-to-folder; echo x >file-to-folder/inside; rm -r folder-to-file; echo x >folder-to-file
ln -s edited link; ln -s /nowhere dangling; mv Case case; echo more >>x.up; echo new >y.up; printf 'b\r\n' >>x.crlf
printf 'w\0i\0' >x.wide; head -c 3000 /dev/zero >binary; echo x >-n; echo x >'*'; echo x >' '
echo x >"$(printf 'a\nb')"; echo x >"$(printf 'caf\303\251')"; echo x >"$(printf '\377')"
mkdir -p deep/er; echo x >deep/er/file
"""
COMMIT = "echo x >ignored.o; git add -A; git add -f ignored.o\n"  #: before a commit
#: Where the work is when the agent ends.
PLACES = {
    "its files": "",
    "the index, with later edits": "git add -A; echo c >>edited; rm empty\n",
    "its branch": COMMIT + "git commit -qm Work\n",
    "several commits": COMMIT + "git commit -qm Work; echo c >>edited; git mv elsewhere again; git commit -qam More\n",
    "a merge": COMMIT + "git checkout -qb side; git commit -qm Work; git checkout -q -; echo m >m; git add m\n"
    "git commit -qm Main; git merge -q --no-edit side\n",
    "another branch": COMMIT + "git checkout -qb feature; git commit -qm Work\n",
    "a detached HEAD": COMMIT + "git checkout -q --detach; git commit -qm Work\n",
    "a commit and files": COMMIT + "git commit -qm Work; echo c >>edited; rm empty\n",
}


def configure(repo: Repo) -> Repo:
    repo.git("config", "filter.up.clean", "tr a-z A-Z")
    repo.git("config", "filter.up.smudge", "tr A-Z a-z")
    return repo


@pytest.mark.parametrize("place", PLACES)
def test_work_lands_as_plain_git_would_commit_it(project: Project, tmp_path: Path, place: str) -> None:
    configure(project.repo).commit("Before", **FILES)
    script = WORK + PLACES[place]
    project.shell_agent(script)
    twin = project.repo.at(tmp_path / "twin")
    project.repo.git("clone", "-q", "--no-checkout", ".", str(twin.path))
    configure(twin).git("checkout", "-q", "main")
    by_hand(twin, script)

    project.start("1", "auto").exits(0)
    project.repo.git("fetch", "-q", str(twin.path), "HEAD")
    different = project.repo.git("diff", "--no-renames", "--name-only", "FETCH_HEAD", "main").split("\n")
    assert [name for name in different if not name.startswith(("plans/", "reports/"))] == []
    assert project.repo.status() == ""
    for path in (path for path in twin.path.rglob("*") if path.is_file() and ".git" not in path.parts):
        name = path.relative_to(twin.path)
        if name.parts[0] not in ("plans", "reports"):
            assert (project.path / name).read_bytes() == path.read_bytes(), name


def by_hand(twin: Repo, script: str) -> None:
    """The same work in a plain clone, with one commit of what is left."""
    file = twin.path.parent / "work.sh"
    file.write_text(script)
    twin.git("-c", f"alias.work=!sh {file}", "-c", "user.name=Uma", "-c", "user.email=uma@example.org", "work")
    twin.git("add", "-A")
    twin.git("-c", "user.name=Uma", "-c", "user.email=uma@example.org", "commit", "-q", "--allow-empty", "-m", "Left")
