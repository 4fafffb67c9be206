"""The doctor's judgement of facts that a test cannot make: an old git, no identity, a broken sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from runplan.checks.testcommand import Infrastructure
from runplan.cli.setup import doctor
from runplan.cli.setup.discovery import Facts
from runplan.cli.setup.doctor import Check
from runplan.errors import RefusedEarly
from runplan.gitfacts import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = Facts(
    root="/home/uma/app",
    git_version=(2, 39, 5),
    branches=("main", "next"),
    default_branch="main",
    identity=Identity(name="Uma", email="uma@example.org"),
    signs=False,
    remotes=("origin",),
    known=("claude",),
    installed=("claude",),
    tests=Infrastructure(found="Makefile", command="make test"),
)
OBSTACLE = "no; apt install it"


def facts(**fields: Any) -> Facts:
    return replace(FACTS, **fields)


@pytest.mark.parametrize(
    ("look", "about", "detail", "remedy"),
    [
        (doctor._git, (facts(),), "version 2.39.5", ""),
        (doctor._git, (facts(git_version=(2, 37, 9)),), "version 2.37.9", "install git 2.38 or newer"),
        (doctor._identity, (facts(signs=True),), "Uma <uma@example.org>, commits are signed", ""),
        (
            *(doctor._identity, (facts(identity=None),), "git has no user.name and user.email"),
            'git config user.name "Your Name" && git config user.email you@example.org',
        ),
        (doctor._target, (facts(), "main"), "branch main", ""),
        (
            *(doctor._target, (facts(branches=()), "main"), "the repository has no commit yet"),
            "git commit --allow-empty -m Start",
        ),
        (
            *(doctor._target, (facts(branches=("m",), default_branch="m"), "main"), "there is no branch main"),
            'set run.target = "m" in runplan.toml, or create it: git branch main',
        ),
        (doctor.sandbox, ("auto", ""), "bubblewrap works", ""),
        (doctor.sandbox, ("none", ""), 'bubblewrap works, but agents.sandbox = "none"', ""),
        (
            *(doctor.sandbox, ("auto", OBSTACLE)),
            *("agents run without bubblewrap, which does not work: no; apt install it", ""),
        ),
        (
            *(doctor.sandbox, ("bwrap", OBSTACLE), "bubblewrap does not work: no"),
            'apt install it, or set agents.sandbox = "auto"',
        ),
    ],
)
def test_a_check_says_what_it_saw_and_a_fault_has_its_remedy(
    look: Callable[..., str], about: tuple[object, ...], detail: str, remedy: str
) -> None:
    assert doctor._check("x", look, *about) == Check("x", not remedy, detail, remedy)


def test_a_semicolon_in_a_quoted_command_does_not_begin_the_remedy() -> None:
    found = doctor._failed("tests", RefusedEarly("`make lib; make test` needs Makefile; commit it"))
    assert (found.detail, found.remedy) == ("`make lib; make test` needs Makefile", "commit it")
