"""The doctor's judgement of facts that a test cannot make: a sandbox, broken or not."""

from collections.abc import Callable

import pytest

from runplan.cli.setup import doctor
from runplan.cli.setup.doctor import Check
from runplan.errors import RefusedEarly

OBSTACLE = "no; apt install it"


@pytest.mark.parametrize(
    ("look", "about", "detail", "remedy"),
    [
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
