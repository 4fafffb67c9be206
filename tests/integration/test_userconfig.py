"""The configuration outside of the repository, as git itself reads it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from runplan.adapters.userconfig import user_files
from runplan.core.gitconfig import newly_obeyed, settings
from tests.support.repos import make_repo

if TYPE_CHECKING:
    from pathlib import Path

    from runplan.core.guard import FileStamp

EVIL = '[filter "x"]\n\tsmudge = sed s/EVIL/good/\n'


@pytest.mark.parametrize(
    "text",
    [
        '[filter "x"] smudge = a "b # c" d ; e\n  [core]\n\tautocrlf\n',
        '[A.B "c"]\nd = e\\\n f\\\n  g\n[x]\n\ty= "a\\tb\\"c\\\\" \n z\t=\tw  \n',
        '[include]\n\tpath = a b\n[includeIf "gitdir:~/\\"x\\""]\n\tPath = c\n',
        '\ufeff[core]\r\n\tfsmonitor = x\r\n\tworktree = "a\\\nb"\r\n',
        "[a]b=c#d\n[e]f=;g\n[h]\ni=\n",
        '[a""]\nb = c\n',
        "[a\nb]\nc = d\n",
        '[a "b\n"]\nc = d\n',
        "[a]\nb c = d\n",
        "[a]\nb = c\n0d = e\n",
    ],
)
def test_settings_are_read_as_git_reads_them(tmp_path: Path, text: str) -> None:
    repo = make_repo(tmp_path / "repo")
    file = repo.write(".git/other", text)
    told = repo.git("config", "--file", str(file), "--no-includes", "--list", "-z", ok=False)
    fields = (entry.partition("\n") for entry in told.split("\0") if entry)
    expected = [(key, value if newline else "true") for key, newline, value in fields]
    # What git cannot read it does not obey at all; whatever stands before the fault may be seen.
    found = [(one.key, one.value) for one in settings(text)]
    assert found == expected if expected else True


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/git").mkdir(parents=True)
    (tmp_path / "git").mkdir()
    return tmp_path / "home"


def seen(home: Path, **env: str) -> dict[str, FileStamp]:
    found = user_files({"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **env}, home.parent / "git")
    return {path: stamp for path, stamp in found.items() if not path.startswith("/etc/")}


@pytest.mark.parametrize("name", [".gitconfig", ".config/git/config", "shared/config", ".gitconfig-work", "shared.inc"])
def test_a_program_is_seen_wherever_git_would_read_it(home: Path, name: str) -> None:
    (home / ".gitconfig").write_text(
        '[include]\n\tpath = ~/shared/config\n[includeIf "gitdir:/x"]\npath=.gitconfig-work\n'
    )
    (home.parent / "git/config").write_text("[include]\n\tpath = ../home/shared.inc\n")
    (home / "shared").mkdir()
    before = seen(home)
    with (home / name).open("a") as file:
        file.write(EVIL)
    after = seen(home)
    path = str(home / name)
    old = before[path].text if path in before else ""
    assert newly_obeyed(old, after[path].text) == ("filter.x.smudge",)
    assert {one: stamp for one, stamp in after.items() if one != path} == {
        one: stamp for one, stamp in before.items() if one != path
    }


def test_the_environment_says_where_the_users_configuration_is(home: Path) -> None:
    (home / ".gitconfig").write_text(EVIL)
    (home / "mine").write_text(EVIL)
    (home / "xdg/git").mkdir(parents=True)
    (home / "xdg/git/attributes").write_text("*.txt eol=crlf\n")
    assert list(seen(home, GIT_CONFIG_GLOBAL=os.devnull)) == []
    assert list(seen(home, GIT_CONFIG_GLOBAL=str(home / "mine"))) == [str(home / "mine")]
    assert sorted(seen(home, XDG_CONFIG_HOME=str(home / "xdg"))) == [
        str(home / ".gitconfig"),
        str(home / "xdg/git/attributes"),
    ]


def test_attributes_are_seen_under_whatever_name(home: Path) -> None:
    (home / ".gitconfig").write_text("[core]\n\tattributesFile = ~/odd\n")
    (home / "odd").write_text("*.txt eol=crlf\n")
    before = seen(home)
    (home / "odd").write_text("*.txt filter=x\n")
    assert newly_obeyed(before[str(home / "odd")].text, seen(home)[str(home / "odd")].text) == ("a line of it",)


def test_what_is_too_large_to_be_looked_at_could_hold_anything(home: Path) -> None:
    (home / ".gitconfig").write_text("[user]\nname = x\n")
    before = seen(home)
    (home / ".gitconfig").write_text("#" * 2_000_000 + "\n" + EVIL)
    path = str(home / ".gitconfig")
    assert newly_obeyed(before[path].text, seen(home)[path].text) != ()


def test_files_that_include_each_other_and_pipes_are_no_hindrance(home: Path) -> None:
    (home / ".gitconfig").write_text("[include]\npath = .gitconfig\npath = pipe\npath = gone\npath = .\npath = a\0b\n")
    os.mkfifo(home / "pipe")
    assert list(seen(home)) == [str(home / ".gitconfig")]
