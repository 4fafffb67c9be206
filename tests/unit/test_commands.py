"""A command in a message can be copied into a shell."""

import shlex

import pytest
from hypothesis import given, strategies as st

from runplan.domain.text import command


@pytest.mark.parametrize(
    ("words", "shell_text"),
    [
        (("runplan", "retry", "plans/X.md"), "runplan retry plans/X.md"),
        (("git", "fetch", "--deepen=100"), "git fetch --deepen=100"),
        (("runplan", "retry", "plans/My Plan.md"), "runplan retry 'plans/My Plan.md'"),
        (("git", "branch", "it's"), """git branch 'it'"'"'s'"""),
        (("git", "branch", "a;b"), "git branch 'a;b'"),
        (("git", "branch", ""), "git branch ''"),
    ],
)
def test_a_command_is_shown_as_a_shell_takes_it(words: tuple[str, ...], shell_text: str) -> None:
    assert command(*words) == shell_text


@given(st.lists(st.text(), min_size=1))
def test_a_shell_takes_it_apart_into_the_same_words(words: list[str]) -> None:
    assert shlex.split(command(*words)) == words
