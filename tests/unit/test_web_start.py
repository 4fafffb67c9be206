"""The words of a start that a form asks for."""

import pytest

from runplan.domain.settings.options import parse_words
from runplan.interfaces.web.pages.tools import Choice


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "finish"),
        ({"scope": "finish"}, "finish"),
        ({"scope": "next", "auto": "auto"}, "auto"),
        ({"scope": "phase 4b", "auto": "", "landing": "pr"}, "4b pr"),
        ({"scope": "finish", "auto": "auto", "landing": "elsewhere"}, "finish auto"),
        ({"scope": "finish", "auto": "auto", "every": "day at 9am", "now": "now"}, "every day at 9am now"),
        ({"scope": "phase 2", "every": "every 4h", "landing": "direct"}, "direct every 4h"),
    ],
    ids=["offered", "all", "next", "phase", "unknown landing", "schedule", "schedule with its word"],
)
def test_the_words_of_a_choice_can_be_read(query: dict[str, str], words: str) -> None:
    choice = Choice(**query)
    assert " ".join(choice.list_words()) == words
    parse_words(choice.list_words())
