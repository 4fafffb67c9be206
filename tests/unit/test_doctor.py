"""The doctor's split of a refusal into the problem and its remedy."""

from runplan.app import health
from runplan.domain.errors import RefusedEarly


def test_a_semicolon_in_a_quoted_command_does_not_begin_the_remedy() -> None:
    check = health._fail(health.SetupCheck("tests"), RefusedEarly("`make lib; make test` needs Makefile; commit it"))
    assert (check.detail, check.remedy) == ("`make lib; make test` needs Makefile", "commit it")
