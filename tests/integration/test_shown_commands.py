"""A command that a message shows can be pasted for any branch name."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from runplan.adapters.git import remote
from runplan.adapters.git.command import Git
from runplan.adapters.git.repository import open_repository, require_workable
from runplan.domain.errors import RunplanError
from runplan.domain.run.events import LandingStarted
from runplan.engine.landing.direct import Direct
from runplan.engine.landing.swap import CherryPick
from runplan.interfaces.cli import main
from tests.support.repos import Pair, make_pair

#: Git forbids blanks and a few signs more; all of these it allows.
NAME = """we're;$(x)&"y"|z"""
REF = f"refs/heads/{NAME}"
OLD = "1" * 40


def there(pair: Pair, git: Git) -> remote.Remote:
    return remote.Remote(git, name="origin", branch=NAME, common_dir=pair.here.path / ".git", caller=pair.here.env)


def no_branch_there(pair: Pair, git: Git) -> None:
    remote.require(there(pair, git))


def in_lfs(pair: Pair, git: Git) -> None:
    pair.here.commit("Images", **{".gitattributes": "*.png filter=lfs\n"})
    pair.here.git("push", "-q", "origin", f"HEAD:{REF}")
    remote.require(there(pair, git))


def not_pushed(pair: Pair, git: Git) -> None:
    pair.here.git("push", "-q", "origin", f"HEAD:{REF}")
    pair.here.git("switch", "-qc", NAME)
    pair.here.commit("Mine")
    remote.require(there(pair, git))


def no_room(pair: Pair, git: Git) -> None:
    pair.here.git("branch", NAME)
    found = open_repository(pair.here.path, env=pair.here.env)
    require_workable(found, target="refs/heads/main", prefix=f"{NAME}/")


def gone_here(pair: Pair, git: Git) -> None:
    lander = CherryPick(git, ref=REF, common_dir=pair.here.path / ".git")
    lander.land(LandingStarted(id="L", ref=REF, old=OLD, new=pair.here.head("HEAD")))


def gone_there(pair: Pair, git: Git) -> None:
    lander = Direct(git, there(pair, git), tool=pair.here.path / ".git")
    lander.recover(LandingStarted(id="L", ref=lander.ref, old=OLD, new=pair.here.head("HEAD")))


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (no_branch_there, ["git", "push", "origin", NAME]),
        (in_lfs, ["git", "push", "origin", NAME]),
        (not_pushed, ["git", "push", "origin", NAME]),
        (no_room, ["git", "branch", "-m", NAME, f"{NAME}-old"]),
        (gone_here, ["git", "branch", NAME, OLD]),
        (gone_there, ["git", "push", "origin", f"{OLD}:{REF}"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_shell_takes_the_shown_command_as_it_is_meant(
    tmp_path: Path, happens: Callable[[Pair, Git], None], words: list[str]
) -> None:
    pair = make_pair(tmp_path, **{"a.txt": "a\n"})
    with Git(pair.here.path, env=pair.here.env) as git, pytest.raises(RunplanError) as error:
        happens(pair, git)
    shown = str(error.value).rpartition(": git ")[2]
    assert ["git", *shlex.split(shown)] == words


def test_terminal_control_characters_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Git takes such names, and an agent can give them."""
    main._say_error("the target is none of: a\x9b31mb, c\u202ed", debug=False)
    assert capsys.readouterr().err == "runplan: the target is none of: ab, cd\n"
